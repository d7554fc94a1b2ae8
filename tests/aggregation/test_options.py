"""Options are checked before a run, with one line that names the key, the value and what is allowed."""

from __future__ import annotations

import contextlib

import pytest

from scapegoat.aggregation import atm, get, registry, trim_count, trimmed_mean
from scapegoat.errors import OptionError
from tests.aggregation.inputs import make

PAPER = {"fedavg", "median", "trimmed_mean", "atm", "dp", "top_k", "multi_krum", "fang", "deepsight"}
BEYOND = {
    "krum",
    "geometric_median",
    "norm_clipping",
    "bulyan",
    "flame",
    "fltrust",
    "clipped_atm",
    "memory_atm",
    "reputation_atm",
    "nearest_neighbour_mixing",
    "bucketing",
    "centered_clipping",
    "client_momentum",
    "meamed",
    "dnc",
    "arc",
    "mda",
    "foolsgold",
    "fldetector",
    "signguard",
}


def test_the_rules_there_are() -> None:
    assert set(registry.names()) >= PAPER | BEYOND
    assert all(cls.__doc__ for _, cls in registry.classes())


@pytest.mark.parametrize(
    ("trim", "n", "b"), [(1, 8, 1), (3, 7, 3), (0.1, 8, 1), (0.1, 50, 5), (0.25, 8, 2), (0.4, 9, 4)]
)
def test_a_trim_is_a_number_or_a_fraction(trim: float, n: int, b: int) -> None:
    assert trim_count(trim, n) == b
    assert int(atm(make(0, n, 20), trim).kept.sum()) == n - 2 * b
    get("atm", trim=trim).check(n)


@pytest.mark.parametrize("trim", [0, -1, 0.5, 0.9, 1.5, True, "1", float("nan"), float("inf"), None])
@pytest.mark.parametrize("name", ["atm", "clipped_atm", "memory_atm", "reputation_atm", "trimmed_mean"])
def test_anything_else_is_refused(name: str, trim: object) -> None:
    with pytest.raises(OptionError, match=r"^trim: .*a whole number from 1, or a fraction between 0 and 0\.5"):
        get(name, trim=trim)
    with pytest.raises(OptionError):
        trimmed_mean(make(0, 5, 20), trim)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "options", "enough", "says"),
    [
        ("atm", {"trim": 3}, 7, "trim: 3 is too many for 6 updates per step: 2b < n is expected, at most 2"),
        ("trimmed_mean", {"trim": 1}, 3, "trim: 1 is too many for 2 updates per step: 2b < n is expected, no trim"),
        (
            "krum",
            {"malicious": 2},
            5,
            "malicious: 2 is too many for 4 updates per step: Krum with n-f-2 needs at least 5",
        ),
        ("multi_krum", {"malicious": 2, "neighbours": "n-f-1"}, 4, "malicious: 2 is too many for 3 updates per step"),
        ("bulyan", {"malicious": 2}, 11, "Bulyan (n >= 4f + 3) needs at least 11"),
        ("fang", {"malicious": 2}, 5, "malicious: 2 is too many for 4 updates per step: both may drop 4"),
        ("nearest_neighbour_mixing", {"malicious": 2}, 5, "nearest_neighbour_mixing (n > 2f) needs at least 5"),
        ("meamed", {"malicious": 2}, 5, "meamed (n > 2f) needs at least 5"),
        ("dnc", {"malicious": 2, "filtering": 1.5}, 7, "dnc (n > 2 x 3 left out) needs at least 7"),
        ("arc", {"malicious": 2}, 5, "arc (n > 2f) needs at least 5"),
        ("mda", {"malicious": 2}, 5, "mda (n > 2f) needs at least 5"),
        *((name, {}, 2, f"{name} compares updates: 1 per step") for name in ("foolsgold", "fldetector", "signguard")),
        ("bucketing", {"size": 3}, 4, "size: 3 makes one bucket of 3 updates per step"),
        ("centered_clipping", {}, 2, "centered_clipping compares updates: 1 per step"),
        ("multi_krum", {"select": 9}, 9, "select: 9 is too many: at most 8, the updates of a step"),
        ("norm_clipping", {}, 2, "norm_clipping compares updates: 1 per step is too few, at least 2 are needed"),
        *((name, {}, 2, f"{name} compares updates: 1 per step") for name in ("median", "geometric_median")),
        *((name, {}, 2, f"{name} compares updates: 1 per step") for name in ("flame", "deepsight")),
    ],
)
def test_too_few_updates_a_step(name: str, options: dict[str, object], enough: int, says: str) -> None:
    rule = get(name, **options)
    rule.check(enough)
    with pytest.raises(OptionError) as caught:
        rule.check(enough - 1)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("trim", "n", "says"),
    [
        (0.49, 8, "trim: 0.49 makes b = 4 of n = 8 updates per step: 2b < n is expected, at most 3/8"),
        (0.1, 1, "trim: 0.1 makes b = 1 of n = 1 updates per step: 2b < n is expected, no trim is possible"),
        (0.1, 2, "no trim is possible"),
    ],
)
@pytest.mark.parametrize("name", ["atm", "clipped_atm", "memory_atm", "reputation_atm", "trimmed_mean"])
def test_a_fraction_that_leaves_nobody_is_refused_as_a_number_is(name: str, trim: float, n: int, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        get(name, trim=trim).check(n)
    assert says in str(caught.value)


@pytest.mark.parametrize("n", range(3, 30))
def test_the_largest_fraction_that_the_refusal_names_is_accepted(n: int) -> None:
    get("atm", trim=((n - 1) // 2) / n).check(n)


def test_only_rules_that_need_no_others_take_one_update_a_step() -> None:
    alone = []
    for name in registry.names():
        with contextlib.suppress(OptionError):
            get(name).check(1)
            alone.append(name)
    assert alone == ["client_momentum", "dp", "fedavg", "fltrust", "top_k"]
    get("norm_clipping", norm=1.0).check(1)


@pytest.mark.parametrize("select", [0, -1, 1.5, True, "3", float("nan"), float("inf"), None])
def test_a_selection_that_is_none_is_one_readable_line(select: object) -> None:
    with pytest.raises(OptionError) as caught:
        get("multi_krum", select=select)
    wanted = "must be a whole number from 1, or a fraction between 0 and 1"
    assert str(caught.value) == f"select: {select!r} is not allowed: {wanted}"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dp", {"sigma": -1}),
        ("dp", {"clip": 0}),
        ("dp", {"delta": 1.0}),
        ("top_k", {"fraction": 0}),
        ("memory_atm", {"beta": 1.0}),
        ("client_momentum", {"beta": 1.0}),
        ("reputation_atm", {"hold": 1.0}),
        ("multi_krum", {"select": 0}),
        ("multi_krum", {"select": 1.5}),
        ("fang", {"method": "all"}),
        ("deepsight", {"min_cluster_size": 1}),
        ("norm_clipping", {"norm": float("inf")}),
        ("median", {"trim": 1}),
        ("nearest_neighbour_mixing", {"malicious": -1}),
        ("bucketing", {"size": 0}),
        ("meamed", {"malicious": -1}),
        ("dnc", {"filtering": 0}),
        ("dnc", {"coordinates": 0}),
        ("dnc", {"iterations": 0}),
        ("centered_clipping", {"radius": 0}),
        ("arc", {"malicious": -1}),
        ("mda", {"malicious": 21}),
        ("foolsgold", {"confidence": 0}),
        ("fldetector", {"window": 0}),
        ("signguard", {"longest": 0.5}),
        ("signguard", {"coordinates": 0}),
        ("centered_clipping", {"iterations": 0}),
    ],
)
def test_wrong_options_name_their_key(name: str, options: dict[str, object]) -> None:
    with pytest.raises(OptionError) as caught:
        get(name, **options)
    assert str(caught.value).startswith(next(iter(options)))


def test_a_live_round_with_too_few_updates_trims_what_it_can() -> None:
    """A spec is checked beforehand; a round in which clients drop out must go on."""
    assert atm(make(0, 4, 20), trim=3).notes == {"trim": 1}
    assert atm(make(0, 1, 20)).kept.tolist() == [True]


def test_canonical_options_read_back() -> None:
    for name in registry.names():
        rule = get(name)
        assert registry.parse(rule.canonical()) == rule
