"""Greedy choice and exact scaling against plain loops, fine grids and exhaustive search."""

from __future__ import annotations

import math
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scapegoat.crafting import measures
from scapegoat.crafting.measures import Angle, Distance, Line, envelope_crossings
from scapegoat.crafting.search import ALPHA_MIN, farthest_within, greatest_within, greedy
from tests.attacks.views import products_of
from tests.reference import attacks as reference

many = settings(max_examples=80, deadline=None)
SEARCHES = (farthest_within, greatest_within)


@st.composite
def problems(draw: st.DrawFn, most_masks: int = 12) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """An attack gradient, mask gradients and peers that more or less agree with each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.integers(2, 30))
    agreement = draw(st.sampled_from([0.0, 0.3, 1.0, 3.0]))
    scale = 10.0 ** draw(st.integers(-4, 4))
    common = rng.normal(size=d)
    peers = [scale * (agreement * common + rng.normal(size=d)) for _ in range(draw(st.integers(2, 7)))]
    masks = [scale * (agreement * common + 3 * rng.normal(size=d)) for _ in range(draw(st.integers(2, most_masks)))]
    attack = scale * (draw(st.sampled_from([-1.0, 0.0, 1.0])) * common + rng.normal(size=d))
    return attack, masks, peers


@many
@given(problems(), st.data())
def test_greedy_chooses_what_the_plain_loop_chooses(problem, data) -> None:
    attack, masks, peers = problem
    count = data.draw(st.integers(1, len(masks)))
    alpha = data.draw(st.sampled_from([0.1, 1.0, 4.0]))
    chosen, infeasible, closest = reference.greedy(attack, masks, peers, count, alpha)
    assume(closest > 1e-9)  # nearer than that, rounding decides
    have = greedy(products_of(attack, masks, peers), Angle(_gram(peers)), count, alpha)
    assert have.chosen == chosen
    assert have.infeasible_steps == infeasible


@many
@given(problems(), st.data())
def test_alpha_is_optimal_against_a_fine_grid(problem, data) -> None:
    attack, masks, peers = problem
    chosen = tuple(range(data.draw(st.integers(1, len(masks)))))
    alpha_max = data.draw(st.sampled_from([0.5, 10.0]))
    step = farthest_within(products_of(attack, masks, peers).line(chosen), Angle(_gram(peers)), ALPHA_MIN, alpha_max)
    bound = reference.angle_bound(peers)
    reached = reference.largest_angle(reference.malicious(attack, masks, chosen, step.t), peers)
    assert 0 < step.t <= alpha_max
    assert math.acos(-step.worst) == pytest.approx(reached, abs=1e-6)
    grid = np.concatenate([np.linspace(ALPHA_MIN, alpha_max, 4000), np.geomspace(ALPHA_MIN, alpha_max, 1000)])
    angles = _largest_angles(grid[:, None] * attack + np.mean([masks[i] for i in chosen], axis=0), np.stack(peers))
    within = angles[angles <= bound]
    if step.feasible:
        assert reached <= bound + 1e-6
        assert reached >= within.max(initial=0.0) - 1e-6
    else:
        assert len(within) == 0
        assert reached <= angles.min() + 1e-6


@many
@given(problems(), st.data())
def test_of_equally_far_alphas_the_greatest_is_taken(problem, data) -> None:
    attack, masks, peers = problem
    line = products_of(attack, masks, peers).line((0,))
    measure = Angle(_gram(peers))
    step = farthest_within(line, measure, ALPHA_MIN, 10.0)
    assume(step.feasible and step.t < 10.0 * (1 - 1e-6))
    beyond = np.linspace(step.t * (1 + 1e-6), 10.0, 500)
    worst = measure.worst(line.dots(beyond), line.squares(beyond))
    assert not ((worst <= measure.bound()) & (worst > step.worst + 1e-9)).any()


@many
@given(problems())
def test_greatest_blend_within_the_distances(problem) -> None:
    attack, masks, peers = problem
    mask = np.mean(masks, axis=0)
    step = attack - mask
    p = np.stack(peers)
    line = Line(p @ mask, p @ step, float(mask @ mask), float(mask @ step), float(step @ step))
    best = greatest_within(line, Distance(_gram(peers)), 0.0, 1.0)
    bound = reference.distance_bound(peers)

    def farthest(share: float) -> float:
        return max(reference.distance(mask + share * step, peer) for peer in peers)

    grid = np.linspace(0, 1, 2001)
    blends = mask + grid[:, None] * step
    distances = np.linalg.norm(blends[:, None] - p, axis=2).max(axis=1)
    if best.feasible:
        assert farthest(best.t) <= bound * (1 + 1e-6)
        assert not (distances[grid > best.t + 1e-9] <= bound * (1 - 1e-9)).any()
    else:
        assert (distances > bound * (1 - 1e-9)).all()
        assert farthest(best.t) <= distances.min() * (1 + 1e-9)


def _largest_angles(updates: np.ndarray, peers: np.ndarray) -> np.ndarray:
    sizes = np.linalg.norm(updates, axis=1)[:, None] * np.linalg.norm(peers, axis=1)
    return np.arccos(np.clip(updates @ peers.T / sizes, -1, 1)).max(axis=1)


def _gram(peers: list[np.ndarray]) -> np.ndarray:
    return np.stack(peers) @ np.stack(peers).T


def test_greedy_comes_close_to_the_best_subset() -> None:
    """How far greedy stays behind exhaustive search, in radians, over 60 small problems with a feasible subset."""
    gaps = []
    rng = np.random.default_rng(0)
    while len(gaps) < 60:
        common = rng.normal(size=20)
        peers = [common + rng.normal(size=20) for _ in range(5)]
        masks = [common + 3 * rng.normal(size=20) for _ in range(9)]
        attack = 0.3 * rng.normal(size=20)
        best = reference.exhaustive(attack, masks, peers, 3, 1.0)
        if best is None:
            continue
        have = greedy(products_of(attack, masks, peers), Angle(_gram(peers)), 3, 1.0)
        reached = reference.largest_angle(reference.malicious(attack, masks, tuple(have.chosen), 1.0), peers)
        bound = reference.angle_bound(peers)
        gaps.append(best - reached if reached <= bound else math.inf)
    feasible = [gap for gap in gaps if gap < math.inf]
    assert min(feasible) >= -1e-9
    assert len(feasible) >= 54
    assert float(np.median(feasible)) < 0.03


lines = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=30)


@settings(max_examples=300, deadline=None)
@given(lines)
def test_the_least_line_changes_where_comparing_every_two_says(some: list[tuple[int, int]]) -> None:
    """Small whole numbers: lines that are equal or parallel, and many through one place."""
    found = envelope_crossings(np.array([u for u, _ in some], float), np.array([v for _, v in some], float)).tolist()
    expected = reference.turning_places([(float(u), float(v)) for u, v in some])
    assert found == sorted(found)
    assert len(found) < max(len(some), 1)
    assert {round(t, 9) for t in found} == {round(t, 9) for t in expected}


@many
@given(problems(), st.booleans())
def test_of_many_peers_the_optimum_is_the_one_that_all_pairs_give(problem, blended: bool) -> None:
    attack, masks, peers = problem
    line = products_of(attack, masks, peers).line((0,))

    def both() -> list:
        if blended:
            return [greatest_within(line, Distance(_gram(peers)), 0.0, 1.0)]
        return [search(line, m(_gram(peers)), ALPHA_MIN, 10.0) for m in (Angle, Distance) for search in SEARCHES]

    plain = both()
    with mock.patch.object(measures, "ALL_PAIRS", 0):
        fast = both()
    for have, want in zip(fast, plain, strict=True):
        assert have.feasible == want.feasible
        assert have.worst == pytest.approx(want.worst, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("count", [250, 1500])
@pytest.mark.parametrize("measure", [Angle, Distance])
def test_the_memory_of_a_search_does_not_grow_with_pairs_of_peers_times_peers(measure: type, count: int) -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=50)
    peers = [common + rng.normal(size=50) for _ in range(count)]
    held = measure(_gram(peers))
    line = products_of(common, [rng.normal(size=50)], peers).line((0,))
    tracemalloc.start()
    try:
        farthest_within(line, held, ALPHA_MIN, 10.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Blocks of inner products, a few bytes per pair of peers for the bound; all places at once would be gigabytes.
    assert peak < 40e6 + 4 * 8 * count**2
