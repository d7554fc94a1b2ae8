"""Where the verdict points a reader whom no aggregation rule can help: to the plan, or to what finds one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scapegoat.report.model import Page, Verdict
from scapegoat.report.planned import Plan

CAN = "Shorter training, regularisation or differential privacy can: "
FIND_A_PLAN = f"{CAN}scapegoat audit --accuracy-cost 0.03 finds out which, and at what price."


def with_plan(page: Page, plan: Plan) -> Page:
    """A page with a plan, and with verdicts that point to it."""
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
