"""The risk section as its template prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scapegoat.membership.exposure import PRIORS
from scapegoat.membership.metrics import Estimate
from scapegoat.report.measures import written
from scapegoat.report.model import Group, Study
from scapegoat.report.risk import RATE, Risk, Seat, risks, sums_only
from scapegoat.report.wording import attack_name, listed, rule

MOST_STUDIES = 12
"""A page of more settings than this is a sweep's, whose reader came for its tables."""
SHOWN_GROUPS = 8

TITLES: dict[Seat, str] = {
    "watching": "Anyone who sees the model",
    "hostile": "A hostile participant",
    "server": "The server itself",
}


@dataclass(frozen=True)
class Call:
    """One prior's line: what a call "member" is worth."""

    prior: str
    precision: str
    lift: str


@dataclass(frozen=True)
class RiskView:
    """One adversary."""

    title: str
    about: str
    measured: str
    source: str
    calls: tuple[Call, ...]
    exposed: str
    groups: tuple[tuple[str, str, str, str], ...]
    ranked_by: str
    more: int
    surest: tuple[tuple[str, ...], ...]
    reason: str


@dataclass(frozen=True)
class SectionView:
    """The section of one study."""

    rule: str
    adversaries: tuple[RiskView, ...]
    priors: tuple[str, ...]
    declared: str
    server: tuple[str, ...]


def of(studies: Sequence[Study]) -> list[SectionView | None]:
    """A section per study; None where there is nothing to say, or too many settings to say it of."""
    return [_section(study) if len(studies) <= MOST_STUDIES else None for study in studies]


def _section(study: Study) -> SectionView | None:
    found = risks(study)
    if not found:
        return None
    priors = tuple(_one_in(prior) for prior in PRIORS)
    return SectionView(
        rule=rule(found[0].defense),
        adversaries=tuple(_adversary(risk) for risk in found),
        priors=priors,
        declared=(
            f"How rare members are among the records that an adversary would try ({', '.join(priors)}), which no audit "
            f"can measure, and that it puts up with {RATE:.0%} false alarms."
        ),
        server=_server(study, any(risk.seat == "server" for risk in found)),
    )


def _adversary(risk: Risk) -> RiskView:
    seeds = f"{risk.seeds} runs, one per seed" if risk.seeds > 1 else "one run"
    tried = f", which finds most of {risk.tried} tried; intervals allow for that" if risk.tried > 1 else ""
    measured = ""
    if risk.share is not None and risk.alarms is not None:
        measured = (
            f"{risk.found:,} of {risk.members:,} members are found where {risk.false:,} of {risk.others:,} non-members "
            f"are accused too: {percent(risk.share)} at a false alarm rate of {percent(risk.alarms)}."
        )
    exposed = ""
    if risk.exposed is not None and risk.records is not None:
        exposed = (
            f"About {_count(risk.exposed.value)} [{_count(risk.exposed.low)}, {_count(risk.exposed.high)}] of the "
            f"{risk.records:,} records trained on would be found at {RATE:.0%} false alarms, if all are as exposed as "
            "the targets. Rare classes have more than their share of the targets: see by class."
        )
    shown = risk.groups[:SHOWN_GROUPS]
    return RiskView(
        title=TITLES[risk.seat] + (f" ({attack_name(risk.attack)})" if risk.seat == "hostile" else ""),
        about=f"under {rule(risk.defense)}",
        measured=measured,
        source=f"Score {risk.score}{tried}; {seeds}. Exact intervals of 95%, of both rates together.",
        calls=tuple(Call(_one_in(c.prior), percent(c.precision), _lift(c.lift)) for c in risk.calls),
        exposed=exposed,
        groups=tuple(_group(group) for group in shown),
        ranked_by=risk.ranked_by,
        more=len(risk.groups) - len(shown),
        surest=tuple(
            (
                f"{r.record:,}",
                str(r.label),
                "–" if r.client is None else str(r.client),
                _share(r.even),
                *map(_share, r.by_prior),
            )
            for r in risk.surest
        ),
        reason=risk.reason,
    )


def _group(group: Group) -> tuple[str, str, str, str]:
    return group.label, f"{group.found} of {group.members}", f"{group.others:,}", written(group.auc)


def _server(study: Study, measured: bool) -> tuple[str, ...]:
    """What is to be said of the server's own seat."""
    known = sums_only(study)
    names = {kind: [rule(name) for name, found in known.items() if found is kind] for kind in (True, False, None)}
    sentences = [
        "No aggregation rule protects against the server: it sees each client's update before any rule is applied."
        + ("" if measured else " What it could learn was not measured; --set evaluation.server_view=true measures it.")
    ]
    if names[True]:
        sentences.append(
            f"Secure aggregation, under which the server sees the sum alone, works with {listed(names[True])}."
        )
    if names[False]:
        needs = "needs" if len(names[False]) == 1 else "need"
        sentences.append(
            f"{listed(names[False])} {needs} each client's own update, which secure aggregation hides: one protects "
            "against hostile participants, the other against the server, and not both at once."
        )
    if names[None]:
        sentences.append(f"Of {listed(names[None])} it is not known here.")
    return tuple(sentences)


def percent(estimate: Estimate) -> str:
    """A share with its interval."""
    bounds = f" [{_share(estimate.low)}, {_share(estimate.high)}]" if estimate.bounded else ""
    return f"{_share(estimate.value)}{bounds}"


def _share(value: float) -> str:
    """A share in percent: never 0% or 100% of what is only nearly so."""
    text = f"{value:.0%}" if 0.1 <= value <= 0.9 else f"{value:.1%}"
    if text == "100.0%" and value < 1:
        return "> 99.9%"
    return "< 0.1%" if text == "0.0%" and value > 0 else text


def _lift(lift: Estimate) -> str:
    return f"{_times(lift.value)} [{_times(lift.low)}, {_times(lift.high)}]"


def _times(value: float) -> str:
    return f"{value:,.0f} x" if value >= 10 else f"{value:.1f} x"


def _count(value: float) -> str:
    return f"{round(value):,}"


def _one_in(prior: float) -> str:
    return f"1 in {round(1 / prior):,}"
