"""The paper's claims about running times: ratios of seconds that were measured in turn on the same rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from results.claims.evidence import Finding
from scapegoat.sweeping.costs import median_interval

COMPARABLE = 2.0


def _ratios(costs: Sequence[Mapping[str, Any]], sweep: str, one: str, other: str) -> dict[str, dict[str, Any]]:
    """Median of seconds(one) / seconds(other), round by round, for each place where both were timed."""
    seconds: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in costs:
        if row["sweep"] == sweep:
            place = f"{row['data']}, {row['model']} with {row['parameters']:,} parameters, {row['clients']} clients"
            seconds[place][row["subject"]][row["round"]] = row["seconds"]
    found = {}
    for place, by in seconds.items():
        rounds = sorted(by.get(one, {}).keys() & by.get(other, {}).keys())
        if rounds:
            found[place] = median_interval([by[one][r] / by[other][r] for r in rounds])
    return found


def _text(ratio: Mapping[str, Any]) -> str:
    if ratio["low"] is None:
        return f"{ratio['median']:.2f}"
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def atm_is_cheap(costs: Sequence[Mapping[str, Any]]) -> Finding:
    """ATM costs the server less than Median and Trimmed-mean."""
    rows, holds, fails = [], 0, 0
    for other in ("median", "trimmed_mean"):
        for place, ratio in _ratios(costs, "defense-cost", "atm", other).items():
            rows.append((place, other, _text(ratio)))
            holds += (ratio["high"] if ratio["high"] is not None else ratio["median"]) < 1
            fails += (ratio["low"] if ratio["low"] is not None else ratio["median"]) > 1
    verdict = "not tested" if not rows else "fails" if fails else "holds" if holds == len(rows) else "undecided"
    table = ("Seconds of ATM over seconds of the other", ("where", "other rule", "ratio"), tuple(rows))
    return Finding(
        "ATM is cheaper than Median and Trimmed-mean.",
        verdict,
        f"cheaper in {holds} of {len(rows)} comparisons." if rows else "no measurement.",
        (table,) if rows else (),
    )


def attack_is_practical(costs: Sequence[Mapping[str, Any]]) -> Finding:
    """FedPoisonMIA takes about as long as AGREvader."""
    ratios = _ratios(costs, "attack-cost", "fedpoisonmia", "agrevader")
    rows = tuple((place, _text(ratio)) for place, ratio in ratios.items())
    worst = max((ratio["median"] for ratio in ratios.values()), default=0.0)
    verdict = "not tested" if not rows else "holds" if worst <= COMPARABLE else "fails"
    return Finding(
        f"FedPoisonMIA takes about as long as AGREvader (read as: at most {COMPARABLE:g} times).",
        verdict,
        f"at most {worst:.2f} times as long." if rows else "no measurement.",
        (("Seconds of FedPoisonMIA over seconds of AGREvader", ("where", "ratio"), rows),) if rows else (),
    )
