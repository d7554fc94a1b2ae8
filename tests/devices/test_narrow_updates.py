"""Updates held in bfloat16: half the memory, read in float32 in pieces, answers near those of float32."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from scapegoat import aggregation, attacks, geometry, narrow_rows
from scapegoat.combining.stack import narrow, stacked
from scapegoat.errors import InputError
from scapegoat.experiments.memory import needed
from scapegoat.experiments.spec import parse
from scapegoat.narrow_rows import NarrowRows
from tests.devices.strict import on_the_device, round_on
from tests.devices.test_whole_rounds import VARIANTS, ready, spec, trained


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces, of vectors that are short."""
    monkeypatch.setattr(narrow_rows, "READ_FLOATS", 9 * 4096)


def rows(n: int = 9, d: int = 10_000) -> torch.Tensor:
    made = torch.randn(n, d, generator=torch.Generator().manual_seed(0)) + 0.1
    return made.bfloat16()


def context(n: int) -> aggregation.AggregationContext:
    return aggregation.AggregationContext(
        client_ids=tuple(range(n)),
        sample_counts=tuple(range(1, n + 1)),
        generator=torch.Generator().manual_seed(1),
        score=lambda update: aggregation.Score(float(update.norm()), 0.0),
        root_update=lambda: rows(1)[0].float(),
        layout=(("out.weight", (4, 2499)), ("out.bias", (4,))),
    )


@pytest.mark.parametrize("rule", [*aggregation.registry.names(), *VARIANTS], ids=str)
def test_every_rule_answers_as_for_the_same_numbers_in_float32(rule: Any) -> None:
    held = rows()
    made = aggregation.parse(rule)
    wide, few = (made(stack, context(9)) for stack in (stacked(held.float()), narrow(held)))
    assert wide.kept.tolist() == few.kept.tolist()
    torch.testing.assert_close(few.update, wide.update, rtol=1e-4, atol=1e-6)


def test_products_and_norms_are_those_of_the_same_numbers_in_float32() -> None:
    held = rows()
    few = NarrowRows(held)
    assert len(few.spans) > 1
    torch.testing.assert_close(geometry.gram(few), geometry.gram(held.float()), rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(geometry.squared_norms(few), geometry.squared_norms(held.float()), rtol=1e-6, atol=0)
    assert torch.equal(few.some([3, 1])[0], held[3].float())


def test_a_row_that_is_not_finite_is_rejected() -> None:
    held = rows()
    held[4, 7000] = torch.inf
    assert aggregation.get("atm")(narrow(held)).rejected.tolist() == [row == 4 for row in range(9)]
    assert aggregation.get("fedavg")(narrow(held)).rejected.tolist() == [row == 4 for row in range(9)]


def few_bits(plain: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(plain)
    other["federation"]["updates"] = "bfloat16"
    return other


@pytest.mark.parametrize("attack", sorted({*attacks.registry.names()} - {"shadow"}))
def test_rounds_under_every_attack_end_near_those_of_float32(attack: str) -> None:
    plain = spec(attack={"name": attack, "targets": 16, "mask": 10})
    wide, few = trained(ready(plain)), trained(ready(few_bits(plain)))
    assert 0 < np.abs(wide - few).max() < 0.1 * np.abs(wide).max()


@pytest.mark.parametrize("options", [{"name": "shadow"}, {"name": "adaptive", "target_rule": "median"}])
def test_an_attack_that_needs_all_updates_in_float32_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^federation.updates: bfloat16 is not for .* in float32$"):
        parse(few_bits(spec(attack=options)))


@pytest.mark.parametrize(
    "federation",
    [
        {"local": {"name": "epochs"}},
        {"schedule": {"name": "async", "tau_max": 2, "buffer": 4}},
        {"protect": [{"name": "weight_decay"}]},
    ],
    ids=str,
)
def test_local_epochs_stale_clients_and_protections_hold_updates_in_bfloat16(federation: dict[str, Any]) -> None:
    plain = spec(federation=federation)
    wide, few = trained(ready(plain)), trained(ready(few_bits(plain)))
    assert 0 < np.abs(wide - few).max() < 0.1 * np.abs(wide).max()


def test_a_curious_server_reads_them() -> None:
    plain = few_bits(spec(evaluation={"every": 1, "server_view": True, "design": "coin"}))
    assert np.isfinite(trained(ready(plain))).all()


@pytest.mark.parametrize("rule", ["fedavg", "atm", "median", "reputation_atm"])
def test_they_stay_on_the_device(rule: str) -> None:
    with on_the_device():
        simulation = ready(few_bits(spec(defense=rule, attack={"name": "fedpoisonmia", "targets": 16, "mask": 10})))
        with round_on(simulation.model.d):
            trained(simulation)


def test_a_resumed_run_ends_as_one_that_never_stopped() -> None:
    plain = few_bits(spec(federation={"schedule": {"name": "async", "tau_max": 2, "buffer": 4}}))
    straight, first, second = ready(plain), ready(plain), ready(plain)
    first.run_round()
    second.restore(first.state())
    np.testing.assert_array_equal(trained(second), trained(straight))


def test_the_memory_estimate_counts_two_bytes_per_number() -> None:
    plain = spec(model={"name": "mlp", "hidden": [512]}, federation={"clients": 40})
    wide, few = (needed(ready(s).cast) for s in (plain, few_bits(plain)))
    assert few.kept[0].bytes == wide.kept[0].bytes / 2
