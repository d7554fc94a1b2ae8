"""Normal numbers in bulk: a stream cipher for the bits, Box and Muller for the shape.

Of a call to torch's `normal_` four fifths are spent on drawing bits one after the other. AES in counter mode draws them
at a third of a nanosecond per number, and NumPy's float32 functions work on sixteen at a time: 1.3 ns per number
instead of 2.3, on one core with AVX-512. The bits are a cipher's: without its key nobody tells them from chance.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scapegoat.errors import InputError

PAIRS = 1 << 15
"""Pairs of numbers that are made at a time: what they need stays in the cache."""

_INSTALL = "noise in bulk needs the package cryptography; install it with: pip install 'scapegoat-fl[dp]'"


def require_cipher() -> None:
    """Raise InputError, saying how to install it, where the cipher is not there."""
    try:
        importlib.import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError:
        raise InputError(_INSTALL) from None


class GaussianStream:
    """Independent standard normal float32 numbers from one key of 32 bytes; the same key gives the same numbers.

    A pair is (r cos t, r sin t) with r = sqrt(-2 log u) (Box and Muller, 1958); u and t come from 32 bits each, u never
    0, so that no number is larger than 6.8.

    >>> numbers = torch.zeros(100_000)
    >>> GaussianStream(bytes(32)).add_to(numbers, 2.0)
    >>> round(float(numbers.std()), 1)
    2.0
    """

    def __init__(self, key: bytes) -> None:
        require_cipher()
        ciphers: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers")
        mode = ciphers.modes.CTR(key[16:])
        self._cipher = ciphers.Cipher(ciphers.algorithms.AES(key[:16]), mode).encryptor()
        self._plain = bytes(8 * PAIRS)
        self._bytes = np.empty(8 * PAIRS + 16, dtype=np.uint8)
        self._bits = self._bytes[: 8 * PAIRS].view(np.dtype("<u4"))
        self._length, self._angle, self._cosine = (np.empty(PAIRS, dtype=np.float32) for _ in range(3))
        self._pairs = np.empty((2, PAIRS), dtype=np.float32)

    def add_to(self, row: Tensor, sigma: float, divisor: float = 1.0) -> None:
        """row = (row + sigma · N(0, 1)) / divisor, in place, for a float32 vector."""
        flat = self._pairs.reshape(-1)
        if row.device.type != "cpu":
            row.div_(divisor)
            for there in torch.split(row, len(flat)):
                self._draw(sigma / divisor)
                there.add_(torch.from_numpy(flat[: len(there)]).to(row.device))
            return
        numbers = row.numpy()
        for start in range(0, len(numbers), len(flat)):
            part = numbers[start : start + len(flat)]
            self._draw(sigma / divisor)
            if divisor != 1.0:
                part /= np.float32(divisor)
            part += flat[: len(part)]

    def _draw(self, sigma: float) -> None:
        """The next `PAIRS` pairs times sigma: their first numbers, then their second ones."""
        self._cipher.update_into(self._plain, self._bytes)
        length, angle, cosine = self._length, self._angle, self._cosine
        length[:] = self._bits[:PAIRS]
        angle[:] = self._bits[PAIRS:]
        length += 0.5
        length *= 2.0**-32
        np.log(length, out=length)
        # Rounding to float32 can take u to 1, never above: its logarithm is 0 then, as it should be.
        length *= -2.0
        np.sqrt(length, out=length)
        length *= sigma
        angle *= 2.0 * math.pi * 2.0**-32
        out = self._pairs
        np.cos(angle, out=cosine)
        np.sin(angle, out=angle)
        np.multiply(length, cosine, out=out[0])
        np.multiply(length, angle, out=out[1])


def key_from(source: torch.Generator) -> bytes:
    """A key drawn from a generator: the stream is then as repeatable, and as secret, as the generator's seed."""
    drawn = torch.randint(256, (32,), generator=source, dtype=torch.uint8)
    return bytes(drawn.tolist())
