"""The paper's claims about defenses, ATM above all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

from scapegoat.report.claims.attacks import BASELINES, LISTED, OURS, ours
from scapegoat.report.claims.evidence import (
    Comparison,
    Finding,
    Run,
    Table,
    compare,
    judge,
    points,
    setting,
    share,
    tally,
)

OTHERS = ("dp", "top_k", "fedavg", "median", "trimmed_mean", "fang", "multi_krum", "deepsight")
BEYOND = ("clipped_atm", "memory_atm", "reputation_atm")
SIMILAR = 0.02


def _is(defense: str) -> Callable[[Run], bool]:
    return lambda run: run.defense == defense


def atm_best(runs: Sequence[Run]) -> Finding:
    """ATM lets the attacks know least."""
    known = [r for r in runs if r.attack != OURS or ours(r)]
    found = [c for name in OTHERS for c in compare(known, ["defense"], _is(name), _is("atm"))]
    differences = [c.difference(comparisons=len(found)) for c in found]
    by_cell: dict[tuple[str, str], list[float]] = defaultdict(list)
    for c, d in zip(found, differences, strict=True):
        by_cell[setting(c.one), c.one.attack].append(d.value)
    lowest = sum(all(v > 0 for v in values) for values in by_cell.values())
    rows = []
    for attack in (*BASELINES, OURS):
        of = {key: values for key, values in by_cell.items() if key[1] == attack}
        if of:
            best = sum(all(v > 0 for v in values) for values in of.values())
            rows.append((attack, f"{best} of {len(of)}"))
    tables: list[Table] = (
        [("Cells in which ATM has the lowest mean accuracy", ("attack", "cells"), tuple(rows))] if rows else []
    )
    lower = [(c, d) for c, d in zip(found, differences, strict=True) if d.high is not None and d.high < 0]
    lower.sort(key=lambda item: item[1].value)
    exceptions = tuple(
        (setting(c.one), c.one.attack, c.one.defense, *(share(s) for s in reversed(c.sides())), points(d))
        for c, d in lower[:LISTED]
    )
    if exceptions:
        head = ("setting", "attack", "better defense", "ATM", "the other", "difference, points")
        title = f"Where another defense is clearly better ({len(lower)} comparisons; the largest {len(exceptions)})"
        tables.append((title, head, exceptions))
    return Finding(
        "ATM is the best defense: the lowest attack accuracy in most settings.",
        _mostly(lowest, len(by_cell), judge(differences, everywhere=False)),
        f"lowest mean accuracy in {lowest} of {len(by_cell)} cells (setting x attack); {tally(differences)}."
        if found
        else "no runs.",
        tuple(tables),
        _sources(found),
    )


def _mostly(lowest: int, cells: int, comparisons: str) -> str:
    """A claim about most cells: by the means, unless no difference is clear."""
    if comparisons in ("not tested", "undecided"):
        return comparisons
    return "holds" if lowest > cells / 2 and comparisons != "fails" else "fails"


def atm_withstands_adaptive(runs: Sequence[Run]) -> Finding:
    """The adaptive attack, which knows ATM's trim and sends its update, gets nowhere."""

    def adaptive(run: Run) -> bool:
        return run.attack == "adaptive"

    def full(run: Run) -> bool:
        return bool(run.spec["attack"].get("knowledge", "full") == "full")

    told = [r for r in runs if full(r)]
    elsewhere = [
        c for name in OTHERS for c in compare([r for r in told if adaptive(r)], ["defense"], _is(name), _is("atm"))
    ]
    watching = compare([r for r in told if r.defense == "atm"], ["attack"], adaptive, lambda r: r.attack == "passive")
    ours_there = compare([r for r in told if r.defense == "atm"], ["attack"], ours, adaptive)
    lower = [c.difference(comparisons=len(elsewhere)) for c in elsewhere]
    gains = [c.difference(comparisons=len(watching)) for c in watching]
    less = [c.difference(comparisons=len(ours_there)) for c in ours_there]
    rows = tuple(
        (setting(c.one), *(share(s) for s in c.sides()), points(d)) for c, d in zip(watching, gains, strict=True)
    )
    broken = sum(d.low is not None and d.low > 0 for d in gains)
    verdict = (
        "fails" if broken or any(d.high is not None and d.high < 0 for d in lower) else judge(lower, everywhere=True)
    )
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
    return Finding(
        "ATM withstands the adaptive attack: its accuracy is lowest there, and below FedPoisonMIA's.",
        verdict if words else "not tested",
        "; ".join(words) + "." if words else "no runs.",
        (("Adaptive against passive, both under ATM", ("setting", "adaptive", "passive", "gain, points"), rows),)
        if rows
        else (),
        _sources([*elsewhere, *watching, *ours_there]),
    )


def atm_keeps_test_accuracy(runs: Sequence[Run]) -> Finding:
    """The model is as good under ATM as under FedAvg with nobody attacking."""
    calm = compare([r for r in runs if r.attack == "passive"], ["defense"], _is("atm"), _is("fedavg"))
    attacked = compare([r for r in runs if r.defense == "atm"], ["attack"], ours, lambda r: r.attack == "passive")
    rows = []
    losses = []
    for c in calm:
        atm, mean_rule = (s.value for s in c.sides("test_accuracy"))
        losses.append(mean_rule - atm)
        under = next((a for a in attacked if setting(a.one) == setting(c.one)), None)
        shown = f"{under.sides('test_accuracy')[0].value:.3f}" if under is not None else "–"
        rows.append((setting(c.one), f"{mean_rule:.3f}", f"{atm:.3f}", shown))
    harm = [-c.difference("test_accuracy").value for c in attacked]
    verdict = "not tested" if not losses else "holds" if mean(losses) <= SIMILAR else "fails"
    words = f"mean loss against FedAvg, nobody attacking: {100 * mean(losses):+.1f} points" if losses else "no runs"
    if harm:
        words += f"; FedPoisonMIA costs a further {100 * mean(harm):+.1f} points on average under ATM"
    head = ("setting", "FedAvg, passive", "ATM, passive", "ATM, FedPoisonMIA")
    return Finding(
        f"ATM costs no test accuracy (read as: at most {100 * SIMILAR:.0f} points).",
        verdict,
        words + ".",
        (("Test accuracy", head, tuple(rows)),) if rows else (),
        _sources([*calm, *attacked]),
    )


def participation_changes_little(runs: Sequence[Run]) -> Finding:
    """All clients a round instead of 80%: the same accuracy."""
    found = compare(
        runs,
        ["federation.fraction"],
        lambda r: r.federation["fraction"] == 1.0,
        lambda r: r.federation["fraction"] == 0.8,
    )
    differences = [c.difference(comparisons=len(found)) for c in found]
    clear = sum(d.low is not None and d.high is not None and (d.low > 0 or d.high < 0) for d in differences)
    size = mean(abs(d.value) for d in differences) if differences else 0.0
    verdict = "not tested" if not found else "holds" if clear == 0 else "mixed" if clear < len(found) / 4 else "fails"
    return Finding(
        "C = 0.8 and C = 1.0 give similar attack accuracies.",
        verdict,
        f"mean absolute difference {100 * size:.1f} points, clear in {clear} of {len(found)} cells."
        if found
        else "no runs.",
        (),
        _sources(found),
    )


def beyond_the_paper(runs: Sequence[Run]) -> Finding:
    """What the rules that the paper does not have do against its two hardest attacks."""
    rows: list[tuple[str, ...]] = []
    used: list[Comparison] = []
    for name in BEYOND:
        for c in compare(runs, ["defense"], _is("atm"), _is(name)):
            if c.one.attack in ("adaptive", OURS, "passive"):
                used.append(c)
                rows.append((setting(c.one), c.one.attack, name, *(share(s) for s in c.sides())))
    differences = [c.difference(comparisons=len(used)) for c in used if c.one.attack != "passive"]
    return Finding(
        "Not a claim of the paper: clipped_atm, memory_atm and reputation_atm leak less than ATM.",
        judge(differences, everywhere=False),
        f"{tally(differences)}." if differences else "no runs.",
        (("", ("setting", "attack", "defense", "ATM", "this one"), tuple(rows)),) if rows else (),
        _sources(used),
    )


def _sources(found: Sequence[Comparison]) -> frozenset[str]:
    return frozenset(run.name for c in found for pair in c.pairs for run in pair)
