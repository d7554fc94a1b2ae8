"""Every rule equals its plain-loop reference in float64, for updates of size 1e-6 to 1e6."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat import aggregation
from scapegoat.aggregation import Aggregate, Score
from scapegoat.aggregation.deepsight import _normalized_energies
from tests.aggregation.inputs import CLASSES, HIDDEN, as_rows, context, make, outnumbered, stacks
from tests.reference import aggregation as reference

many = settings(max_examples=50, deadline=None)


def agree(answer: Aggregate, expected: reference.Answer, updates: Tensor, compare_kept: bool = True) -> None:
    """1e-5 of the largest row that entered: what a float32 sum of those rows can promise."""
    update, kept = expected
    if compare_kept:
        assert set(answer.kept.nonzero().flatten().tolist()) == kept
    size = max((float(updates[i].double().norm()) for i in kept), default=0.0)
    error = float(np.linalg.norm(answer.update.double().numpy() - update))
    assert error <= 1e-5 * size
    assert answer.update.dtype == torch.float32
    assert not answer.rejected.any()


def clear_cut(scores: list[float], kept: int, least: float) -> bool:
    """Whether the kept-th and the next score are farther apart than float32 blurs."""
    ordered = sorted(scores)
    return kept >= len(ordered) or kept == 0 or ordered[kept] - ordered[kept - 1] > least


def trims(n: int) -> st.SearchStrategy[int]:
    return st.integers(1, max(1, (n - 1) // 2))


@many
@given(stacks(), st.data())
def test_fedavg(updates: Tensor, data: st.DataObject) -> None:
    agree(aggregation.fedavg(updates), reference.fedavg(as_rows(updates)), updates)
    counts = data.draw(st.lists(st.integers(1, 1000), min_size=len(updates), max_size=len(updates)))
    agree(aggregation.fedavg(updates, weights=counts), reference.fedavg(as_rows(updates), counts), updates)


@many
@given(stacks())
def test_median(updates: Tensor) -> None:
    agree(aggregation.median(updates), reference.median(as_rows(updates)), updates)


@many
@given(stacks(min_rows=3), st.data())
def test_trimmed_mean(updates: Tensor, data: st.DataObject) -> None:
    b = data.draw(trims(len(updates)))
    agree(aggregation.trimmed_mean(updates, b), reference.trimmed_mean(as_rows(updates), b), updates)


@many
@given(stacks(min_rows=3), st.data())
def test_atm(updates: Tensor, data: st.DataObject) -> None:
    b = data.draw(trims(len(updates)))
    rows = as_rows(updates)
    assume(clear_cut(reference.mean_angles(rows), len(rows) - 2 * b, 1e-5))
    agree(aggregation.atm(updates, b), reference.atm(rows, b), updates)
    agree(aggregation.clipped_atm(updates, b), reference.clipped_atm(rows, b), updates)


@many
@given(stacks(), st.none() | st.floats(1e-6, 1e6))
def test_norm_clipping(updates: Tensor, bound: float | None) -> None:
    agree(aggregation.norm_clipping(updates, bound), reference.norm_clipping(as_rows(updates), bound), updates)


@many
@given(st.integers(0, 2**31), st.integers(3, 7), st.integers(-6, 6))
def test_memory_atm_over_rounds_with_clients_that_come_and_go(seed: int, n: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    memory, state = reference.MemoryATM(b=1), {}
    for round_ in range(5):
        ids = sorted(rng.choice(9, size=n, replace=False).tolist())
        updates = make(seed + round_, n, 30, 10.0**exponent, "shared", spread=10.0)
        rows = as_rows(updates)
        expected = memory.round(rows, ids)
        directions = [memory.average[c] for c in ids]
        assume(clear_cut(reference.mean_angles(directions), n - 2, 1e-5))
        agree(aggregation.memory_atm(updates, 1, client_ids=ids, state=state), expected, updates)
    assert len(state) == 3 * len(memory.average)


@many
@given(st.integers(0, 2**31), st.integers(4, 7), st.integers(-6, 6), st.booleans())
def test_reputation_atm_over_rounds_with_clients_that_come_and_go(
    seed: int, n: int, exponent: int, steady: bool
) -> None:
    rng = np.random.default_rng(seed)
    memory, state = reference.ReputationATM(b=1, probation=3, remember=8, patience=2), {}
    goal = make(seed, 1, 30)[0]
    for round_ in range(7):
        ids = sorted(rng.choice(9, size=n, replace=False).tolist())
        updates = make(seed + round_, n, 30, 10.0**exponent, "shared", spread=10.0)
        if steady:
            updates[0] = 10.0**exponent * (goal + 0.1 * updates[0] / updates[0].norm())
        expected = memory.round(as_rows(updates), ids)
        assume(memory.closest > 1e-3 and clear_cut(memory.score, n - 2, 1e-3))
        answer = aggregation.reputation_atm(
            updates, 1, probation=3, remember=8, patience=2, client_ids=ids, state=state
        )
        agree(answer, expected, updates)
        assert {int(key.rpartition("/")[2]) for key in state} == set(memory.remains)


@many
@given(stacks(min_rows=2, kinds=("normal", "shared", "close")), st.data())
def test_krum_and_multi_krum(updates: Tensor, data: st.DataObject) -> None:
    n = len(updates)
    f = data.draw(st.integers(0, max(0, n - 3)))
    k = data.draw(st.integers(1, n))
    rows = as_rows(updates)
    for name, fewer in (("n-f-2", 2), ("n-f-1", 1)):
        answer = aggregation.multi_krum(updates, f, k, name)
        expected = reference.multi_krum(rows, f, k, fewer)
        if set(answer.kept.nonzero().flatten().tolist()) != expected[1]:
            # One neighbour each: two rows that are each other's nearest tie exactly, and either may be picked.
            assume(n > 2 and n - f - fewer > 1)
        agree(answer, expected, updates)
        again = aggregation.multi_krum(updates, f, k, name, rescore=True)
        expected = reference.multi_krum_rescored(rows, f, k, fewer)
        if set(again.kept.nonzero().flatten().tolist()) != expected[1]:
            assume(n > 2 and n - f - fewer > 1)
        agree(again, expected, updates)
        assert again.notes == {"selected": len(expected[1])}
    if n - f - 2 > 1:
        agree(aggregation.krum(updates, f), reference.multi_krum(rows, f, 1), updates)


@settings(max_examples=25, deadline=None)
@given(stacks(min_rows=7, max_rows=12, kinds=("normal", "shared")))
def test_bulyan(updates: Tensor) -> None:
    f = (len(updates) - 3) // 4
    rows = as_rows(updates)
    expected = reference.bulyan(rows, f)
    agree(aggregation.bulyan(updates, f), expected, updates)


@many
@given(stacks())
def test_geometric_median(updates: Tensor) -> None:
    # As many steps on both sides: along a line the median of an even number of points is not unique.
    answer = aggregation.geometric_median(updates, iterations=20, tolerance=0.0)
    agree(answer, reference.geometric_median(as_rows(updates), steps=20), updates)


@many
@given(outnumbered())
def test_geometric_median_with_outliers_of_any_length(case: tuple[Tensor, int]) -> None:
    updates, m = case
    answer = aggregation.geometric_median(updates, iterations=20, tolerance=0.0)
    expected, _ = reference.geometric_median(as_rows(updates), steps=20)
    honest = updates[: len(updates) - m]
    agree(answer, (expected, set(range(len(honest)))), honest, compare_kept=False)


@many
@given(outnumbered(kinds=("normal",)))
def test_geometric_median_is_where_the_pulls_of_the_updates_cancel(case: tuple[Tensor, int]) -> None:
    """Not at an update, its definition is that the unit vectors towards all of them sum to zero."""
    updates, _ = case
    assume(updates.shape[1] >= 17)
    rows = as_rows(updates)
    z = aggregation.geometric_median(updates, iterations=5000).update.double().numpy()
    towards = [(row - z) / reference.norm(row - z) for row in rows]
    assume(min(reference.norm(row - z) for row in rows) > 1e-2)
    assert reference.norm(sum(towards, np.zeros_like(z))) < 1e-4


@many
@given(outnumbered())
def test_no_minority_moves_the_geometric_median_far_from_the_majority(case: tuple[Tensor, int]) -> None:
    """At most 2(n - m)/(n - 2m) times the honest updates' radius from their centre (Minsker 2015, lemma 2.1)."""
    updates, m = case
    n = len(updates)
    honest = updates[: n - m].double()
    centre = honest.mean(0)
    radius = float((honest - centre).norm(dim=1).max())
    moved = float((aggregation.geometric_median(updates).update - centre).norm())
    assert moved <= 2 * (n - m) / (n - 2 * m) * radius + 1e-5 * float(honest.norm(dim=1).max())


@many
@given(
    stacks(),
    st.integers(0, 2**31),
    st.sampled_from([{"sigma": 0.0}, {"sigma": 0.3}, {"bound": 0.5}, {"bound": 2.0, "multiplier": 0.1}]),
)
def test_dp(updates: Tensor, seed: int, setting: dict[str, float]) -> None:
    n, d = updates.shape
    ids = [3 * i + 1 for i in range(n)]
    sigma, bound, multiplier = setting.get("sigma", 0.001), setting.get("bound"), setting.get("multiplier", 1.0)
    if bound is not None:
        pytest.importorskip("dp_accounting")
    draw = torch.Generator().manual_seed(seed)
    answer = aggregation.dp(updates, sigma, bound, multiplier, client_ids=ids, generator=draw)
    round_seed = int(torch.randint(2**62, (1,), generator=torch.Generator().manual_seed(seed)))
    noise = reference.client_noise(round_seed, ids, d)
    expected = reference.dp(as_rows(updates), noise, sigma, bound, multiplier)
    drawn = torch.tensor(np.array(noise)) * (sigma if bound is None else multiplier * bound)
    agree(answer, expected, torch.maximum(updates.norm(dim=1), drawn.norm(dim=1))[:, None])


@many
@given(stacks(), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_top_k(updates: Tensor, fraction: float) -> None:
    agree(aggregation.top_k(updates, fraction), reference.top_k(as_rows(updates), fraction), updates)


@many
@given(stacks(), st.integers(0, 2**31), st.integers(-6, 6))
def test_fltrust(updates: Tensor, seed: int, exponent: int) -> None:
    root = make(seed, 1, updates.shape[1], 10.0**exponent)[0]
    rows = as_rows(updates)
    cosines = [np.cos(reference.angle(row, root.double().numpy())) for row in rows]
    assume(all(abs(c) > 1e-4 or np.linalg.norm(r) == 0 for c, r in zip(cosines, rows, strict=True)))
    assume(sum(max(0.0, c) for c in cosines) > 0.1 or not any(c > 0 for c in cosines))
    answer = aggregation.fltrust(updates, root)
    agree(answer, reference.fltrust(rows, root.double().numpy()), root[None].expand(len(rows), -1))


@many
@given(stacks(min_rows=3), st.sampled_from(["err", "lfr", "both"]), st.integers(0, 2**31))
def test_fang(updates: Tensor, method: str, seed: int) -> None:
    goal = make(seed, 1, updates.shape[1], float(updates.norm()))[0].double().numpy()

    def plain(update: np.ndarray) -> tuple[float, float]:
        return float(np.linalg.norm(update - goal)), float(np.mean(update * goal < 0))

    def score(update: Tensor) -> Score:
        return Score(*plain(update.double().numpy()))

    rows, f = as_rows(updates), (len(updates) - 1) // 2
    losses = [plain(reference.mean_of(rows, [j for j in range(len(rows)) if j != i]))[0] for i in range(len(rows))]
    assume(clear_cut(losses, f, 1e-5 * max(losses)))
    # A mean that is zero but for rounding has no sign: the error rates would then differ between float32 and float64.
    means = [reference.mean_of(rows, [j for j in range(len(rows)) if j != i]) for i in range(len(rows))]
    assume(all(np.abs(m)[m != 0].min(initial=1e9) > 1e-4 * np.abs(updates.numpy()).max() for m in means))
    agree(aggregation.fang(updates, score, f, method), reference.fang(rows, plain, f, method), updates)


@settings(max_examples=25, deadline=None)
@given(stacks(min_rows=4, max_rows=11, kinds=("normal", "shared")))
def test_flame_without_its_noise(updates: Tensor) -> None:
    assume(updates.shape[1] > 2)  # in one or two dimensions, cosine distances coincide
    agree(aggregation.flame(updates, noise=0.0), reference.flame(as_rows(updates)), updates)


@many
@given(st.integers(0, 2**31), st.integers(2, 12), st.integers(-6, 6))
def test_deepsight_energies_and_exceedings(seed: int, classes: int, exponent: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, classes, 3, generator=draw, dtype=torch.float64) * 10.0**exponent
    bias = torch.randn(4, classes, generator=draw, dtype=torch.float64) * 10.0**exponent
    weight[0, 1:] *= 1e-3  # the first client changes one class only
    bias[0, 1:] *= 1e-3
    neups, suspect = _normalized_energies(weight.abs().sum(2) + bias.abs())
    expected = [reference.exceedings(w.numpy(), b.numpy()) for w, b in zip(weight, bias, strict=True)]
    for row, (values, _) in zip(neups, expected, strict=True):
        assert row.tolist() == pytest.approx(values, rel=1e-9)
    counts = [count for _, count in expected]
    assert suspect.tolist() == [count <= np.median(counts) / 2 for count in counts]


@many
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(3, 18),
    groups=st.integers(1, 4),
    hostile=st.integers(0, 5),
    size=st.sampled_from([1e-4, 1.0, 1e4]),
    probed=st.booleans(),
)
@example(seed=1000000, n=13, groups=2, hostile=3, size=1e-4, probed=True)  # products that are unequal in their last bit
def test_deepsight_from_votes_to_clipped_mean(
    seed: int, n: int, groups: int, hostile: int, size: float, probed: bool
) -> None:
    """Clients in groups that train alike; the first few move a single class."""
    d = 60
    kinds = make(seed, groups, d)[torch.arange(n) % groups]
    updates = kinds + 0.2 * make(seed + 1, n, d, spread=10.0)
    single = torch.full((d,), 0.01)
    single[-CLASSES - HIDDEN * CLASSES :][:HIDDEN] = 3.0
    single[-CLASSES] = 3.0
    updates[:hostile] *= single
    updates *= size
    server = context(n, d, seed=seed, size=size)
    assert server.layout is not None
    assert server.output_probe is not None
    probe = server.output_probe if probed else None
    batches = []
    for batch in range(3 if probe else 0):
        before = server.output_probe(torch.zeros(d), batch).double().numpy()
        after = [server.output_probe(row, batch).double().numpy() for row in updates]
        batches.append([(probabilities / before).mean(0) for probabilities in after])
    expected = reference.deepsight(as_rows(updates), CLASSES, HIDDEN, batches)
    answer = aggregation.deepsight(updates, server.layout, probe)
    agree(answer, expected, updates)


def test_all_updates_the_same_is_that_update_for_every_mean() -> None:
    row = make(3, 1, 200)[0]
    updates = row.expand(9, -1)
    for rule in ("atm", "bulyan", "clipped_atm", "fedavg", "geometric_median", "krum", "median", "multi_krum"):
        answer = aggregation.get(rule)(updates)
        assert torch.allclose(answer.update, row, rtol=1e-6, atol=1e-8), rule
    assert aggregation.atm(updates, 2).kept.tolist() == [True] * 5 + [False] * 4
