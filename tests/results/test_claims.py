"""Verdicts that follow from the runs: by the paper's own settings, with exceptions named and ties counted as ties."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from results.claims import findings
from results.claims.evidence import runs_of
from results.files import Collection
from tests.results.made_up import ATTACKS, DEFENSES, collection, finding, grid


def test_nothing_is_claimed_from_nothing() -> None:
    found = findings(Collection({}, {}, (), ()))
    assert {f.verdict for f in found} == {"not tested"}
    assert not any(f.tables for f in found)


def test_the_strongest_attack_holds_only_without_a_clear_exception() -> None:
    words = "strongest attack everywhere"
    strong = collection(grid(), lambda s: 0.95 if s["attack"]["name"] == "fedpoisonmia" else 0.6)
    assert finding(strong, words).verdict == "holds"
    assert "highest mean accuracy in 4 of 4 cells" in finding(strong, words).measured

    def one_exception(s: dict[str, Any]) -> float:
        if (s["attack"]["name"], s["defense"]["name"]) == ("adaptive", "atm"):
            return 1.0
        return 0.8 if s["attack"]["name"] == "fedpoisonmia" else 0.6

    refuted = finding(collection(grid(), one_exception), words)
    assert refuted.verdict == "fails"
    assert refuted.tables[0][2][0][1:3] == ("atm", "adaptive")
    equal = collection(grid(), lambda s: 0.7)
    assert finding(equal, words).verdict == "undecided"


def test_atm_does_not_withstand_an_adaptive_attack_that_gets_through() -> None:
    words = "withstands the adaptive attack"
    through = collection(grid(), lambda s: 0.98 if s["attack"]["name"] == "adaptive" else 0.7)
    assert finding(through, words).verdict == "fails"

    def stopped(s: dict[str, Any]) -> float:
        return 0.6 if s["defense"]["name"] == "atm" else 0.9

    assert finding(collection(grid(), stopped), words).verdict == "holds"


def test_the_best_defense_is_a_matter_of_most_cells() -> None:
    words = "ATM is the best defense"
    assert (
        finding(collection(grid(), lambda s: 0.6 if s["defense"]["name"] == "atm" else 0.9), words).verdict == "holds"
    )
    assert (
        finding(collection(grid(), lambda s: 0.6 if s["defense"]["name"] == "median" else 0.9), words).verdict
        == "fails"
    )
    assert finding(collection(grid(), lambda s: 0.7), words).verdict == "undecided"


def test_a_fall_with_the_number_of_clients_is_seen_and_its_absence_too() -> None:
    words = "falls with the number of clients"
    specs = [s for n in (8, 10, 15, 20, 30) for s in grid(clients=n)]
    falling = collection(specs, lambda s: 1.0 - s["federation"]["clients"] / 60)
    found = finding(falling, words)
    assert found.verdict == "holds"
    assert found.tables[0][1] == ("attack", "defense", "8", "10", "15", "20", "30")
    assert len(found.tables[0][2]) == len(ATTACKS) * len(DEFENSES)
    rising = collection(specs, lambda s: 0.5 + s["federation"]["clients"] / 60)
    assert finding(rising, words).verdict == "fails"


def test_more_malicious_clients_are_compared_although_the_trim_follows_them() -> None:
    specs = []
    for malicious in (1, 2, 3):
        for plain in grid(malicious=malicious):
            if plain["defense"]["name"] in ("atm", "trimmed_mean"):
                plain["defense"]["trim"] = malicious
            specs.append(plain)
    found = finding(collection(specs, lambda s: 0.5 + 0.15 * s["federation"]["malicious"]), "rises with")
    assert found.verdict == "holds"


@pytest.mark.parametrize(
    ("partial", "verdict"), [(0.93, "holds"), (0.89, "holds where it can be told"), (0.6, "fails")]
)
def test_partial_knowledge_within_eight_points(partial: float, verdict: str) -> None:
    specs = []
    for knowledge in ("full", "partial"):
        for plain in grid(clients=50, malicious=10):
            if plain["attack"]["name"] == "fedpoisonmia":
                plain["attack"]["knowledge"] = knowledge
                specs.append(plain)
    found = finding(
        collection(specs, lambda s: partial if s["attack"]["knowledge"] == "partial" else 0.95), "partial knowledge"
    )
    assert found.verdict == verdict
    assert "the same federation of 50" in found.measured


def test_pairs_are_of_the_same_seed_and_seeds_narrow_the_interval() -> None:
    one = [s | {"seed": 0} for s in copy.deepcopy(grid())]
    three = [s | {"seed": k} for k in range(3) for s in copy.deepcopy(grid())]

    # Seeds differ a lot, the attacks of one seed by a constant: only pairing by seed can see it.
    def accuracy(s: dict[str, Any]) -> float:
        return 0.6 + 0.1 * s["seed"] + (0.10 if s["attack"]["name"] == "fedpoisonmia" else 0.0)

    words = "strongest attack everywhere"
    assert finding(collection(one, accuracy), words).verdict == "undecided"
    assert finding(collection(three, accuracy), words).verdict == "holds"


def test_cheap_is_a_ratio_round_by_round() -> None:
    def timed(atm: float) -> Collection:
        rows = [
            {"sweep": "defense-cost", "data": "d", "model": "m", "parameters": 10, "clients": 10, "round": r}
            | {"subject": subject, "seconds": seconds * (1 + r)}
            for r in range(12)
            for subject, seconds in (("atm", atm), ("median", 1.0), ("trimmed_mean", 2.0))
        ]
        return Collection({}, {}, (), tuple(rows))

    words = "cheaper than Median"
    assert finding(timed(0.5), words).verdict == "holds"
    assert finding(timed(1.5), words).verdict == "fails"
    assert "1.50 [1.50, 1.50]" in finding(timed(1.5), words).tables[0][2][0]


def ours(s: dict[str, Any], high: float = 0.95, low: float = 0.6) -> float:
    return high if s["attack"]["name"] == "fedpoisonmia" else low


def with_atm(specs: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The runs under ATM, with these options."""
    chosen = [copy.deepcopy(s) for s in specs if s["defense"]["name"] == "atm"]
    for s in chosen:
        s["defense"] |= options
    return chosen


def test_options_are_named_where_they_are_not_the_usual_ones() -> None:
    specs = [
        {"defense": {"name": "atm"}},
        {"defense": {"name": "atm", "trim": 2}},
        {"defense": {"name": "atm", "trim": 2}, "federation": {"malicious": 2}},
        {"defense": {"name": "atm", "trim": 1}, "federation": {"malicious": 2}},
        {"defense": [{"name": "norm_clipping", "norm": 3.0}, {"name": "atm"}]},
    ]
    runs = [runs_of(collection([s], lambda s: 0.7))[0] for s in specs]
    assert [r.rule for r in runs] == ["atm", "atm (trim=2)", "atm", "atm (trim=1)", "norm_clipping (norm=3.0) + atm"]
    assert [r.in_the_paper for r in runs] == [True, False, True, False, False]


@pytest.mark.parametrize(
    "change",
    [
        {"federation": {"rounds": 150, "server": {"optimizer": "adam", "lr": 0.001}}},
        {"federation": {"rounds": 150, "clients": 12}},
        {"federation": {"rounds": 150, "partition": {"name": "dirichlet", "alpha": 0.5}}},
        {"attack": {"name": "fedpoisonmia", "gamma": 0.2}},
        {"attack": {"name": "fedpoisonmia", "targets": 50}},
        {"defense": {"name": "memory_atm"}},
    ],
)
def test_what_the_paper_does_not_have_is_beyond_it(change: dict[str, Any]) -> None:
    plain = {"attack": {"name": "fedpoisonmia"}, "defense": {"name": "atm"}, "federation": {"rounds": 150}}
    assert runs_of(collection([plain], lambda s: 0.7))[0].in_the_paper
    assert not runs_of(collection([plain | change], lambda s: 0.7))[0].in_the_paper


def test_an_exception_beyond_the_papers_settings_is_told_and_not_judged() -> None:
    slow = grid(server={"optimizer": "adam", "lr": 0.001})
    odd = with_atm(grid(), trim=2)

    def accuracy(s: dict[str, Any]) -> float:
        inside = "server" not in s["federation"] and "trim" not in s["defense"]
        return ours(s) if inside else ours(s, 0.6, 0.95)

    found = finding(collection([*grid(), *slow, *odd], accuracy), "strongest attack everywhere")
    assert found.verdict == "holds"
    assert "highest mean accuracy in 4 of 4 cells" in found.measured
    assert "Beyond the paper's settings, not judged: highest in 0 of 5 cells" in found.measured
    ((title, _, rows),) = found.tables
    assert title.startswith("Beyond the paper's settings")
    assert {"atm", "atm (trim=2)"} <= {row[1] for row in rows}


def test_ties_are_ties_and_cells_without_every_attack_are_left_out() -> None:
    def accuracy(s: dict[str, Any]) -> float:
        return 0.95 if (s["attack"]["name"], s["defense"]["name"]) == ("adaptive", "median") else ours(s)

    specs = [s for s in grid() if (s["attack"]["name"], s["defense"]["name"]) != ("passive", "atm")]
    found = finding(collection(specs, accuracy), "strongest attack everywhere")
    assert "highest mean accuracy in 2 of 3 cells (setting x defense), level with the highest in 1" in found.measured
    assert "Left out: 1 cells in which not all 4 other attacks were run" in found.measured
    assert found.verdict == "holds where it can be told"


def test_a_cell_counts_once_at_its_longest() -> None:
    def accuracy(s: dict[str, Any]) -> float:
        return ours(s) if s["federation"]["rounds"] == 400 else ours(s, 0.6, 0.95)

    found = finding(collection([*grid(), *grid(rounds=400)], accuracy), "strongest attack everywhere")
    assert "in 4 of 4 cells" in found.measured
    assert found.verdict == "holds"


def masks(**federation: Any) -> list[dict[str, Any]]:
    return [
        copy.deepcopy(s) | {"attack": {"name": "fedpoisonmia", "selection": selection}}
        for s in grid(**federation)
        if s["attack"]["name"] == "fedpoisonmia"
        for selection in ("greedy", "random")
    ]


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (0.1, "holds; by over 20 points: fails"),
        (0.4, "holds; by over 20 points: holds"),
        (-0.4, "fails; by over 20 points: fails"),
    ],
)
def test_greedy_masks_are_judged_by_direction_and_by_size(gain: float, verdict: str) -> None:
    def accuracy(s: dict[str, Any]) -> float:
        return 0.55 + gain if s["attack"]["selection"] == "greedy" else 0.55

    many = [s | {"seed": k} for k in range(4) for s in masks()]
    assert finding(collection(many, accuracy), "Greedy mask").verdict == verdict


def test_greedy_masks_under_another_trim_are_beside_the_verdict() -> None:
    slow = with_atm(masks(server={"optimizer": "adam", "lr": 0.001}), trim=2)

    def accuracy(s: dict[str, Any]) -> float:
        greedy = s["attack"]["selection"] == "greedy"
        return 0.55 + 0.4 * (greedy == ("server" not in s["federation"]))

    found = finding(collection([*masks(), *slow], accuracy), "Greedy mask")
    assert found.verdict.startswith("holds;")
    assert [title for title, _, _ in found.tables] == ["Greedy against random", "Beyond the paper's settings"]
    assert [row[1] for row in found.tables[1][2]] == ["atm (trim=2)"]


def test_a_loss_of_test_accuracy_is_named_where_it_is() -> None:
    def fitted(malicious: int) -> list[dict[str, Any]]:
        return [s | {"defense": s["defense"] | ({"trim": malicious} if s["defense"]["name"] == "atm" else {})}
                for s in grid(malicious=malicious) if s["defense"]["name"] in ("atm", "fedavg")]  # fmt: skip

    def tested(s: dict[str, Any]) -> float:
        return 0.5 if s["defense"].get("trim") == 3 else 0.6

    specs = [*fitted(1), *fitted(2), *fitted(3)]
    found = finding(collection(specs, lambda s: 0.7, tested), "costs no test accuracy")
    assert found.verdict == "mixed"
    assert "3 of 10 malicious, 150 rounds: +10.0 [" in found.measured
    assert "2 of 10 malicious" not in found.measured
    assert finding(collection(fitted(3), lambda s: 0.7, tested), "costs no test accuracy").verdict == "fails"
    gains = collection(fitted(3), lambda s: 0.7, lambda s: 0.9 - tested(s))
    assert finding(gains, "costs no test accuracy").verdict == "holds"


@pytest.mark.parametrize(("last", "verdict"), [(0.9, "holds"), (0.82, "undecided"), (0.6, "fails")])
def test_high_at_the_largest_bias_is_about_its_height_not_about_a_fall(last: float, verdict: str) -> None:
    specs = [s for beta in (0.1, 0.5, 0.9) for s in grid(partition={"name": "label_bias", "beta": beta})]

    def accuracy(s: dict[str, Any]) -> float:
        return last if s["federation"]["partition"]["beta"] == 0.9 else 0.98

    found = finding(collection(specs, accuracy), "even at beta = 0.9")
    assert found.verdict == verdict
    assert f"from 0.980 to {last:.3f}" in found.measured


def test_participation_shows_what_it_compared() -> None:
    specs = [*grid(), *grid(fraction=1.0)]

    def accuracy(s: dict[str, Any]) -> float:
        return 0.9 if "fraction" in s["federation"] and s["defense"]["name"] == "median" else 0.7

    found = finding(collection(specs, accuracy), "C = 0.8 and C = 1.0")
    assert [len(rows) for _, _, rows in found.tables] == [len(ATTACKS), len(ATTACKS)]
    assert found.sources
