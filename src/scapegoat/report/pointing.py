"""Where the verdict points a reader whom no aggregation rule can help: to the plan, or to what finds one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scapegoat.report.model import Page, Verdict
from scapegoat.report.planned import Plan

CAN = "Shorter training, regularisation or differential privacy can: "
FIND_A_PLAN = f"{CAN}scapegoat audit --accuracy-cost 0.03 finds out which, and at what price."


def with_plan(page: Page, plan: Plan) -> Page:
    """Put a plan on a page, and let the verdicts point to it.

    Parameters
    ----------
    page: the page of an audit's runs.
    plan: what the search around these runs recommends.

    Returns
    -------
    The same page with the plan. Where a verdict named the command that finds one, it names the plan.

    Examples
    --------
    >>> from scapegoat.report.planned import Option, Plan
    >>> from scapegoat.membership.metrics import Estimate
    >>> today = Option(
    ...     rule={"name": "fedavg"}, protect=(), rounds=9, leakage=Estimate(0.7, 0.6, 0.8), attack="passive",
    ...     watching=Estimate(0.7, 0.6, 0.8), test_accuracy=0.6, under_attack=0.6, cost=0.0, attacks=("passive",),
    ...     complete=True, runs=(),
    ... )
    >>> plan = Plan(0.03, today, today, (today,), headline="Nothing better was found.")
    >>> with_plan(Page("Membership leakage on hospital"), plan).plan.headline
    'Nothing better was found.'
    """
    studies = tuple(replace(study, verdict=_pointed(study.verdict, plan)) for study in page.studies)
    return replace(page, studies=studies, plan=plan)


def _pointed(verdict: Verdict, plan: Plan) -> Verdict:
    if plan.changes:
        where = f"{CAN}the plan below says which, and at what price."
    else:
        where = "Nothing else that was tried within the budget does clearly better: see the plan below."

    def told(sentences: Iterable[str]) -> tuple[str, ...]:
        return tuple(where if sentence == FIND_A_PLAN else sentence for sentence in sentences)

    watching = verdict.watching
    if watching is not None:
        watching = replace(watching, sentences=told(watching.sentences))
    return replace(verdict, sentences=told(verdict.sentences), watching=watching)
