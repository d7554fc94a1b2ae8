"""memory_atm and reputation_atm remember each client across rounds, checkpoints and absences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scapegoat.aggregation import AggregationContext, clipped_atm, get, memory_atm
from scapegoat.errors import InputError
from tests.aggregation.inputs import make

D = 400


def schedule(rounds: int) -> list[tuple[tuple[int, ...], Tensor]]:
    """Rounds of six of nine clients; client 8 appears late, client 0 leaves for good."""
    out = []
    for r in range(rounds):
        pool = list(range(9 if r >= 6 else 8))[(1 if r >= 3 else 0) :]
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(r))[:6]
        out.append((tuple(pool[i] for i in sorted(order.tolist())), make(r, 6, D, kind="shared", spread=5.0)))
    return out


def step(rule: str, state: dict[str, Tensor], ids: tuple[int, ...], updates: Tensor) -> tuple[Tensor, list[bool]]:
    answer = get(rule)(updates, AggregationContext(ids, (1,) * len(ids), state=state))
    return answer.update, answer.kept.tolist()


@pytest.mark.parametrize("rule", ["memory_atm", "reputation_atm", "client_momentum", "centered_clipping"])
def test_same_result_after_a_checkpoint_and_resume(rule: str, tmp_path: Path) -> None:
    through: dict[str, Tensor] = {}
    whole = [step(rule, through, *entry) for entry in schedule(10)]
    state: dict[str, Tensor] = {}
    resumed = []
    for r, entry in enumerate(schedule(10)):
        if r in (4, 7):
            save_file(state, tmp_path / "rule.safetensors")
            state = load_file(tmp_path / "rule.safetensors")
        resumed.append(step(rule, state, *entry))
    for (update, kept), (again, kept_again) in zip(whole, resumed, strict=True):
        assert torch.equal(update, again)
        assert kept == kept_again


def test_memory_is_one_float32_vector_a_client_seen() -> None:
    state: dict[str, Tensor] = {}
    seen: set[int] = set()
    for ids, updates in schedule(10):
        seen |= set(ids)
        answer = get("memory_atm")(updates, AggregationContext(ids, (1,) * 6, state=state))
        assert answer.notes["remembered"] == len(seen)
    vectors = {k: t for k, t in state.items() if k.startswith("direction/")}
    assert set(vectors) == {f"direction/{c}" for c in seen}
    assert all(t.dtype == torch.float32 and t.shape == (D,) for t in vectors.values())
    assert sum(t.numel() for k, t in state.items() if k not in vectors) == 2 * len(seen)


def test_an_absent_client_is_remembered_as_it_left() -> None:
    state: dict[str, Tensor] = {}
    memory_atm(make(0, 4, D), client_ids=[0, 1, 2, 3], state=state)
    left = state["direction/3"].clone()
    memory_atm(make(1, 3, D), client_ids=[0, 1, 2], state=state)
    assert torch.equal(state["direction/3"], left)
    assert int(state["count/3"]) == 1
    assert int(state["count/0"]) == 2


def test_a_persistent_attacker_stands_out_where_one_round_says_nothing() -> None:
    """Honest gradients share a weak direction under much noise; the attacker pushes steadily somewhere else."""
    draw = torch.Generator().manual_seed(0)
    common = torch.randn(D, generator=draw) / D**0.5
    own = torch.randn(D, generator=draw) / D**0.5
    state: dict[str, Tensor] = {}
    dropped = {"memory": 0, "one round": 0}
    for _ in range(60):
        updates = 0.25 * common + torch.randn(8, D, generator=draw) / D**0.5
        # The attacker hides at a lower angle than honest noise has: half common direction, half its own goal.
        updates[7] = 0.25 * common + 1.2 * own + 0.6 * torch.randn(D, generator=draw) / D**0.5
        dropped["memory"] += not bool(memory_atm(updates, client_ids=range(8), state=state).kept[7])
        dropped["one round"] += not bool(clipped_atm(updates).kept[7])
    assert dropped["memory"] > 50
    assert dropped["memory"] > dropped["one round"] + 20


def test_the_first_round_is_clipped_atm() -> None:
    updates = make(2, 7, D, kind="shared", spread=10.0)
    memory, plain = memory_atm(updates, 2), clipped_atm(updates, 2)
    assert torch.equal(memory.kept, plain.kept)
    assert torch.allclose(memory.update, plain.update, atol=1e-7)


def test_a_client_gains_nothing_by_sending_twice() -> None:
    """Two rows of one client agree with each other perfectly; that agreement is not counted."""
    updates = make(3, 6, D, kind="shared")
    updates[4] = updates[5] = -updates[0]
    answer = memory_atm(updates, client_ids=[0, 1, 2, 3, 9, 9], state={})
    assert answer.kept.tolist() == [True, True, True, True, False, False]


def test_a_memory_of_another_model_is_refused() -> None:
    state: dict[str, Tensor] = {}
    memory_atm(make(0, 3, D), state=state)
    with pytest.raises(InputError, match="remembers client 0 with 400 parameters"):
        memory_atm(make(0, 3, 7), state=state)


@pytest.mark.parametrize("rule", ["memory_atm", "reputation_atm", "client_momentum"])
def test_nodes_that_come_back_under_new_names_do_not_fill_the_server(rule: str) -> None:
    state: dict[str, Tensor] = {}
    for r in range(40):
        ids = tuple(range(5 * r, 5 * r + 5))
        answer = get(rule, remember=12)(make(r, 5, D), AggregationContext(ids, (1,) * 5, state=state))
        assert answer.notes["remembered"] <= 12
    assert {int(key.rpartition("/")[2]) for key in state} == {*range(195, 200), *range(190, 195), 185, 186}
    assert sum(t.numel() for t in state.values()) <= 12 * (D + 4)


@pytest.mark.parametrize("rule", ["memory_atm", "reputation_atm"])
def test_whoever_keeps_coming_is_never_forgotten(rule: str) -> None:
    state: dict[str, Tensor] = {}
    for r in range(30):
        ids = (0, 1, 2, 3, 100 + r)
        get(rule, remember=5)(make(r, 5, D), AggregationContext(ids, (1,) * 5, state=state))
    assert {key for key in state if key.startswith("direction/")} == {f"direction/{c}" for c in (0, 1, 2, 3, 129)}


def test_a_memory_with_room_for_all_changes_nothing() -> None:
    wide: dict[str, Tensor] = {}
    tight: dict[str, Tensor] = {}
    for ids, updates in schedule(12):
        context = AggregationContext(ids, (1,) * 6, state=wide), AggregationContext(ids, (1,) * 6, state=tight)
        assert torch.equal(
            get("memory_atm")(updates, context[0]).update, get("memory_atm", remember=9)(updates, context[1]).update
        )
    assert wide.keys() == tight.keys()
