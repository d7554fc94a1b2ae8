"""The gate: what an audit found, held against a policy. It fails closed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scapegoat import aggregation
from scapegoat.auditing.gate_figures import (
    UNDISTURBED,
    Figure,
    Summary,
    cost_of,
    exceeds,
    exposed_group,
    figure_of,
    is_number,
    of_clients,
)
from scapegoat.auditing.policy import Policy
from scapegoat.experiments.run import Result
from scapegoat.experiments.spec import describe
from scapegoat.experiments.summary import stored_scores
from scapegoat.membership import epsilon
from scapegoat.report.facts import facts, refutable
from scapegoat.report.watching import undertrained
from scapegoat.sweeping.fitting import fitted_defense

if TYPE_CHECKING:
    from scapegoat.auditing.outcome import Audit

Status = Literal["held", "violated", "unproven"]


@dataclass(frozen=True)
class Check:
    """One demand of a policy and what became of it.

    `demand` is a figure, or `runs`, `references`, `valid`, `trained` or `accounted`; `key` names the demand whatever
    was found, such as `limits.auc`.
    """

    key: str
    demand: str
    subject: str
    status: Status
    measured: str
    limit: float | None = None
    line: int = 1

    @property
    def text(self) -> str:
        """What, measured, limit: one line."""
        end = "" if self.limit is None else f", limit {self.limit:g}"
        return f"{self.demand} of {self.subject}: {self.measured}{end}"


@dataclass(frozen=True)
class Gate:
    """Every demand of a policy, checked."""

    policy: Policy
    checks: tuple[Check, ...]

    @property
    def met(self) -> bool:
        """Whether every demand was shown to hold."""
        return all(check.status == "held" for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """What was violated or cannot be shown to hold."""
        return tuple(check for check in self.checks if check.status != "held")


def hold(found: Audit, policy: Policy) -> Gate:
    """Hold an audit against a policy.

    Several seeds count with their mean, the bound on epsilon with its largest value: each seed's is a demonstration
    of its own. Of several variants of an attack the worst counts.

    Parameters
    ----------
    found: the audit.
    policy: which rule is deployed, and its limits.

    Returns
    -------
    A check per demand: each attack has run with every seed (that the audit gave it, where it chose), references fit if
    there are any, guards are valid, the model was trained, no run shows more than it accounts for, each limit is kept.
    A limit on AUC is also passed by a class or client whose members are told from its non-members by demonstrably more.
    """
    specs = [result.spec for result in found.results] + [failure.spec for failure in found.failures]
    seeds = sorted({spec.seed for spec in specs})
    broken: dict[tuple[str, int], str] = {}
    if policy.about_the_plan:
        rule = "the plan" if found.plan is None else f"the plan ({found.plan.recommended.label})"
        runs = list(found.plan_results)
        demanded = policy.needed_attacks or found.attacks
    else:
        deployed = aggregation.parse(fitted_defense(policy.defense, specs[0].federation))
        runs = _of_rule(found, deployed.canonical())
        broken = {
            (failure.spec.attack.name, failure.spec.seed): failure.reason
            for failure in found.failures
            if failure.spec.defense.canonical() == deployed.canonical()
        }
        rule, demanded = describe(deployed), policy.against
    of_rule = _cells(runs)

    def leakage(figure: str, limit: float, attack: str) -> Figure:
        found = figure_of(figure, limit, of_rule.get(attack, {}))
        if figure != "auc" or exceeds(found, limit):
            return found
        return exposed_group(limit, [run for run in runs if run.spec.attack.name == attack]) or found

    def asked(attack: str) -> list[int]:
        if policy.about_the_plan or not found.spread:
            return seeds
        return sorted({*seeds[:1], *of_rule.get(attack, {}), *(seed for name, seed in broken if name == attack)})

    tried = list(dict.fromkeys([*demanded, *of_rule]))
    checks = [_complete(policy, rule, attack, of_rule.get(attack, {}), asked(attack), broken) for attack in tried]
    lost = [failure.reason for failure in found.failures if failure.spec.evaluation.reference]
    if lost:
        line = policy.line("defense")
        checks.append(
            Check("runs.references", "runs", "references", "unproven", f"{len(lost)} failed ({lost[0]})", line=line)
        )
    checks += _referenced(policy, rule, of_rule)
    checks += [_valid(policy, rule, attack, by_seed) for attack, by_seed in of_rule.items()]
    checks += _trained(policy, rule, runs)
    checks += _accounted(policy, rule, runs)
    for figure, limit in policy.limits.given().items():
        key = f"limits.{figure}"
        if figure == "accuracy_cost":
            plain = _cells(_of_rule(found, aggregation.parse(UNDISTURBED[1]).canonical())).get(UNDISTURBED[0], {})
            cost = cost_of(plain, of_rule.get(UNDISTURBED[0], {}), asked(UNDISTURBED[0]))
            checks.append(_check(policy, key, rule, {rule: cost}, limit))
        else:
            cells = {f"{attack} against {rule}": leakage(figure, limit, attack) for attack in of_rule}
            checks.append(_check(policy, key, rule, cells, limit))
    for attack, limits in policy.attacks.items():
        for figure, limit in limits.given().items():
            subject = f"{attack} against {rule}"
            cells = {subject: leakage(figure, limit, attack)}
            checks.append(_check(policy, f"attacks.{attack}.{figure}", subject, cells, limit))
    return Gate(policy, tuple(checks))


def _of_rule(found: Audit, defense: Any) -> list[Result]:
    return [result for result in found.results if result.spec.defense.canonical() == defense]


def _cells(results: Sequence[Result]) -> dict[str, dict[int, list[Summary]]]:
    """Summaries by attack and seed."""
    cells: dict[str, dict[int, list[Summary]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        cells[result.spec.attack.name][result.spec.seed].append(result.summary)
    return cells


def _complete(
    policy: Policy,
    rule: str,
    attack: str,
    by_seed: Mapping[int, Sequence[Summary]],
    seeds: Sequence[int],
    broken: Mapping[tuple[str, int], str],
) -> Check:
    problems = [f"seed {seed} failed ({broken[attack, seed]})" for seed in seeds if (attack, seed) in broken]
    problems += [f"seed {seed} is missing" for seed in seeds if seed not in by_seed and (attack, seed) not in broken]
    if not by_seed and not any(name == attack for name, _ in broken):
        problems = ["was not run"]
    status: Status = "unproven" if problems else "held"
    measured = "; ".join(problems) or f"{len(seeds)} of {len(seeds)}"
    subject = f"{attack} against {rule}"
    return Check(f"runs.{attack}", "runs", subject, status, measured, line=policy.line("defense"))


def _referenced(policy: Policy, rule: str, cells: Mapping[str, Mapping[int, Sequence[Summary]]]) -> list[Check]:
    """Where references were asked for, that they fit: without them the strongest scores were not tried."""
    checks = []
    for attack, by_seed in cells.items():
        asked = [
            (seed, s["membership"]) for seed, found in sorted(by_seed.items()) for s in found if s.get("membership")
        ]
        asked = [(seed, membership) for seed, membership in asked if "references" in membership]
        unfit = [f"seed {seed}: {m['references_reason']}" for seed, m in asked if "references_reason" in m]
        if asked:
            status: Status = "unproven" if unfit else "held"
            subject, line = f"{attack} against {rule}", policy.line("defense")
            checks.append(
                Check(f"references.{attack}", "references", subject, status, "; ".join(unfit) or "they fit", line=line)
            )
    return checks


def _valid(policy: Policy, rule: str, attack: str, by_seed: Mapping[int, Sequence[Summary]]) -> Check:
    problems = []
    for seed, summaries in sorted(by_seed.items()):
        for summary in summaries:
            validity = summary.get("validity") or {"valid": False, "reasons": ["the run has no guards"]}
            if validity.get("valid") is not True:
                reasons = "; ".join(validity.get("reasons") or ["its guards failed"])
                problems.append(f"seed {seed}: {reasons}")
    status: Status = "unproven" if problems else "held"
    subject = f"{attack} against {rule}"
    measured = "; ".join(problems) or "yes"
    return Check(f"valid.{attack}", "valid", subject, status, measured, line=policy.line("defense"))


def _trained(policy: Policy, rule: str, results: Sequence[Result]) -> list[Check]:
    """Whether the audited model had learnt anything: one that has not gives nothing away yet, and proves nothing."""
    runs = [result for result in results if result.spec.attack.name == UNDISTURBED[0]] or results
    if not runs:
        return []
    why = undertrained([facts(run.summary, run.spec.canonical()) for run in runs])
    status: Status = "unproven" if why else "held"
    return [Check("trained", "trained", rule, status, why or "yes", line=policy.line("defense"))]


def _accounted(policy: Policy, rule: str, results: Sequence[Result]) -> list[Check]:
    """Where runs account for an epsilon, that none of them shows more: the accounting would be wrong.

    All of the runs are looked at, so each bound has its share of the error. No check where nothing can be compared.
    """
    claims = [(run, claim) for run in results if (claim := refutable(run.summary, run.spec.canonical())) is not None]
    shown = [(_shown(run, len(claims)), claim) for run, claim in claims]
    pairs = [(bound, claim) for bound, claim in shown if bound is not None]
    if not pairs:
        return []
    bound, accounted = max(pairs, key=lambda pair: pair[0] - pair[1])
    status: Status = "violated" if bound > accounted else "held"
    together = f" (95% sure over {len(claims)} runs)" if len(claims) > 1 else ""
    measured = f"epsilon {accounted:.3f}, at least {bound:.3f} shown{together}"
    return [Check("accounted", "accounted", rule, status, measured, line=policy.line("defense"))]


def _shown(run: Result, runs: int) -> float | None:
    """The epsilon that a run refutes where so many are looked at; as its summary has it if it has no targets."""
    membership = run.summary.get("membership") or {}
    bound = membership.get("epsilon_lower")
    if not is_number(bound):
        return None
    stored = stored_scores(run.targets) if "member" in run.targets.column_names else {}
    scores = [values for name, values in stored.items() if name in of_clients(membership.get("scores") or {})]
    if not scores:
        return float(bound)
    member = run.targets["member"].to_numpy(zero_copy_only=False)
    return epsilon.over_runs([(scores, member)], confidence=epsilon.share(runs))


def _check(policy: Policy, key: str, rule: str, cells: Mapping[str, Figure], limit: float) -> Check:
    """A limit against the worst of some cells: one above it violates it, one without a value leaves it unproven."""
    figure, line = key.rpartition(".")[2], policy.line(key)
    known = {subject: cell for subject, cell in cells.items() if cell.value is not None}
    unknown = {subject: cell for subject, cell in cells.items() if cell.value is None}
    if known:
        subject, worst = max(known.items(), key=lambda item: item[1].value or 0.0)
        if exceeds(worst, limit):
            return Check(key, figure, subject, "violated", f"{worst.value:.3f}{worst.detail}", limit, line)
    if unknown or not known:
        subject, cell = next(iter(unknown.items()), (rule, Figure(reason="no run has it")))
        return Check(key, figure, subject, "unproven", f"cannot be shown to hold ({cell.reason})", limit, line)
    return Check(key, figure, subject, "held", f"{worst.value:.3f}{worst.detail}", limit, line)
