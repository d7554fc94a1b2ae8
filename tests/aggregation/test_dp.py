"""Noise a client, and an epsilon that is the accounting library's."""

from __future__ import annotations

import math

import pytest
import torch

from scapegoat.aggregation import AggregationContext, dp, get, parse
from scapegoat.errors import InputError, OptionError
from scapegoat.experiments.summary import last_epsilon
from scapegoat.federation import RoundRecord
from tests.aggregation.inputs import make

N, D = 8, 20_000


def context(ids: tuple[int, ...] = tuple(range(N)), seed: int = 0, **fields: object) -> AggregationContext:
    draw = torch.Generator().manual_seed(seed)
    return AggregationContext(ids, (1,) * len(ids), generator=draw, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("multiplier", "rate", "rounds"), [(1.1, 0.8, 400), (0.5, 0.1, 7), (4.0, 1.0, 1)])
def test_epsilon_is_the_accounting_librarys(multiplier: float, rate: float, rounds: int) -> None:
    """Poisson sampling: its accountant for privacy loss distributions, never more than its Renyi accountant."""
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld, rdp

    event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(multiplier))
    tight = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event, rounds).get_epsilon(1e-6)
    rule = get("dp", clip=2.0, noise_multiplier=multiplier, delta=1e-6, accounting="poisson")
    notes = rule(make(0, N, 50), context(sampling_rate=rate, round=rounds - 1)).notes
    assert notes["epsilon"] == pytest.approx(tight, rel=2e-3)
    assert notes["epsilon"] <= rdp.RdpAccountant().compose(event, rounds).get_epsilon(1e-6)
    assert notes["delta"] == 1e-6
    assert notes["sigma"] == 2.0 * multiplier
    drawn = context(sampling_rate=rate, round=rounds - 1, sampling="poisson")
    assert get("dp", clip=2.0, noise_multiplier=multiplier, delta=1e-6)(make(0, N, 50), drawn).notes == notes
    options = {"clip": 2.0, "noise_multiplier": multiplier, "delta": 1e-6, "sampling_rate": rate, "rounds": rounds}
    assert dp(make(0, N, 50), sampling="poisson", **options).notes == notes  # type: ignore[arg-type]


@pytest.mark.parametrize(("multiplier", "rate", "rounds"), [(4.0, 0.8, 40), (2.0, 0.1, 7), (4.0, 1.0, 1)])
def test_for_a_fixed_number_of_clients_epsilon_is_the_larger_one_of_replacing_one(
    multiplier: float, rate: float, rounds: int
) -> None:
    from scapegoat.accounting import record_epsilon

    rule = get("dp", clip=2.0, noise_multiplier=multiplier)
    notes = rule(make(0, N, 50), context(sampling_rate=rate, round=rounds - 1)).notes
    assert notes["epsilon"] == pytest.approx(record_epsilon(rounds, multiplier, rate, 1e-5, "fixed"), rel=2e-3)
    poisson = get("dp", clip=2.0, noise_multiplier=multiplier, accounting="poisson")
    told = poisson(make(0, N, 50), context(sampling_rate=rate, round=rounds - 1)).notes["epsilon"]
    assert 1.9 < notes["epsilon"] / told < 10


def test_how_an_epsilon_is_accounted_is_in_the_name_of_runs_that_have_one() -> None:
    assert "accounting" not in get("dp").canonical()
    assert get("dp", clip=1.0).canonical()["accounting"] == "as_sampled"


def test_the_summary_has_the_last_epsilon_known() -> None:
    """A last round without a usable update has no notes; what the rounds before spent stays spent."""
    rounds = [
        RoundRecord(r, 0.0, defense_notes=notes) for r, notes in enumerate([{"epsilon": 1.0}, {"epsilon": 2.0}, {}])
    ]
    assert last_epsilon(rounds) == 2.0
    assert last_epsilon([*rounds, RoundRecord(3, 0.0, defense_notes={"epsilon": math.inf})]) is None
    assert last_epsilon([RoundRecord(0, 0.0, defense_notes={"sigma": 0.001})]) is None


def test_without_a_clip_no_epsilon_is_claimed() -> None:
    assert get("dp")(make(0, N, 50), context()).notes == {"sigma": 0.001}


@pytest.mark.parametrize(("options", "sigma"), [({"sigma": 0.3}, 0.3), ({"clip": 0.5, "noise_multiplier": 2.0}, 1.0)])
def test_the_mean_carries_the_noise_of_all_clients(options: dict[str, float], sigma: float) -> None:
    """Standard deviation sigma/sqrt(n), zero mean, and no larger update than the clip allows."""
    noise = get("dp", **options)(torch.zeros(N, D), context()).update
    assert float(noise.std()) == pytest.approx(sigma / math.sqrt(N), rel=0.03)
    assert abs(float(noise.mean())) < 4 * sigma / math.sqrt(N * D)


def test_updates_are_clipped_before_the_noise() -> None:
    updates = torch.zeros(2, D)
    updates[0, 0], updates[1, 1] = 1000.0, 0.25
    update = get("dp", clip=0.5, noise_multiplier=1e-6)(updates, context((0, 1))).update
    assert update[:2].tolist() == pytest.approx([0.25, 0.125], abs=1e-5)


def test_each_clients_noise_is_its_own() -> None:
    """In a pipeline every row carries sigma; no two rows carry the same noise, whatever the order they came in."""
    rule = get("dp", sigma=0.1)
    from scapegoat.combining.stack import checked, stacked

    def noisy(ids: tuple[int, ...]) -> torch.Tensor:
        changed, _ = rule.transform(checked(stacked(torch.zeros(len(ids), D))), context(ids))  # type: ignore[attr-defined]
        return changed.matrix()

    rows = noisy((0, 1, 2, 3))
    assert rows.std(1).tolist() == pytest.approx([0.1] * 4, rel=0.03)
    assert float(torch.corrcoef(rows).fill_diagonal_(0).abs().max()) < 0.05
    assert torch.equal(noisy((3, 1, 0, 2)), rows[[3, 1, 0, 2]])
    twice = noisy((5, 5))
    assert not torch.equal(twice[0], twice[1])


def test_alone_and_in_a_pipeline_the_mean_is_the_same() -> None:
    updates = make(3, N, 500)
    alone = get("dp", sigma=0.1)(updates, context()).update
    piped = parse([{"name": "dp", "sigma": 0.1}, {"name": "fedavg"}])(updates, context()).update
    assert torch.allclose(alone, piped, atol=1e-6)


def test_noise_is_fresh_every_call_and_repeatable_from_the_seed() -> None:
    rule, updates, draw = get("dp", sigma=0.1), torch.zeros(3, 100), context((0, 1, 2))
    first, second = rule(updates, draw).update, rule(updates, draw).update
    assert not torch.equal(first, second)
    assert torch.equal(first, rule(updates, context((0, 1, 2))).update)
    assert not torch.equal(rule(updates).update, rule(updates).update)


def test_an_epsilon_is_refused_where_it_would_not_hold() -> None:
    with pytest.raises(OptionError, match=r"^1\.clip: no epsilon would hold after norm_clipping"):
        parse([{"name": "norm_clipping"}, {"name": "dp", "clip": 1.0}, {"name": "atm"}])
    parse([{"name": "norm_clipping", "norm": 3.0}, {"name": "top_k"}, {"name": "dp", "clip": 1.0}, {"name": "atm"}])
    parse([{"name": "norm_clipping"}, {"name": "dp"}, {"name": "atm"}])


def test_one_noise_for_all_is_in_the_mean_as_it_is_in_every_row() -> None:
    """As the paper's authors add it: sigma, not sigma/sqrt(n), in the mean, and the same in a pipeline."""
    alone = get("dp", sigma=0.3, shared=True)(torch.zeros(N, D), context()).update
    assert float(alone.std()) == pytest.approx(0.3, rel=0.03)
    updates = make(3, N, D)
    noisy = get("dp", sigma=0.3, shared=True)(updates, context()).update
    assert torch.allclose(noisy, updates.mean(0) + alone, atol=1e-6)
    piped = parse([{"name": "dp", "sigma": 0.3, "shared": True}, {"name": "median"}])(updates, context()).update
    assert torch.allclose(piped, get("median")(updates).update + alone, atol=1e-6)
    assert torch.equal(dp(updates, 0.3, shared=True, generator=context().generator).update, noisy)


def test_no_epsilon_is_claimed_for_a_noise_that_all_share() -> None:
    with pytest.raises(OptionError, match=r"^shared: no epsilon holds"):
        get("dp", clip=1.0, shared=True)
    with pytest.raises(OptionError, match=r"^1\.clip: no epsilon would hold after dp"):
        parse([{"name": "dp", "shared": True}, {"name": "dp", "clip": 1.0}])


def test_the_option_leaves_the_names_of_older_runs_alone() -> None:
    assert "shared" not in get("dp").canonical()
    assert get("dp", shared=True).canonical()["shared"] is True


def test_without_the_accounting_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from scapegoat import accounting

    accounting._one_round.cache_clear()
    accounting._renyi_curve.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r"scapegoat-fl\[dp\]"):
        get("dp", clip=1.0)(make(0, N, 50), context())
    assert get("dp")(make(0, N, 50), context()).notes == {"sigma": 0.001}
