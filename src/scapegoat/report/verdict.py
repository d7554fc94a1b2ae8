"""The verdict: which rule to use, and how sure that is. A pure function of run summaries.

The criterion, in the order in which it is applied:

1. *Baseline.* What merely watching gets: `passive` under `fedavg`. Without that run, guessing stands in and the verdict
   says so.
2. *Leakage of a rule* is its worst attack's: the largest difference to the baseline over all attacks, in best-round
   accuracy or in AUC, whichever is larger. Both count because the yes/no rule behind accuracy hides what scores show.
   With several seeds differences are taken seed by seed, so that what both runs of a seed share cancels out.
3. *Open*: some attack is demonstrably above the baseline in accuracy, AUC or TPR at 1% FPR (the interval of the
   difference, widened for the number of comparisons made, lies above zero). *Closed*: for every attack the interval of
   the difference, in each of the three, ends within `tolerance`. *Unclear*: neither. A rule for which an attack is
   missing is *unjudged*.
4. *Cost* is test accuracy lost against `fedavg` with nobody attacking; a rule above `max_cost` is not recommended.
5. If `fedavg` itself is closed, nothing else is needed. Otherwise, of the affordable rules that leak least (within
   `TIE` of the least), the better status wins, then the higher test accuracy under attack. It is recommended if it is
   closed, or if it is not open and demonstrably leaks less than `fedavg`. Else no rule is recommended; if one would be
   but for its cost, the verdict is about that one and names its price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scapegoat.report import words
from scapegoat.report.estimate import difference, over_seeds, paired, stretched
from scapegoat.report.measures import ATTACK_ORDER, BY_KEY, DEFENSE_ORDER, from_summary
from scapegoat.report.model import Estimate, Judgement, Status, Verdict

TOLERANCE = 0.10
MAX_COST = 0.05
TIE = 0.02
WEIGHED = ("accuracy_best", "auc")
DEMONSTRATED = (*WEIGHED, "tpr_at_fpr_01")
_RANK: dict[Status, int] = {"closed": 0, "unclear": 1, "open": 2, "unjudged": 3}

Figures = Mapping[str, Estimate]
Key = tuple[str, str]


class Evidence:
    """Figures by cell and seed, pooled over seeds and compared between cells."""

    def __init__(self, by_seed: Mapping[Key, Mapping[int, Figures]], baseline: Key | None) -> None:
        self.by_seed = {key: seeds for key, seeds in by_seed.items() if seeds}
        self.cells = {key: pool(list(seeds.values())) for key, seeds in self.by_seed.items()}
        usable = baseline in self.cells and all(self.cells[baseline].get(m, Estimate(0)).bounded for m in WEIGHED)
        self.baseline = baseline if usable else None
        self.reference: Figures = self.cells[baseline] if usable and baseline is not None else {}

    def get(self, attack: str | None, defense: str | None, measure: str) -> Estimate | None:
        """A pooled figure, if there is one."""
        if attack is None or defense is None:
            return None
        return self.cells.get((attack, defense), {}).get(measure)

    def gap(self, one: Key, other: Key, measure: str, comparisons: int = 1) -> Estimate:
        """How much higher `one` is than `other`, seed by seed where they share at least two."""
        ours, theirs = self.by_seed[one], self.by_seed[other]
        shared = [s for s in ours if s in theirs and measure in ours[s] and measure in theirs[s]]
        if len(shared) >= 2:
            return paired([(ours[s][measure], theirs[s][measure]) for s in shared], comparisons)
        return stretched(difference(self.cells[one][measure], self.cells[other][measure]), comparisons)

    def excess(self, cell: Key, measure: str, comparisons: int = 1) -> Estimate:
        """How much a cell leaks beyond the baseline; beyond guessing where there is no baseline."""
        if self.baseline is not None and measure in self.reference:
            return self.gap(cell, self.baseline, measure, comparisons)
        chance = BY_KEY[measure].chance or 0.0
        return stretched(difference(self.cells[cell][measure], Estimate(chance, chance, chance)), comparisons)


def verdict(
    summaries: Iterable[Mapping[str, Any]],
    *,
    clients: int | None = None,
    malicious: int | None = None,
    tolerance: float = TOLERANCE,
    max_cost: float = MAX_COST,
) -> Verdict:
    """The verdict on runs of one setting, from their summaries. Runs that differ in nothing but the seed are pooled."""
    by_seed: dict[Key, dict[int, Figures]] = defaultdict(dict)
    targets: set[int] = set()
    for summary in summaries:
        cell = by_seed[name_of(summary.get("attack")), name_of(summary.get("defense"))]
        cell[int(summary.get("seed") or 0)] = from_summary(summary)
        targets.add(int((summary.get("membership") or {}).get("targets") or 0))
    baseline = ("passive", "fedavg")
    return decide(
        by_seed,
        attacks=ordered({a for a, _ in by_seed}, ATTACK_ORDER),
        defenses=ordered({d for _, d in by_seed}, DEFENSE_ORDER),
        baseline=baseline if baseline in by_seed else None,
        clients=clients,
        malicious=malicious,
        targets=min(targets, default=0),
        tolerance=tolerance,
        max_cost=max_cost,
    )


def decide(
    by_seed: Mapping[Key, Mapping[int, Figures]],
    *,
    attacks: Sequence[str],
    defenses: Sequence[str],
    baseline: Key | None,
    clients: int | None = None,
    malicious: int | None = None,
    targets: int = 0,
    tolerance: float = TOLERANCE,
    max_cost: float = MAX_COST,
) -> Verdict:
    """The verdict on figures by cell and seed. `baseline` names the cell of merely watching under plain averaging."""
    evidence = Evidence(by_seed, baseline)
    watching = baseline[0] if baseline else next((a for a in attacks if a == "passive"), None)
    plain = baseline[1] if baseline else next((d for d in defenses if d == "fedavg"), None)
    judgements = tuple(_judge(evidence, attacks, d, watching, plain, tolerance, max_cost) for d in defenses)
    active = any(attack != watching for attack, _ in evidence.cells)
    choice, recommended, status = _choose(evidence, judgements, plain) if active else (None, None, "unjudged")
    before = evidence.get(watching, plain, "test_accuracy")
    after = evidence.get(watching, choice.defense, "test_accuracy") if choice else None
    return words.compose(
        words.Findings(
            judgements=judgements,
            baseline=evidence.reference,
            choice=choice,
            recommended=recommended,
            status=status,
            plain=plain,
            undefended=_worst(
                {a: evidence.cells[a, plain] for a in attacks if a != watching and (a, plain) in evidence.cells}
                if plain is not None
                else {}
            ),
            active=active,
            alike=_alike(evidence, choice, judgements),
            fooled=_looks_closed_by_accuracy(evidence, choice, attacks, tolerance),
            utility=(before.value, after.value) if before is not None and after is not None else None,
            clients=clients,
            malicious=malicious,
            seeds=len({seed for seeds in evidence.by_seed.values() for seed in seeds}),
            targets=targets,
            tolerance=tolerance,
            max_cost=max_cost,
        )
    )


def _judge(
    evidence: Evidence,
    attacks: Sequence[str],
    defense: str,
    watching: str | None,
    plain: str | None,
    tolerance: float,
    max_cost: float,
) -> Judgement:
    against = {a: evidence.cells[a, defense] for a in attacks if (a, defense) in evidence.cells}
    before, after = (evidence.get(watching, d, "test_accuracy") for d in (plain, defense))
    cost = difference(before, after) if before is not None and after is not None else None
    # The rule's price is judged on its figure: one run's test accuracy may come without an interval.
    bare = Judgement(
        defense=defense,
        status="unjudged",
        worst=_worst(against),
        cost=cost,
        under_attack=min((f["test_accuracy"].value for f in against.values() if "test_accuracy" in f), default=None),
        too_costly=cost is not None and cost.value > max_cost + 1e-9,
    )
    missing = [a for a in attacks if any(m not in against.get(a, {}) for m in WEIGHED)]
    if missing:
        return replace(bare, reason=f"no run of {', '.join(missing)}")
    rivals = [a for a in against if (a, defense) != evidence.baseline]
    if not rivals:
        return replace(bare, reason="only watching was tried")
    found = {(a, m): evidence.excess((a, defense), m) for a in rivals for m in DEMONSTRATED if m in against[a]}
    excesses = {(a, m): excess for (a, m), excess in found.items() if m in WEIGHED}
    (attack, measure), excess = max(excesses.items(), key=lambda item: item[1].value)
    comparisons = len(rivals) * len(DEMONSTRATED)
    leaking = tuple(
        (a, m)
        for a in rivals
        for m in DEMONSTRATED
        if m in against[a] and _above_zero(evidence.excess((a, defense), m, comparisons))
    )
    ends = [e.high for e in found.values()]
    ceiling = None if None in ends else max(end for end in ends if end is not None)
    status: Status = "unclear"
    if leaking:
        status = "open"
    elif ceiling is not None and ceiling <= tolerance:
        status = "closed"
    lows, highs = ([getattr(e, side) for e in excesses.values()] for side in ("low", "high"))
    if None not in lows:
        # The true worst case is at least each lower bound, and at most the largest upper bound.
        excess = Estimate(excess.value, max(lows), max(highs))
    return replace(
        bare,
        status=status,
        worst_attack=attack,
        worst_measure=measure,
        excess=excess,
        ceiling=ceiling,
        leaking=leaking,
    )


def _choose(
    evidence: Evidence, judgements: Sequence[Judgement], plain: str | None
) -> tuple[Judgement | None, str | None, Status]:
    """The rule that leaks least among the affordable ones, whether to recommend it, and how things stand."""
    judged = [j for j in judgements if j.status != "unjudged"]
    if not judged:
        return None, None, "unjudged"
    averaging = next((j for j in judged if j.defense == plain), None)
    if averaging is not None and averaging.status == "closed":
        return averaging, averaging.defense, "closed"

    def good(rule: Judgement) -> bool:
        better = averaging is not None and _leaks_less(evidence, rule, averaging)
        return rule.status == "closed" or (rule.status == "unclear" and better)

    affordable, dear = ([j for j in judged if j.too_costly is costly] for costly in (False, True))
    if affordable:
        best = _best(affordable)
        if good(best):
            return best, best.defense, best.status
    tight = [j for j in dear if good(j)]
    if tight or not affordable:
        return _best(tight or dear), None, "open"
    return best, None, best.status


def _best(rules: Sequence[Judgement]) -> Judgement:
    """Of the rules that leak least, the one with the better status, then with the higher test accuracy."""
    least = min(map(_excess, rules))
    tied = [j for j in rules if _excess(j) <= least + TIE]
    return min(tied, key=lambda j: (_RANK[j.status], -(j.under_attack or 0.0), _excess(j), j.defense))


def _leaks_less(evidence: Evidence, one: Judgement, other: Judgement) -> bool:
    """Whether `one`'s worst attack is demonstrably below `other`'s in accuracy or AUC, and above in neither."""
    gaps = [
        evidence.gap((other.worst[m][0], other.defense), (one.worst[m][0], one.defense), m, len(WEIGHED))
        for m in WEIGHED
        if m in one.worst and m in other.worst
    ]
    return any(map(_above_zero, gaps)) and not any(g.high is not None and g.high < 0 for g in gaps)


def _alike(evidence: Evidence, choice: Judgement | None, judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """Affordable rules whose worst attack cannot be told apart from the chosen rule's."""
    if choice is None:
        return ()
    others = [j for j in judgements if j.defense != choice.defense and j.status != "unjudged" and not j.too_costly]
    return tuple(j.defense for j in others if not _leaks_less(evidence, choice, j))


def _looks_closed_by_accuracy(
    evidence: Evidence, choice: Judgement | None, attacks: Sequence[str], tolerance: float
) -> bool:
    if choice is None or choice.status == "closed" or evidence.baseline is None:
        return False
    cells = [(a, choice.defense) for a in attacks if (a, choice.defense) != evidence.baseline]
    highs = [evidence.excess(cell, "accuracy_best").high for cell in cells]
    return bool(highs) and all(high is not None and high <= tolerance for high in highs)


def _worst(against: Mapping[str, Figures]) -> dict[str, tuple[str, Estimate]]:
    worst = {}
    for measure in DEMONSTRATED:
        found = [(a, figures[measure]) for a, figures in against.items() if measure in figures]
        if found:
            worst[measure] = max(found, key=lambda item: item[1].value)
    return worst


def _above_zero(gap: Estimate) -> bool:
    return gap.low is not None and gap.low > 0


def _excess(judgement: Judgement) -> float:
    return judgement.excess.value if judgement.excess is not None else float("inf")


def pool(figures: Sequence[Figures]) -> dict[str, Estimate]:
    """Each figure over the seeds that give it."""
    keys = [key for key in BY_KEY if any(key in f for f in figures)]
    floor = {"advantage": -1.0}
    return {key: over_seeds([f[key] for f in figures if key in f], low=floor.get(key, 0.0)) for key in keys}


def ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Names in the order readers expect: the known ones first, then the others by name."""
    rank = {name: i for i, name in enumerate(known)}
    return sorted(names, key=lambda name: (rank.get(name.split(" ")[0], len(rank)), name))


def name_of(component: Any) -> str:
    """How a component is called: its name, or the names of a pipeline's parts."""
    if isinstance(component, Mapping):
        return str(component.get("name", "?"))
    if isinstance(component, list | tuple):
        return " + ".join(name_of(part) for part in component)
    return str(component)
