"""The paper's claims about attacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

from scapegoat.experiments.plans import paper
from scapegoat.report.claims.evidence import (
    Comparison,
    Finding,
    Run,
    compare,
    judge,
    points,
    setting,
    share,
    tally,
)
from scapegoat.report.estimate import over_seeds

OURS = "fedpoisonmia"
BASELINES = ("passive", "gradient_ascent", "agrevader", "adaptive")
LISTED = 12


def ours(run: Run) -> bool:
    """FedPoisonMIA as the paper defines it."""
    return run.attack == OURS and run.spec["attack"].get("selection", "greedy") == "greedy"


def strongest(runs: Sequence[Run]) -> Finding:
    """FedPoisonMIA reaches the highest attack accuracy in every cell."""
    found = [c for name in BASELINES for c in compare(runs, ["attack"], ours, lambda r, n=name: r.attack == n)]  # type: ignore[misc]
    differences = [c.difference(comparisons=len(found)) for c in found]
    by_cell: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for c in found:
        by_cell[setting(c.one), c.one.defense].append(c)
    highest = sum(all(c.difference().value > 0 for c in cell) for cell in by_cell.values())
    beaten = [(c, d) for c, d in zip(found, differences, strict=True) if d.high is not None and d.high < 0]
    beaten.sort(key=lambda item: item[1].value)
    rows = tuple(
        (setting(c.one), c.one.defense, c.other.attack, *(share(s) for s in c.sides()), points(d))
        for c, d in beaten[:LISTED]
    )
    head = ("setting", "defense", "stronger attack", "FedPoisonMIA", "the other", "difference, points")
    title = f"Where another attack is clearly stronger ({len(beaten)} comparisons; the largest {len(rows)})"
    return Finding(
        "FedPoisonMIA is the strongest attack everywhere.",
        judge(differences, everywhere=True),
        f"highest mean accuracy in {highest} of {len(by_cell)} cells (setting x defense); {tally(differences)}."
        if found
        else "no runs.",
        ((title, head, rows),) if rows else (),
        _sources(found),
    )


def greedy_over_random(runs: Sequence[Run]) -> Finding:
    """Greedily chosen masks beat random ones."""
    found = compare(
        runs, ["attack.selection"], ours, lambda r: r.attack == OURS and r.spec["attack"].get("selection") == "random"
    )
    differences = [c.difference(comparisons=len(found)) for c in found]
    rows = tuple(
        (setting(c.one), c.one.defense, *(share(s) for s in c.sides()), points(d))
        for c, d in zip(found, differences, strict=True)
    )
    gain = f"mean gain {100 * mean(d.value for d in differences):+.1f} points; " if found else ""
    return Finding(
        "Greedy mask selection beats random selection (the paper: by over 20%).",
        judge(differences, everywhere=True),
        f"{gain}{tally(differences)}.",
        (("Greedy against random", ("setting", "defense", "greedy", "random", "difference, points"), rows),)
        if rows
        else (),
        _sources(found),
    )


def iid_leaks_more(runs: Sequence[Run]) -> Finding:
    """Attacks are more accurate when clients are alike."""
    found = compare(
        runs,
        ["federation.partition"],
        lambda r: r.partition == "iid",
        lambda r: r.partition == "non-iid 0.5",
    )
    differences = [c.difference(comparisons=len(found)) for c in found]
    rows = []
    for attack in dict.fromkeys([*BASELINES, OURS]):
        of = [d.value for c, d in zip(found, differences, strict=True) if c.one.attack == attack]
        if of:
            rows.append((attack, f"{100 * mean(of):+.1f}", f"{sum(v > 0 for v in of)} of {len(of)}"))
    own = paper.printed("main_c08")
    pairs = [(v, own[d, a, f, "non_iid"]) for (d, a, f, p), v in own.items() if p == "iid"]
    printed = f"In the paper's own main table IID is higher in {sum(a > b for a, b in pairs)} of {len(pairs)} cells."
    return Finding(
        "IID clients leak more than non-IID clients.",
        judge(differences, everywhere=False),
        f"{tally(differences)}. {printed}",
        (("IID minus non-IID (0.5), by attack", ("attack", "mean difference, points", "IID higher"), tuple(rows)),)
        if rows
        else (),
        _sources(found),
    )


def partial_within_eight(runs: Sequence[Run]) -> Finding:
    """Partial knowledge costs FedPoisonMIA at most 8 points."""

    def knows(level: str) -> Callable[[Run], bool]:
        return lambda r: ours(r) and r.spec["attack"].get("knowledge", "full") == level

    def big(run: Run) -> bool:
        return bool(run.federation["clients"] == 50)

    same = compare(runs, ["attack.knowledge"], lambda r: knows("full")(r) and big(r), knows("partial"))
    apart = ["attack.knowledge", "federation.clients", "federation.malicious", "defense.trim"]
    main = [
        c
        for c in compare(
            runs, apart, lambda r: knows("full")(r) and not big(r), lambda r: knows("partial")(r) and big(r)
        )
        if (c.one.federation["clients"], c.one.federation["malicious"]) == (10, 1)
    ]
    tables = []
    words = []
    verdicts = []
    for what, found in (("the paper's comparison (10 clients)", main), ("the same federation of 50", same)):
        if not found:
            continue
        losses = [c.difference(comparisons=len(found)) for c in found]
        worst = max(losses, key=lambda d: d.value)
        words.append(f"against full knowledge in {what}: largest loss {points(worst)} points over {len(found)} cells")
        over = sum(d.low is not None and d.low > 0.08 for d in losses)
        under = sum(d.high is not None and d.high <= 0.08 for d in losses)
        verdicts.append("fails" if over else "holds" if under == len(losses) else "holds where it can be told")
        rows = tuple(
            (setting(c.other), c.one.defense, *(share(s) for s in c.sides()), points(d))
            for c, d in zip(found, losses, strict=True)
        )
        tables.append((f"Against {what}", ("setting", "defense", "full", "partial", "loss, points"), rows))
    verdict = next((v for v in ("fails", "holds where it can be told", "holds") if v in verdicts), "not tested")
    return Finding(
        "With partial knowledge FedPoisonMIA loses at most 8 points.",
        verdict,
        "; ".join(words) + "." if words else "no runs.",
        tuple(tables),
        _sources([*main, *same]),
    )


def trend(
    runs: Sequence[Run],
    *,
    claim: str,
    path: str,
    apart: Sequence[str],
    value: Callable[[Run], float],
    falls: bool,
    wanted: Callable[[Run], bool] = lambda _: True,
    keeps: bool = False,
) -> Finding:
    """Accuracy from the smallest to the largest value of a key, by attack and defense.

    With `keeps` the claim is that nothing changes for the worse: only a clear fall refutes it.
    """
    chosen = [r for r in runs if wanted(r)]
    series: dict[tuple[str, str, str], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    ends = []
    for run in chosen:
        series[_without(run, path), run.attack, run.defense][value(run)].append(run)
    rows, heads = [], sorted({x for of in series.values() if len(of) > 2 for x in of})
    for (_, attack, defense), of in sorted(series.items()):
        if len(of) <= 2:
            continue
        low, high = min(of), max(of)
        first, last = (low, high) if falls else (high, low)
        mine = {r.name for rs in of.values() for r in rs}
        ends += compare(
            [r for r in chosen if r.name in mine],
            apart,
            lambda r, x=first: value(r) == x,  # type: ignore[misc]
            lambda r, x=last: value(r) == x,  # type: ignore[misc]
        )
        means = {x: over_seeds([r.figures["accuracy_best"] for r in rs]).value for x, rs in of.items()}
        rows.append((attack, defense, *(f"{means[x]:.3f}" if x in means else "–" for x in heads)))
    differences = [c.difference(comparisons=len(ends)) for c in ends]
    table = ("Attack accuracy", ("attack", "defense", *(f"{x:g}" for x in heads)), tuple(rows))
    fall = mean(d.value for d in differences) if differences else 0.0
    change = f"mean change from first to last {100 * (-fall if falls else fall):+.1f} points; " if differences else ""
    verdict = judge(differences, everywhere=keeps)
    if keeps and verdict in ("undecided", "holds where it can be told"):
        verdict = "holds"
    return Finding(claim, verdict, f"{change}{tally(differences)}.", (table,) if rows else (), _sources(ends))


def all_trends(runs: Sequence[Run]) -> list[Finding]:
    """What the paper's figures are said to show."""

    def not_iid(run: Run) -> bool:
        return run.partition.startswith("non-iid")

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
            value=lambda r: float(r.federation["partition"].get("beta", 0.0)),
            falls=True,
            wanted=lambda r: not_iid(r) and r.attack in ("gradient_ascent", "agrevader"),
        ),
        trend(
            runs,
            claim="FedPoisonMIA keeps its accuracy as clients become more unequal.",
            keeps=True,
            path="partition",
            apart=["federation.partition"],
            value=lambda r: float(r.federation["partition"].get("beta", 0.0)),
            falls=False,
            wanted=lambda r: not_iid(r) and ours(r),
        ),
    ]


def _without(run: Run, path: str) -> str:
    """The setting with the varied key left out."""
    federation = {k: v for k, v in run.federation.items() if k != path}
    attack = {k: v for k, v in run.spec["attack"].items() if k != path}
    return repr((run.spec["data"], run.spec["model"], federation, attack))


def _sources(found: Sequence[Comparison]) -> frozenset[str]:
    return frozenset(run.name for c in found for pair in c.pairs for run in pair)
