"""With `sketch`, rules with a memory keep a few numbers per client, decide as before, and forget as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scapegoat.aggregation import AggregationContext, get, memory_atm, reputation_atm
from scapegoat.combining.memory import ROWS
from scapegoat.errors import InputError, OptionError
from tests.aggregation.inputs import make
from tests.aggregation.test_memory import schedule

RULES = ("memory_atm", "reputation_atm", "foolsgold")
ANGULAR = RULES[:2]
D, N = 20_000, 8


def context(ids: tuple[int, ...], state: dict[str, Tensor], seed: int | None = 0) -> AggregationContext:
    source = None if seed is None else torch.Generator().manual_seed(seed)
    return AggregationContext(ids, (1,) * len(ids), state=state, generator=source)


def clients(state: dict[str, Tensor]) -> set[int]:
    """Who is remembered, from the tables."""
    tables = [key.rpartition("/")[2] for key in state if key.startswith("client/")]
    known = [state[f"client/{t}"][state[f"seen/{t}"] >= 0] for t in tables]
    return set(torch.cat(known).tolist()) if known else set()


@pytest.mark.parametrize("rule", RULES)
def test_same_result_after_a_checkpoint_and_resume(rule: str, tmp_path: Path) -> None:
    """Each step has a generator of its own, as the server gives it: the sketch of the first one stays."""

    def step(state: dict[str, Tensor], r: int, ids: tuple[int, ...], updates: Tensor) -> tuple[Tensor, list[bool]]:
        answer = get(rule, sketch=64, remember=7)(updates, context(ids, state, seed=r))
        return answer.update, answer.kept.tolist()

    through: dict[str, Tensor] = {}
    whole = [step(through, r, *entry) for r, entry in enumerate(schedule(12))]
    state: dict[str, Tensor] = {}
    for r, entry in enumerate(schedule(12)):
        if r in (4, 9):
            save_file(state, tmp_path / "rule.safetensors")
            state = load_file(tmp_path / "rule.safetensors")
        update, kept = step(state, r, *entry)
        assert torch.equal(update, whole[r][0])
        assert kept == whole[r][1]
    assert state.keys() == through.keys()
    assert all(torch.equal(state[key], through[key]) for key in state)


def attackers(goal: Tensor) -> dict[str, Callable[[Tensor], None]]:
    def blend(updates: Tensor) -> None:
        updates[7] = 0.5 * updates[:7].mean(0) + 0.5 * goal

    def away(updates: Tensor) -> None:
        updates[7] = -updates[:7].mean(0) + goal

    return {"blend": blend, "away": away, "nobody": lambda updates: None}


@pytest.mark.parametrize("rule", ANGULAR)
@pytest.mark.parametrize("attack", ["blend", "away", "nobody"])
def test_the_attacker_is_kept_as_often_as_with_whole_vectors(rule: str, attack: str) -> None:
    draw = torch.Generator().manual_seed(0)
    common = torch.randn(D, generator=draw)
    send = attackers(torch.randn(D, generator=draw))[attack]
    states: dict[int | None, dict[str, Tensor]] = {None: {}, 2048: {}}
    kept: dict[int | None, list[bool]] = {None: [], 2048: []}
    for r in range(40):
        updates = common + 3.0 * torch.randn(N, D, generator=draw)
        send(updates)
        for sketch, state in states.items():
            answer = get(rule, sketch=sketch)(updates, context(tuple(range(N)), state, seed=r))
            kept[sketch].append(bool(answer.kept[7]))
    rates = {sketch: sum(was) / len(was) for sketch, was in kept.items()}
    assert abs(rates[None] - rates[2048]) <= (0.2 if attack == "nobody" else 0.05)


@pytest.mark.parametrize("rule", ANGULAR)
@pytest.mark.parametrize("every", [1, 8])
def test_a_new_name_does_not_clear_an_attacker(rule: str, every: int) -> None:
    draw = torch.Generator().manual_seed(0)
    common, goal = torch.randn(D, generator=draw), torch.randn(D, generator=draw)
    state: dict[str, Tensor] = {}
    for r in range(40):
        updates = common + 3.0 * torch.randn(N, D, generator=draw)
        attackers(goal)["blend"](updates)
        ids = (*range(N - 1), 100 + r // every)
        answer = get(rule, sketch=512, remember=10)(updates, context(ids, state, seed=r))
        assert not (r >= 20 and answer.kept[7])


@pytest.mark.parametrize("rule", RULES)
def test_least_recently_seen_clients_leave_and_their_rows_are_used_again(rule: str) -> None:
    state: dict[str, Tensor] = {}
    for r in range(60):
        ids = tuple(range(5 * r, 5 * r + 5))
        answer = get(rule, remember=12, sketch=16)(make(r, 5, 400), context(ids, state))
        assert answer.notes["remembered"] == min(12, 5 * (r + 1))
        assert len(clients(state)) == answer.notes["remembered"]
    assert clients(state) == {*range(295, 300), *range(290, 295), 285, 286}
    assert state["direction/0"].shape == (ROWS, 16)
    assert not any(key.endswith("/1") for key in state)


@pytest.mark.parametrize("rule", RULES)
def test_a_client_that_was_forgotten_comes_back_as_a_stranger(rule: str) -> None:
    def last(ids: list[tuple[int, ...]], seeds: list[int]) -> dict[int, Tensor]:
        state: dict[str, Tensor] = {}
        for some, seed in zip(ids, seeds, strict=True):
            get(rule, remember=4, sketch=16)(make(seed, len(some), 400), context(some, state))
        rows = state["client/0"].tolist()
        return {c: state["direction/0"][rows.index(c)] for c in clients(state)}

    back = last([(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 2, 3)], [1, 2, 3])
    fresh = last([(0, 1, 2, 3)], [3])
    assert back.keys() == fresh.keys()
    assert all(torch.equal(back[c], fresh[c]) for c in fresh)


@pytest.mark.parametrize("rule", RULES)
def test_memory_per_client_does_not_grow_with_the_model(rule: str) -> None:
    sizes = []
    for d in (1_000, 50_000):
        state: dict[str, Tensor] = {}
        get(rule, sketch=64, remember=1000)(make(0, 200, d), context(tuple(range(200)), state))
        sizes.append(sum(t.nbytes for t in state.values()))
    assert sizes[0] == sizes[1] <= -(-200 // ROWS) * ROWS * (4 * 64 + 8 * 5) + 100


@pytest.mark.parametrize("rule", RULES)
def test_models_shorter_than_the_sketch_are_remembered_whole(rule: str) -> None:
    plain: dict[str, Tensor] = {}
    sketched: dict[str, Tensor] = {}
    for ids, updates in schedule(5):
        expected = get(rule)(updates, context(ids, plain))
        have = get(rule, sketch=400)(updates, context(ids, sketched))
        assert torch.equal(have.update, expected.update)
    assert plain.keys() == sketched.keys()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("other", [{"d": 300}, {"sketch": 32}])
def test_a_memory_of_another_model_or_width_is_refused_and_stays_as_it_was(rule: str, other: dict[str, int]) -> None:
    state: dict[str, Tensor] = {}
    get(rule, sketch=16)(make(0, 4, 400), context((0, 1, 2, 3), state))
    before = {key: value.clone() for key, value in state.items()}
    with pytest.raises(InputError, match="with 400 parameters in sketches of 16"):
        get(rule, sketch=other.get("sketch", 16))(make(0, 4, other.get("d", 400)), context((4, 5, 6, 7), state))
    assert state.keys() == before.keys()
    assert all(torch.equal(state[key], before[key]) for key in state)


def test_ids_of_64_bits_are_told_apart() -> None:
    ids = (0, 2**63 - 1, 2**63, 2**64 - 1)
    state: dict[str, Tensor] = {}
    for r in range(3):
        memory_atm(make(r, 4, 400), sketch=16, client_ids=ids, state=state)
    assert sorted(state["count/0"].tolist())[-4:] == [3, 3, 3, 3]


def test_the_sketch_is_drawn_from_the_rules_own_randomness() -> None:
    drawn = set()
    for seed in (0, 1, None):
        state: dict[str, Tensor] = {}
        get("memory_atm", sketch=16)(make(0, 4, 400), context((0, 1, 2, 3), state, seed))
        drawn.add(int(state["sketch"][0]))
    assert len(drawn) == 3


def test_sketched_foolsgold_finds_clients_of_one_will() -> None:
    draw = torch.Generator().manual_seed(0)
    goal = torch.randn(D, generator=draw)
    state: dict[str, Tensor] = {}
    for r in range(5):
        updates = torch.randn(N, D, generator=draw)
        updates[5:] = 0.5 * updates[5:] + goal
        answer = get("foolsgold", sketch=1024)(updates, context(tuple(range(N)), state, seed=r))
    assert answer.kept.tolist() == [True] * 5 + [False] * 3


def test_malformed_updates_never_enter_the_memory() -> None:
    updates = make(0, 5, 400)
    updates[2, 3] = torch.nan
    state: dict[str, Tensor] = {}
    answer = reputation_atm(updates, sketch=16, client_ids=range(5), state=state)
    assert answer.rejected.tolist() == [False, False, True, False, False]
    assert clients(state) == {0, 1, 3, 4}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sketch", [0, 15, -1, 1 << 25, "wide"])
def test_a_width_out_of_range_is_refused_by_name(rule: str, sketch: object) -> None:
    with pytest.raises(OptionError, match="sketch"):
        get(rule, sketch=sketch)


@pytest.mark.parametrize("rule", RULES)
def test_without_the_option_the_rule_is_written_as_it_was(rule: str) -> None:
    assert "sketch" not in get(rule).canonical()
    assert get(rule, sketch=64).canonical()["sketch"] == 64
