"""The paper's claims about its figures: how accuracy changes with one number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from results.claims import scope
from results.claims.attacks import ours
from results.claims.evidence import (
    Comparison,
    Finding,
    Run,
    Table,
    above,
    compare,
    differences,
    judge,
    share,
    tally,
)
from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import over_seeds, stretched

HIGH = 0.80
EXTREME = max(scope.BIASES)

# By what a series has in common, attack and rule; then by the number that varies.
Series = Mapping[tuple[str, str, str], Mapping[float, Sequence[Run]]]


def trend(
    runs: Sequence[Run],
    *,
    claim: str,
    path: str,
    apart: Sequence[str],
    value: Callable[[Run], float],
    falls: bool,
    wanted: Callable[[Run], bool] = lambda _: True,
) -> Finding:
    """Accuracy from the smallest to the largest value of a key, by attack and defense."""
    ends: list[Comparison] = []
    found = _series([r for r in runs if wanted(r)], path, value)
    for of in found.values():
        low, high = min(of), max(of)
        first, last = (low, high) if falls else (high, low)
        ends += compare(
            [*of[first], *of[last]],
            apart,
            lambda r, x=first: value(r) == x,  # type: ignore[misc]
            lambda r, x=last: value(r) == x,  # type: ignore[misc]
        )
    changes = differences(ends)
    fall = mean(d.value for d in changes) if changes else 0.0
    change = f"mean change from first to last {100 * (-fall if falls else fall):+.1f} points; " if changes else ""
    return Finding(
        claim, judge(changes, everywhere=False), f"{change}{tally(changes)}.", _series_table(found), _behind(found)
    )


def _series(runs: Sequence[Run], path: str, value: Callable[[Run], float]) -> Series:
    """Runs of the paper's settings that differ in one key, by its values; at least three of them."""
    found: dict[tuple[str, str, str], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.in_the_paper:
            found[_without(run, path), run.attack, run.rule][value(run)].append(run)
    return {key: of for key, of in sorted(found.items()) if len(of) > 2}


def _series_table(found: Series) -> tuple[Table, ...]:
    heads = sorted({x for of in found.values() for x in of})
    rows = []
    for (_, attack, rule), of in found.items():
        means = {x: _mean(rs).value for x, rs in of.items()}
        rows.append((attack, rule, *(f"{means[x]:.3f}" if x in means else "–" for x in heads)))
    head = ("attack", "defense", *(f"{x:g}" for x in heads))
    return (("Attack accuracy", head, tuple(rows)),) if rows else ()


def _behind(found: Series) -> frozenset[str]:
    return frozenset(run.name for of in found.values() for rs in of.values() for run in rs)


def high_at_the_extreme(runs: Sequence[Run]) -> Finding:
    """FedPoisonMIA has a high accuracy where clients are most unequal, whatever it was before."""
    found = _series([r for r in runs if ours(r) and r.partition.startswith("non-iid")], "partition", _bias)
    ends = [(rule, _mean(of[min(of)]), _mean(of[max(of)])) for (_, _, rule), of in found.items() if EXTREME in of]
    last = [stretched(end, len(ends)) for _, _, end in ends]
    words = "no runs."
    if ends:
        least = min(last, key=lambda e: e.value)
        rule, start, end = min(ends, key=lambda item: item[2].value - item[1].value)
        words = (
            f"at beta {EXTREME:g} the least accuracy is {share(least)}; clearly over {HIGH:g} under "
            f"{sum(above(e, HIGH) for e in last)} of {len(last)} rules. From the smallest beta on it changes by "
            f"{100 * mean(b.value - a.value for _, a, b in ends):+.1f} points on average; worst for the attack under "
            f"{rule}, from {start.value:.3f} to {end.value:.3f}."
        )
    return Finding(
        f"FedPoisonMIA has a high accuracy even at beta = {EXTREME:g} (read as: over {HIGH:g}).",
        judge(last, everywhere=True, limit=HIGH),
        words,
        _series_table(found),
        _behind(found),
    )


def _mean(runs: Sequence[Run]) -> Estimate:
    return over_seeds([run.figures["accuracy_best"] for run in runs])


def _bias(run: Run) -> float:
    return float(run.federation["partition"].get("beta", 0.0))


def all_trends(runs: Sequence[Run]) -> list[Finding]:
    """What the paper's figures are said to show."""
    return [
        trend(
            runs,
            claim="Attack accuracy falls with the number of clients.",
            path="clients",
            apart=["federation.clients"],
            value=lambda r: float(r.federation["clients"]),
            falls=True,
            wanted=lambda r: r.federation["malicious"] == 1,
        ),
        trend(
            runs,
            claim="Attack accuracy falls with the number of targets.",
            path="targets",
            apart=["attack.targets"],
            value=lambda r: float(r.spec["attack"]["targets"]),
            falls=True,
        ),
        trend(
            runs,
            claim="Attack accuracy rises with the number of malicious clients.",
            path="malicious",
            apart=["federation.malicious", "defense.trim"],
            value=lambda r: float(r.federation["malicious"]),
            falls=False,
            wanted=lambda r: r.federation["clients"] == 10,
        ),
        trend(
            runs,
            claim="Gradient ascent and AGREvader lose accuracy as clients become more unequal.",
            path="partition",
            apart=["federation.partition"],
            value=_bias,
            falls=True,
            wanted=lambda r: r.partition.startswith("non-iid") and r.attack in ("gradient_ascent", "agrevader"),
        ),
        high_at_the_extreme(runs),
    ]


def _without(run: Run, path: str) -> str:
    """The setting with the varied key left out."""
    federation = {k: v for k, v in run.federation.items() if k != path}
    attack = {k: v for k, v in run.spec["attack"].items() if k != path}
    return repr((run.spec["data"], run.spec["model"], federation, attack))
