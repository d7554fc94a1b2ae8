"""The paper's claims about attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from results.claims.evidence import (
    BEYOND,
    Comparison,
    Finding,
    Run,
    Table,
    above,
    aside,
    below,
    cells,
    compare,
    differences,
    judge,
    place,
    points,
    ranks,
    setting,
    share,
    sources,
    split,
    tally,
)
from scapegoat.sweeping import paper

OURS = "fedpoisonmia"
BASELINES = ("passive", "gradient_ascent", "agrevader", "adaptive")
LISTED = 12
GAIN = 0.20


def ours(run: Run) -> bool:
    """FedPoisonMIA as the paper defines it."""
    return run.attack == OURS and run.spec["attack"].get("selection", "greedy") == "greedy"


def as_defined(runs: Sequence[Run]) -> list[Run]:
    """Without FedPoisonMIA's random masks, which are there for one comparison only."""
    return [r for r in runs if r.attack != OURS or ours(r)]


def strongest(runs: Sequence[Run]) -> Finding:
    """FedPoisonMIA reaches the highest attack accuracy in every cell."""
    found = [c for name in BASELINES for c in compare(runs, ["attack"], ours, lambda r, n=name: r.attack == n)]  # type: ignore[misc]
    whole = _whole(cells((c for c in found if c.in_the_paper), lambda c: (c.one,)))
    beyond = _whole(cells((c for c in found if not c.in_the_paper), lambda c: (c.one,)))
    inside = [c for cell in whole for c in cell]
    outside = [c for cell in beyond for c in cell]
    tables = [
        *_stronger("Where another attack is clearly stronger", inside),
        *_stronger(f"{BEYOND}: where another attack is clearly stronger", outside),
    ]
    words = "no runs."
    if inside:
        first, level = ranks(whole)
        words = (
            f"highest mean accuracy in {first} of {len(whole)} cells (setting x defense), level with the highest in "
            f"{level}; {tally(differences(inside))}."
        )
    here = [r for r in runs if ours(r) and r.in_the_paper]
    left_out = len({place(r) for r in here}) - len(whole)
    if left_out:
        words += f" Left out: {left_out} cells in which not all {len(BASELINES)} other attacks were run."
    if outside:
        first, level = ranks(beyond)
        words += aside(f"highest in {first} of {len(beyond)} cells, level in {level}; {tally(differences(outside))}")
    return Finding(
        "FedPoisonMIA is the strongest attack everywhere.",
        judge(differences(inside), everywhere=True),
        words,
        tuple(tables),
        sources([*inside, *outside]) | {r.name for r in here},
    )


def _whole(found: Sequence[list[Comparison]]) -> list[list[Comparison]]:
    """Cells in which every other attack was run: the highest of a few says little."""
    return [cell for cell in found if {c.other.attack for c in cell} == set(BASELINES)]


def _stronger(title: str, found: Sequence[Comparison]) -> list[Table]:
    beaten = [(c, d) for c, d in zip(found, differences(found), strict=True) if below(d)]
    beaten.sort(key=lambda item: item[1].value)
    rows = tuple(
        (setting(c.one), c.one.rule, c.other.attack, *(share(s) for s in c.sides()), points(d))
        for c, d in beaten[:LISTED]
    )
    head = ("setting", "defense", "stronger attack", "FedPoisonMIA", "the other", "difference, points")
    return [(f"{title} ({len(beaten)} comparisons; the largest {len(rows)})", head, rows)] if rows else []


def greedy_over_random(runs: Sequence[Run]) -> Finding:
    """Greedily chosen masks beat random ones, by over 20 points."""
    inside, outside = split(
        compare(
            runs,
            ["attack.selection"],
            ours,
            lambda r: r.attack == OURS and r.spec["attack"].get("selection") == "random",
        )
    )
    gains = differences(inside)
    own = paper.printed("mask_selection")
    pairs = [(v, own[d, f"{OURS}-random", f, p]) for (d, a, f, p), v in own.items() if a == f"{OURS}-greedy"]
    words, verdict = "no runs.", "not tested"
    if gains:
        verdict = (
            f"{judge(gains, everywhere=True)}; by over {100 * GAIN:.0f} points: "
            f"{judge(gains, everywhere=False, limit=GAIN)}"
        )
        words = (
            f"mean gain {100 * mean(d.value for d in gains):+.1f} points; {tally(gains)}; clearly over "
            f"{100 * GAIN:.0f} points in {sum(above(d, GAIN) for d in gains)}, clearly under in "
            f"{sum(below(d, GAIN) for d in gains)}. In the paper's own table the gain is "
            f"{100 * mean(g - r for g, r in pairs):.1f} points on average and {100 * max(g - r for g, r in pairs):.1f} "
            f"at most (relative to random masks {100 * max(g / r - 1 for g, r in pairs):.0f}%)."
        )
    words += aside(tally(differences(outside)) if outside else "")
    tables = []
    for title, found in (("Greedy against random", inside), (BEYOND, outside)):
        rows = tuple(
            (setting(c.one), c.one.rule, *(share(s) for s in c.sides()), points(d))
            for c, d in zip(found, differences(found), strict=True)
        )
        if rows:
            tables.append((title, ("setting", "defense", "greedy", "random", "difference, points"), rows))
    return Finding(
        f"Greedy mask selection beats random selection, by over 20% (read as: {100 * GAIN:.0f} points).",
        verdict,
        words,
        tuple(tables),
        sources([*inside, *outside]),
    )


def iid_leaks_more(runs: Sequence[Run]) -> Finding:
    """Attacks are more accurate when clients are alike."""
    inside, outside = split(
        compare(
            as_defined(runs),
            ["federation.partition"],
            lambda r: r.partition == "iid",
            lambda r: r.partition == "non-iid 0.5",
        )
    )
    found = differences(inside)
    rows = []
    for attack in (*BASELINES, OURS):
        of = [d.value for c, d in zip(inside, found, strict=True) if c.one.attack == attack]
        if of:
            rows.append((attack, f"{100 * mean(of):+.1f}", f"{sum(v > 0 for v in of)} of {len(of)}"))
    own = paper.printed("main_c08")
    pairs = [(v, own[d, a, f, "non_iid"]) for (d, a, f, p), v in own.items() if p == "iid"]
    printed = f"In the paper's own main table IID is higher in {sum(a > b for a, b in pairs)} of {len(pairs)} cells."
    return Finding(
        "IID clients leak more than non-IID clients.",
        judge(found, everywhere=False),
        f"{tally(found)}. {printed}{aside(tally(differences(outside)) if outside else '')}",
        (("IID minus non-IID (0.5), by attack", ("attack", "mean difference, points", "IID higher"), tuple(rows)),)
        if rows
        else (),
        sources([*inside, *outside]),
    )


def partial_within_eight(runs: Sequence[Run]) -> Finding:
    """Partial knowledge costs FedPoisonMIA at most 8 points."""

    def knows(level: str) -> Callable[[Run], bool]:
        return lambda r: ours(r) and r.spec["attack"].get("knowledge", "full") == level

    def big(run: Run) -> bool:
        return bool(run.federation["clients"] == 50)

    runs = [r for r in runs if r.in_the_paper]
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
        losses = differences(found)
        worst = max(losses, key=lambda d: d.value)
        words.append(f"against full knowledge in {what}: largest loss {points(worst)} points over {len(found)} cells")
        over = sum(above(d, 0.08) for d in losses)
        under = sum(below(d, 0.08) for d in losses)
        verdicts.append("fails" if over else "holds" if under == len(losses) else "holds where it can be told")
        rows = tuple(
            (setting(c.other), c.one.rule, *(share(s) for s in c.sides()), points(d))
            for c, d in zip(found, losses, strict=True)
        )
        tables.append((f"Against {what}", ("setting", "defense", "full", "partial", "loss, points"), rows))
    verdict = next((v for v in ("fails", "holds where it can be told", "holds") if v in verdicts), "not tested")
    return Finding(
        "With partial knowledge FedPoisonMIA loses at most 8 points.",
        verdict,
        "; ".join(words) + "." if words else "no runs.",
        tuple(tables),
        sources([*main, *same]),
    )
