"""The verdict: does the model leak, what does a hostile participant add, which rule to use. A pure function of runs.

It has two parts, and its status is the worse of the two. The first, what merely watching gives away to anyone who sees
the model, is `scapegoat.report.watching`; it is about the rule of the second part's choice. The second part, in the
order in which its criterion is applied:

1. *Baseline.* What merely watching gets: `passive` under `fedavg`. Without that run, guessing stands in and the verdict
   says so.
2. *Leakage of a rule* is its worst attack's: the largest difference to the baseline over all attacks, in best-round
   accuracy or in AUC, whichever is larger. Both count because the yes/no rule behind accuracy hides what scores show.
   AUC and TPR are those of the score that tells most in each cell, of a client's seat, widened for the scores tried.
   With several seeds differences are taken seed by seed, so that what both runs of a seed share cancels out.
3. *Closed*: for every attack the interval of the difference, in accuracy, AUC and TPR at 1% FPR, ends within
   `tolerance`. *Open*: some attack is demonstrably above the baseline in one of the three (the interval of the
   difference, widened for the number of comparisons made, lies above zero) and may be above by more than the tolerance.
   *Undecided*: neither. A rule for which an attack is missing is *unjudged*.
4. *Cost* is test accuracy lost against `fedavg` with nobody attacking; a rule above `max_cost` is not recommended.
5. If `fedavg` itself is closed, nothing else is needed (unless watching leaks under it, and under another closed and
   affordable rule does not). Otherwise, of the affordable rules that leak least (within `TIE` of the least), the better
   status wins. It is good if it is closed, or if it is not open and demonstrably leaks less than `fedavg`. If `fedavg`
   is not open and cannot be told apart from it, no rule is recommended, and the verdict says how many seeds would tell.
   Of several good rules that cannot be told apart the cheapest is recommended, and the others are named. If no rule
   is good but one would be but for its cost, the verdict is about that one and names its price.

Before all that: runs whose own checks say that their figures do not speak of leakage give the status `invalid`; a model
that has not been trained, and does not give its members away to watchers even so, the status `undertrained`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scapegoat.membership.metrics import Estimate
from scapegoat.report import grounds
from scapegoat.report import verdict_text as words
from scapegoat.report import watching as first
from scapegoat.report.choosing import Choice, choose, leaks_less
from scapegoat.report.estimate import difference
from scapegoat.report.evidence import DEMONSTRATED, WEIGHED, Evidence, Figures, Key, above_zero
from scapegoat.report.facts import Facts, by_strongest_score, facts
from scapegoat.report.measures import ATTACK_ORDER, DEFENSE_ORDER, from_summary
from scapegoat.report.model import Group, Judgement, Part, Status, Verdict
from scapegoat.report.refuting import Refuted, by_summaries

TOLERANCE = 0.10
MAX_COST = 0.05

Groups = Callable[[Key, str | None], Sequence[Group]]
"""The leakage of the classes and clients of a cell, by a score."""
RefutedBy = Callable[[str], Refuted | None]
"""The epsilon that all runs of a rule refute together; None where their summaries alone tell."""


def verdict(
    summaries: Iterable[Mapping[str, Any]],
    *,
    clients: int | None = None,
    malicious: int | None = None,
    tolerance: float = TOLERANCE,
    max_cost: float = MAX_COST,
) -> Verdict:
    """The verdict on runs of one setting. Runs that differ in nothing but the seed are pooled.

    Parameters
    ----------
    summaries: of the runs, as `scapegoat run --json` prints them.
    clients, malicious: of the federation, which the sentences name; None: not known.
    tolerance: how much more than watching an attack may gain under a rule that counts as closed.
    max_cost: test accuracy that a rule may cost and still be recommended.

    Returns
    -------
    The answer in plain words, with the judgement on each rule.

    Examples
    --------
    >>> verdict([]).text
    'There is no finished run to judge.'
    """
    by_seed: dict[Key, dict[int, Figures]] = defaultdict(dict)
    told: dict[Key, dict[int, Facts]] = defaultdict(dict)
    targets: set[int] = set()
    others: set[int] = set()
    for summary in summaries:
        cell, seed = (name_of(summary.get("attack")), name_of(summary.get("defense"))), int(summary.get("seed") or 0)
        told[cell][seed] = facts(summary)
        by_seed[cell][seed] = by_strongest_score(from_summary(summary), told[cell][seed])
        counted = summary.get("membership") or {}
        targets.add(int(counted.get("targets") or 0))
        others.add(int(counted.get("targets") or 0) - int(counted.get("members") or 0))
    baseline = ("passive", "fedavg")
    return decide(
        by_seed,
        attacks=ordered({a for a, _ in by_seed}, ATTACK_ORDER),
        defenses=ordered({d for _, d in by_seed}, DEFENSE_ORDER),
        baseline=baseline if baseline in by_seed else None,
        told=told,
        clients=clients,
        malicious=malicious,
        targets=min(targets, default=0),
        others=min(others, default=0),
        tolerance=tolerance,
        max_cost=max_cost,
    )


def decide(
    by_seed: Mapping[Key, Mapping[int, Figures]],
    *,
    attacks: Sequence[str],
    defenses: Sequence[str],
    baseline: Key | None,
    told: Mapping[Key, Mapping[int, Facts]] | None = None,
    groups: Groups | None = None,
    refuted: RefutedBy | None = None,
    clients: int | None = None,
    malicious: int | None = None,
    targets: int = 0,
    others: int = 0,
    tolerance: float = TOLERANCE,
    max_cost: float = MAX_COST,
) -> Verdict:
    """The verdict on figures by cell and seed. `baseline` names the cell of merely watching under plain averaging.

    `told` are the runs' other facts, `groups` gives the leakage of classes and clients, `refuted` the epsilon that a
    rule's runs refute, `others` are the fewest non-members.
    """
    evidence = Evidence(by_seed, baseline)
    runs = {key: [seeds[s] for s in sorted(seeds)] for key, seeds in (told or {}).items()}
    watching = baseline[0] if baseline else next((a for a in attacks if a == "passive"), None)
    plain = baseline[1] if baseline else next((d for d in defenses if d == "fedavg"), None)
    judgements = tuple(
        _accounted(_judge(evidence, attacks, d, watching, plain, tolerance, max_cost), attacks, runs, refuted)
        for d in defenses
    )
    every = [run for found in runs.values() for run in found]
    active = any(attack != watching for attack, _ in evidence.cells)
    seen = {d: first.tried(runs.get((watching or "", d), [])) for d in defenses}
    exposed = {d for d, found in seen.items() if first.answer(found, tolerance) == "open"}
    choice = choose(evidence, judgements, plain, exposed, tolerance) if active else Choice()
    about = choice.rule.defense if choice.rule is not None and seen[choice.rule.defense] else plain
    part = _first_part(seen.get(about or "", []), (watching or "", about or ""), groups, plain, tolerance)
    before = evidence.get(watching, plain, "test_accuracy")
    after = evidence.get(watching, choice.rule.defense, "test_accuracy") if choice.rule else None
    trained = runs.get((watching or "", plain or "")) or every
    return words.compose(
        words.Findings(
            judgements=judgements,
            baseline=evidence.reference,
            choice=choice,
            watching=part,
            doubts=tuple(dict.fromkeys(doubt for run in every for doubt in run.doubts)),
            undertrained=first.undertrained(trained),
            plain=plain,
            undefended=_worst(
                {a: evidence.cells[a, plain] for a in attacks if a != watching and (a, plain) in evidence.cells}
                if plain is not None
                else {}
            ),
            active=active,
            alike=_alike(evidence, choice.rule, judgements),
            fooled=_looks_closed_by_accuracy(evidence, choice.rule, attacks, tolerance),
            utility=(before.value, after.value) if before is not None and after is not None else None,
            scores=max((len(run.scores) for run in every), default=1),
            grounds=(
                *grounds.accounted(judgements),
                *grounds.shown(judgements),
                *grounds.checked(every, others),
            ),
            clients=clients,
            malicious=malicious,
            seeds=len({seed for seeds in evidence.by_seed.values() for seed in seeds}),
            of_one_seed=tuple(
                d for d in defenses if any(evidence.seeds(cell) < 2 for cell in evidence.by_seed if cell[1] == d)
            ),
            targets=targets,
            tolerance=tolerance,
            max_cost=max_cost,
        )
    )


def _first_part(
    seen: Sequence[first.Tried], cell: Key, groups: Groups | None, plain: str | None, tolerance: float
) -> Part | None:
    found = groups(cell, first.strongest(seen)) if groups is not None and seen else ()
    return first.judge(seen, found, tolerance, "" if cell[1] == plain else cell[1])


def _accounted(
    judgement: Judgement, attacks: Sequence[str], runs: Mapping[Key, Sequence[Facts]], refuted: RefutedBy | None
) -> Judgement:
    """With the epsilon that its runs account for (the largest), and the lower bound that they support together."""
    mine = [run for a in attacks for run in runs.get((a, judgement.defense), ())]
    accounted = [(run.epsilon, run.epsilon_unit) for run in mine if run.epsilon is not None]
    epsilon, unit = max(accounted, default=(None, ""))
    found = refuted(judgement.defense) if refuted is not None else None
    found = found or by_summaries(mine)
    # The bound is over all runs that have one: it refutes what each of them promises, if each promises something.
    claims = [run.refutable for run in mine if run.epsilon_lower is not None]
    promised = [claim for claim in claims if claim is not None]
    claim = max(promised) if promised and len(promised) == len(claims) else None
    told = replace(judgement, epsilon=epsilon, epsilon_unit=unit, refutable=claim)
    if found is None:
        return told
    shown = replace(told, epsilon_lower=found.lower, epsilon_reachable=found.reachable)
    return shown if epsilon is None else replace(shown, epsilon_if_gaussian=found.if_gaussian)


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
    (attack, _), excess = max(excesses.items(), key=lambda item: item[1].value)
    comparisons = len(rivals) * len(DEMONSTRATED)
    leaking = tuple(
        (a, m)
        for a in rivals
        for m in DEMONSTRATED
        if m in against[a] and above_zero(evidence.excess((a, defense), m, comparisons))
    )
    ceiling = max(e.high for e in found.values())
    status: Status = "undecided"
    deciding = max(found, key=lambda pair: found[pair].high)
    above = [pair for pair in leaking if found[pair].high > tolerance]
    if ceiling <= tolerance:
        status = "closed"
    elif above:
        status = "open"
        deciding = max(above, key=lambda pair: found[pair].value)
    lows, highs = ([getattr(e, side) for e in excesses.values()] for side in ("low", "high"))
    if all(e.bounded for e in excesses.values()):
        # The true worst case is at least each lower bound, and at most the largest upper bound.
        excess = Estimate(excess.value, max(lows), max(highs))
    return replace(
        bare,
        status=status,
        worst_attack=attack,
        excess=excess,
        ceiling=ceiling,
        leaking=leaking,
        deciding=deciding,
        decided=found[deciding],
    )


def _alike(evidence: Evidence, choice: Judgement | None, judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """Affordable rules whose worst attack cannot be told apart from the chosen rule's."""
    if choice is None:
        return ()
    others = [j for j in judgements if j.defense != choice.defense and j.status != "unjudged" and not j.too_costly]
    return tuple(j.defense for j in others if not leaks_less(evidence, choice, j, len(others)))


def _looks_closed_by_accuracy(
    evidence: Evidence, choice: Judgement | None, attacks: Sequence[str], tolerance: float
) -> bool:
    if choice is None or choice.status == "closed" or evidence.baseline is None:
        return False
    cells = [(a, choice.defense) for a in attacks if (a, choice.defense) != evidence.baseline]
    highs = [evidence.excess(cell, "accuracy_best").high for cell in cells]
    return bool(highs) and all(high <= tolerance for high in highs)


def _worst(against: Mapping[str, Figures]) -> dict[str, tuple[str, Estimate]]:
    worst = {}
    for measure in DEMONSTRATED:
        found = [(a, figures[measure]) for a, figures in against.items() if measure in figures]
        if found:
            worst[measure] = max(found, key=lambda item: item[1].value)
    return worst


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
