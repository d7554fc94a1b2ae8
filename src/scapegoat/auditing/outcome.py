"""What an audit found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scapegoat import report
from scapegoat.auditing.elimination import LeftOut
from scapegoat.auditing.gate import Gate, hold
from scapegoat.auditing.policy import Policy, read_policy
from scapegoat.experiments.executors import Failure
from scapegoat.experiments.run import Result
from scapegoat.experiments.spec import describe
from scapegoat.findings import Shown
from scapegoat.membership.scores import registry
from scapegoat.report.planned import Plan
from scapegoat.run_folders import unsealed_words


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """What an audit found. In a notebook it shows itself.

    Examples
    --------
    >>> found = Audit(results=())
    >>> found.attacks, len(found.results), found.plan is None
    ((), 0, True)
    """

    results: tuple[Result, ...]
    """The finished runs, one per attack, defense and seed."""
    failures: tuple[Failure, ...] = ()
    """Runs that ended in an error, with the reason."""
    command: str = ""
    """What the page says it was made with."""
    title: str = ""
    """Heading of the page."""
    left_out: tuple[LeftOut, ...] = ()
    """Runs of rules that were eliminated early."""
    references: int = 0
    """Reference federations that the scores were helped by."""
    plan: Plan | None = None
    """What to do about it: rule, protections, rounds; None if none was searched."""
    no_plan: str = ""
    """Why no plan was searched though one was asked for."""
    plan_results: tuple[Result, ...] = ()
    """The runs of the recommended setting."""
    spread: bool = False
    """Whether seeds after the first went only where they decide: a cell then has no more to show than its own."""
    unsealed: int = 0
    """Runs that were there already and that nothing vouches for."""
    _page: list[report.Page] = field(default_factory=list, repr=False)

    @property
    def page(self) -> report.Page:
        """The report as data."""
        if not self._page:
            # A reference federation is no cell: it has a place in the scores of others.
            failures = [failure for failure in self.failures if not failure.spec.evaluation.reference]
            # A cell has room for who eliminated the rule; the notes say by what figures.
            missing = {
                (run.spec.attack.name, describe(run.spec.defense)): run.reason.partition(":")[0]
                for run in self.left_out
            }
            page = report.build([*self.results, *failures], title=self.title, command=self.command, missing=missing)
            page = replace(page, notes=(*page.notes, *self.notes))
            self._page.append(page if self.plan is None else report.with_plan(page, self.plan))
        return self._page[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the audit, and why."""
        reasons = {describe(run.spec.defense): run.reason for run in self.left_out}
        notes = [f"{unsealed_words(self.unsealed)}."] if self.unsealed else []
        notes += [f"{rule} did not get all attacks and seeds: {reason}." for rule, reason in reasons.items()]
        notes += [self.no_plan] if self.no_plan else []
        if not self.references and all(r.spec.evaluation.design == "coin" for r in self.results):
            scores = ", ".join(name for name, cls in registry.classes() if cls.needs_references and not cls.oracle)
            notes.append(
                f"No reference federations: the scores that compare with them ({scores}) were not tried. They can find "
                "members that others miss, above all at low false positive rates; --references 16 adds them."
            )
        unfit = [r for r in (*self.results, *self.plan_results) if "references_reason" in r.summary["membership"]]
        if unfit:
            cells = dict.fromkeys(f"{r.spec.attack.name} against {describe(r.spec.defense)}" for r in unfit)
            notes.append(
                f"The reference federations do not fit {', '.join(cells)}: there the attack, not the record, decides "
                "the margins, and scores that compare with references were left out. --rehearse trains references "
                "under the same attack and rule."
            )
        return tuple(notes)

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks of the matrix."""
        return tuple(dict.fromkeys(result.spec.attack.name for result in self.results))

    @property
    def verdict(self) -> report.Verdict:
        """The answer in plain words, with the recommended rule."""
        return self.page.studies[0].verdict

    def as_dict(self) -> dict[str, Any]:
        """What `scapegoat audit --json` prints: the verdict and every run's summary, named by the page's labels."""
        labels = {row["spec_hash"]: row for row in report.run_rows(self.page.studies[0])}
        runs = []
        for result in self.results:
            label = labels.get(result.summary["spec_hash"], result.summary)
            runs.append({**result.summary, "attack": label["attack"], "defense": label["defense"]})
        failures = [{"spec_hash": f.name, "reason": f.reason} for f in self.failures]
        left_out = [
            {"attack": run.spec.attack.name, "defense": describe(run.spec.defense), "reason": run.reason}
            for run in self.left_out
        ]
        found = {"runs": runs, "failures": failures, "left_out": left_out, "notes": list(self.notes)}
        found["plan"] = None if self.plan is None else self.plan.as_dict()
        return {**report.verdict_values(self.verdict), "risk": report.risk_values(self.page.studies[0]), **found}

    def __repr__(self) -> str:
        count, failed = len(self.results), len(self.failures)
        lost = f", {failed} failed" if failed else ""
        return f"Audit({self.verdict.status}: {self.verdict.headline} {count} run{'' if count == 1 else 's'}{lost})"

    def check(self, policy: Policy | Mapping[str, Any] | str | Path) -> Gate:
        """Hold the figures against a policy, a mapping or a YAML file: `gate.met`, and `gate.failures` if it is not."""
        return hold(self, policy if isinstance(policy, Policy) else read_policy(policy))
