"""Normal numbers in bulk: the formula, the distribution, and that nothing repeats."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from scipy import stats

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from scapegoat.kernels.gaussian import PAIRS, GaussianStream, key_from

KEY = bytes(range(32))


def drawn(count: int, key: bytes = KEY, sigma: float = 1.0, divisor: float = 1.0) -> torch.Tensor:
    row = torch.zeros(count)
    GaussianStream(key).add_to(row, sigma, divisor)
    return row


def test_a_pair_is_box_and_mullers_of_the_ciphers_bits() -> None:
    cipher = Cipher(algorithms.AES(KEY[:16]), modes.CTR(KEY[16:])).encryptor()
    bits = struct.unpack(f"<{2 * PAIRS}I", cipher.update(bytes(8 * PAIRS)))
    found = drawn(2 * PAIRS)
    for i in (0, 1, 17, PAIRS - 1):
        length = math.sqrt(-2 * math.log((bits[i] + 0.5) / 2**32))
        angle = 2 * math.pi * bits[PAIRS + i] / 2**32
        assert float(found[i]) == pytest.approx(length * math.cos(angle), abs=2e-6)
        assert float(found[PAIRS + i]) == pytest.approx(length * math.sin(angle), abs=2e-6)


def test_the_numbers_are_normal_to_the_tails() -> None:
    numbers = drawn(2_000_000).double().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 0.01
    assert abs(numbers.mean()) < 4 / math.sqrt(len(numbers))
    assert abs(numbers.var() - 1) < 4 * math.sqrt(2 / len(numbers))
    assert abs(stats.kurtosis(numbers)) < 4 * math.sqrt(24 / len(numbers))
    for limit in (3, 4, 4.5):
        expected = 2 * stats.norm.sf(limit) * len(numbers)
        assert abs((abs(numbers) > limit).sum() - expected) < 4 * math.sqrt(expected)


def test_neighbours_and_the_two_of_a_pair_are_independent() -> None:
    numbers = drawn(2 * PAIRS * 8).double().numpy().reshape(8, 2, PAIRS)
    first, second = numbers[:, 0].ravel(), numbers[:, 1].ravel()
    bound = 4 / math.sqrt(len(first))
    for one, other in ((first, second), (first**2, second**2), (first[1:], first[:-1]), (second[1:], first[:-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < bound


@pytest.mark.parametrize("count", [0, 1, 7, 2 * PAIRS - 1, 2 * PAIRS, 2 * PAIRS + 3])
def test_a_row_of_any_length_is_added_to_and_divided(count: int) -> None:
    row = torch.full((count,), 6.0)
    GaussianStream(KEY).add_to(row, 0.5, 2.0)
    torch.testing.assert_close(row, 3.0 + drawn(count, sigma=0.25), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sigma", [1e-30, 1e-3, 1e30])
def test_noise_of_any_size_keeps_its_shape(sigma: float) -> None:
    torch.testing.assert_close(drawn(1000, sigma=sigma) / sigma, drawn(1000), rtol=1e-5, atol=1e-5)


def test_the_same_key_repeats_and_another_does_not() -> None:
    assert torch.equal(drawn(100), drawn(100))
    assert not torch.equal(drawn(100), drawn(100, key=bytes(32)))
    stream, once, again = GaussianStream(KEY), torch.zeros(100), torch.zeros(100)
    stream.add_to(once, 1.0)
    stream.add_to(again, 1.0)
    assert not torch.equal(once, again)


def test_a_key_is_the_generators_and_differs_from_draw_to_draw() -> None:
    source = torch.Generator().manual_seed(3)
    first, second = key_from(source), key_from(source)
    assert len(first) == 32
    assert first != second
    assert first == key_from(torch.Generator().manual_seed(3))


def test_bits_of_nothing_but_zeros_or_ones_give_finite_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for byte in (0, 255):
        stream = GaussianStream(KEY)

        class Fixed:
            def update_into(self, plain: bytes, out: np.ndarray, byte: int = byte) -> None:
                out[:] = byte

        monkeypatch.setattr(stream, "_cipher", Fixed())
        row = torch.zeros(2 * PAIRS)
        stream.add_to(row, 1.0)
        assert bool(row.isfinite().all())
        assert float(row.abs().max()) < 6.8
