"""The paper's claims about defenses, ATM above all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from results.claims import scope
from results.claims.attacks import BASELINES, LISTED, OURS, as_defined, ours
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
    points,
    ranks,
    setting,
    share,
    sources,
    split,
    tally,
)
from scapegoat.membership.metrics import Estimate

OTHERS = tuple(rule for rule in scope.RULES if rule != "atm")
NEW = ("clipped_atm", "memory_atm", "reputation_atm")
SIMILAR = 0.02


def _is(defense: str) -> Callable[[Run], bool]:
    return lambda run: run.defense == defense


def atm_best(runs: Sequence[Run]) -> Finding:
    """ATM lets the attacks know least."""
    found = [c for name in OTHERS for c in compare(as_defined(runs), ["defense"], _is(name), _is("atm"))]
    judged = cells((c for c in found if c.in_the_paper), lambda c: (c.other,))
    inside = [c for cell in judged for c in cell]
    _, outside = split(found)
    lowest, level = ranks(judged)
    rows = []
    for attack in (*BASELINES, OURS):
        of = [cell for cell in judged if cell[0].other.attack == attack]
        if of:
            rows.append((attack, f"{ranks(of)[0]} of {len(of)}"))
    tables: list[Table] = (
        [("Cells in which ATM has the lowest mean accuracy", ("attack", "cells"), tuple(rows))] if rows else []
    )
    tables += _better("Where another defense is clearly better", inside)
    tables += _better(f"{BEYOND}: where another defense is clearly better", outside)
    words = "no runs."
    if inside:
        words = (
            f"lowest mean accuracy in {lowest} of {len(judged)} cells (setting x attack), level with the lowest in "
            f"{level}; {tally(differences(inside))}."
        )
    return Finding(
        "ATM is the best defense: the lowest attack accuracy in most settings.",
        _mostly(lowest, len(judged), judge(differences(inside), everywhere=False)),
        words + aside(tally(differences(outside)) if outside else ""),
        tuple(tables),
        sources(found),
    )


def _better(title: str, found: Sequence[Comparison]) -> list[Table]:
    lower = [(c, d) for c, d in zip(found, differences(found), strict=True) if below(d)]
    lower.sort(key=lambda item: item[1].value)
    rows = tuple(
        (setting(c.one), c.one.attack, c.one.rule, c.other.rule, *(share(s) for s in reversed(c.sides())), points(d))
        for c, d in lower[:LISTED]
    )
    head = ("setting", "attack", "better defense", "better than", "ATM", "the other", "difference, points")
    return [(f"{title} ({len(lower)} comparisons; the largest {len(rows)})", head, rows)] if rows else []


def _mostly(lowest: int, cells: int, comparisons: str) -> str:
    """A claim about most cells: by the means, unless no difference is clear."""
    if comparisons in ("not tested", "undecided"):
        return comparisons
    return "holds" if lowest > cells / 2 and comparisons != "fails" else "fails"


def atm_withstands_adaptive(runs: Sequence[Run]) -> Finding:
    """The adaptive attack, which knows ATM's trim and sends its update, gets nowhere."""

    def adaptive(run: Run) -> bool:
        return run.attack == "adaptive"

    told = [r for r in runs if r.spec["attack"].get("knowledge", "full") == "full"]
    there = [r for r in told if r.defense == "atm"]
    elsewhere, _ = split(
        c for name in OTHERS for c in compare([r for r in told if adaptive(r)], ["defense"], _is(name), _is("atm"))
    )
    watching, beyond = split(compare(there, ["attack"], adaptive, lambda r: r.attack == "passive"))
    ours_there, _ = split(compare(there, ["attack"], ours, adaptive))
    lower, gains, less = differences(elsewhere), differences(watching), differences(ours_there)
    broken = sum(above(d) for d in gains)
    verdict = "fails" if broken or any(below(d) for d in lower) else judge(lower, everywhere=True)
    words = []
    if gains:
        words.append(
            f"under ATM the adaptive attack is clearly above watching in {broken} of {len(gains)} settings, by "
            f"{100 * mean(d.value for d in gains):+.1f} points on average"
        )
    if lower:
        words.append(f"that it is lower under ATM than under the other defenses: {tally(lower)}")
    if less:
        words.append(f"that it is below FedPoisonMIA under ATM: {tally(less)}")
    more = differences(beyond)
    note = aside(f"clearly above watching in {sum(above(d) for d in more)} of {len(more)}" if more else "")
    tables = []
    for title, found in (("Adaptive against passive, both under ATM", watching), (BEYOND, beyond)):
        rows = tuple(
            (setting(c.one), c.one.rule, *(share(s) for s in c.sides()), points(d))
            for c, d in zip(found, differences(found), strict=True)
        )
        if rows:
            tables.append((title, ("setting", "defense", "adaptive", "passive", "gain, points"), rows))
    return Finding(
        "ATM withstands the adaptive attack: its accuracy is lowest there, and below FedPoisonMIA's.",
        verdict if words else "not tested",
        ("; ".join(words) + "." if words else "no runs.") + note,
        tuple(tables),
        sources([*elsewhere, *watching, *ours_there, *beyond]),
    )


def atm_keeps_test_accuracy(runs: Sequence[Run]) -> Finding:
    """The model is as good under ATM as under FedAvg with nobody attacking."""
    measure = "test_accuracy"
    inside, outside = split(compare([r for r in runs if r.attack == "passive"], ["defense"], _is("fedavg"), _is("atm")))
    attacked, attacked_beyond = split(
        compare([r for r in runs if r.defense == "atm"], ["attack"], lambda r: r.attack == "passive", ours)
    )
    losses, harm = differences(inside, measure), differences(attacked, measure)
    over = [(c, d) for c, d in zip(inside, losses, strict=True) if above(d, SIMILAR)]
    words = "no runs."
    if losses:
        words = (
            f"loss against FedAvg, nobody attacking: {100 * mean(d.value for d in losses):+.1f} points on average, "
            f"more than {100 * SIMILAR:.0f} in {sum(d.value > SIMILAR for d in losses)} of {len(losses)} settings, "
            f"clearly within in {sum(below(d, SIMILAR) for d in losses)}, clearly over in {len(over)}"
        )
        named = "; ".join(f"{setting(c.one)}: {points(d)}" for c, d in over)
        words += f" ({named})." if named else "."
    if harm:
        words += (
            f" FedPoisonMIA costs a further {100 * mean(d.value for d in harm):+.1f} points on average under ATM, "
            f"clearly more than {100 * SIMILAR:.0f} in {sum(above(d, SIMILAR) for d in harm)} of {len(harm)} settings."
        )
    if outside:
        more = differences(outside, measure)
        words += aside(f"mean loss {100 * mean(d.value for d in more):+.1f} points, settings: {len(more)}")
    under = {c.one.name: share(c.sides(measure)[1]) for c in [*attacked, *attacked_beyond]}
    tables = []
    for title, found in (("Test accuracy", inside), (BEYOND, outside)):
        rows = tuple(
            (
                setting(c.one),
                c.other.rule,
                *(share(s) for s in c.sides(measure)),
                points(d),
                under.get(c.other.name, "–"),
            )
            for c, d in zip(found, differences(found, measure), strict=True)
        )
        head = ("setting", "defense", "FedAvg, passive", "ATM, passive", "loss, points", "ATM, FedPoisonMIA")
        if rows:
            tables.append((title, head, rows))
    return Finding(
        f"ATM costs no test accuracy (read as: at most {100 * SIMILAR:.0f} points).",
        _within(losses, len(over)),
        words,
        tuple(tables),
        sources([*inside, *attacked, *outside]),
    )


def _within(losses: Sequence[Estimate], over: int) -> str:
    """A claim that losses stay within a limit. Exceptions refute it only where they are."""
    if not losses:
        return "not tested"
    if over:
        return "mixed" if any(d.value <= SIMILAR for d in losses) else "fails"
    within = sum(below(d, SIMILAR) for d in losses)
    return "holds" if within == len(losses) else "holds where it can be told" if within else "undecided"


def participation_changes_little(runs: Sequence[Run]) -> Finding:
    """All clients per round instead of 80%: the same accuracy."""
    inside, outside = split(
        compare(
            as_defined(runs),
            ["federation.fraction"],
            lambda r: r.federation["fraction"] == 1.0,
            lambda r: r.federation["fraction"] == 0.8,
        )
    )
    found = differences(inside)
    apart = [(c, d) for c, d in zip(inside, found, strict=True) if above(d) or below(d)]
    rows = []
    for attack in (*BASELINES, OURS):
        of = [d.value for c, d in zip(inside, found, strict=True) if c.one.attack == attack]
        if of:
            sizes = [abs(value) for value in of]
            largest = f"{100 * max(sizes):.1f}"
            rows.append((attack, f"{100 * mean(of):+.1f}", f"{100 * mean(sizes):.1f}", largest, str(len(of))))
    head = ("attack", "mean difference, points", "mean size", "largest size", "cells")
    tables: list[Table] = [("C = 1.0 minus C = 0.8, by attack", head, tuple(rows))] if rows else []
    if apart:
        clear = tuple(
            (setting(c.other), c.one.attack, c.one.rule, *(share(s) for s in c.sides()), points(d)) for c, d in apart
        )
        names = ("setting", "attack", "defense", "C = 1.0", "C = 0.8", "difference, points")
        tables.append(("Where they clearly differ", names, clear))
    size = mean(abs(d.value) for d in found) if found else 0.0
    verdict = "holds" if not apart else "mixed" if len(apart) < len(inside) / 4 else "fails"
    words = f"mean absolute difference {100 * size:.1f} points, clear in {len(apart)} of {len(inside)} cells."
    return Finding(
        "C = 0.8 and C = 1.0 give similar attack accuracies.",
        verdict if inside else "not tested",
        (words if inside else "no runs.") + aside(f"{len(outside)} cells" if outside else ""),
        tuple(tables),
        sources([*inside, *outside]),
    )


def beyond_the_paper(runs: Sequence[Run]) -> Finding:
    """What the rules that the paper does not have do against its two hardest attacks."""
    hardest = [r for r in runs if r.attack in ("adaptive", "passive") or ours(r)]
    found = [
        c
        for name in NEW
        for cell in cells(compare(hardest, ["defense"], lambda r: r.rule == "atm", _is(name)))
        for c in cell
    ]
    rows = tuple((setting(c.one), c.one.attack, c.other.rule, *(share(s) for s in c.sides())) for c in found)
    gains = differences([c for c in found if c.one.attack != "passive"])
    return Finding(
        "Not a claim of the paper: clipped_atm, memory_atm and reputation_atm leak less than ATM.",
        judge(gains, everywhere=False),
        f"{tally(gains)}." if gains else "no runs.",
        (("", ("setting", "attack", "defense", "ATM", "this one"), rows),) if rows else (),
        sources(found),
    )
