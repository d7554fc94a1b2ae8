"""What a report page holds, as plain data: nothing here knows where runs come from or how a page is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scapegoat.membership.metrics import Estimate
from scapegoat.report.facts import Facts
from scapegoat.report.planned import Plan
from scapegoat.report.told import Told

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Curves:
    """A run by round; NaN where a figure was not evaluated."""

    round: Integers
    test_accuracy: Floats
    attack_accuracy: Floats
    attack_auc: Floats
    loss: Floats


@dataclass(frozen=True)
class Roc:
    """Corners of the ROC of the final scores, from (0, .) to (1, 1); `members` and `others` set its resolution."""

    fpr: Floats
    tpr: Floats
    members: int
    others: int


@dataclass(frozen=True)
class AggregatedRows:
    """The rows that were aggregated, round after round: rows `start[i]:start[i+1]` belong to `round[i]`.

    `angle` is each row's mean angle to the other rows in radians, `norm` its length. `scapegoat` marks an honest row
    that was discarded while a malicious row of the same round was kept.
    """

    round: Integers
    start: Integers
    client: Integers
    malicious: Flags
    kept: Flags
    rejected: Flags
    scapegoat: Flags
    angle: Floats
    norm: Floats


@dataclass(frozen=True)
class ClientFate:
    """What became of one client's updates over a run.

    `contested` counts its rounds in which a hostile row was aggregated too: only there can it be the scapegoat.
    """

    client: int
    malicious: bool
    rounds: int
    kept: int
    discarded: int
    rejected: int
    contested: int
    scapegoat: int


@dataclass(frozen=True)
class ExposedTarget:
    """A member, and how plainly the attacker sees it.

    `mistaken` counts the non-members that score at least as high: those that the attacker would have to call members
    too.
    """

    target: int
    record: int
    label: int
    client: int | None
    score: float
    mistaken: int
    called_rate: float


@dataclass(frozen=True)
class ClientExposure:
    """How many of a client's targets the attack called members in its best round."""

    client: int
    members: int
    called: int


@dataclass(frozen=True)
class RunDetail:
    """One run behind a cell. The parts that its files do not give are None."""

    hash: str
    seed: int
    spec: Mapping[str, Any]
    best_round: int | None = None
    seconds: float | None = None
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    told: Told | None = None
    curves: Curves | None = None
    roc: Roc | None = None
    rows: AggregatedRows | None = None
    fates: tuple[ClientFate, ...] = ()
    exposed: tuple[ExposedTarget, ...] = ()
    exposure: tuple[ClientExposure, ...] = ()
    targets: int = 0
    members: int = 0
    aggregation: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Cell:
    """One `attack` against one `defense`: `measures` over all its `runs`, or the `reason` why there are none."""

    attack: str
    defense: str
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    runs: tuple[RunDetail, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Matrix:
    """`attacks` (rows) against `defenses` (columns). `cells` holds every pair; `baseline` is watching under FedAvg."""

    attacks: tuple[str, ...]
    defenses: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    baseline: tuple[str, str] | None = None


Status = Literal["closed", "undecided", "open", "unjudged"]
"""How a rule stands."""

Answer = Literal["closed", "open", "undecided", "invalid", "undertrained"]
"""How things stand altogether, for programs."""


@dataclass(frozen=True)
class Group:
    """The leakage of the records of one class or one client; its interval holds for all groups at once.

    `found` counts the members that a threshold finds which lets at most 1% of the `others` through.
    """

    kind: Literal["class", "client"]
    name: int
    members: int
    others: int
    found: int
    auc: Estimate

    @property
    def label(self) -> str:
        """As prose calls it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Part:
    """One of the verdict's two questions, answered. `decided_by` names the metric that decided, `figure` its value."""

    status: Answer
    headline: str
    sentences: tuple[str, ...] = ()
    decided_by: str = ""
    figure: Estimate | None = None
    group: Group | None = None


@dataclass(frozen=True)
class Judgement:
    """What the runs say about one defense, beside merely watching under FedAvg.

    `excess` is the worst difference to the baseline over attacks and over accuracy and AUC; its bounds are those of the
    worst case. `ceiling` is the most that no interval rules out, that of TPR at 1% FPR included. `leaking` names the
    (attack, measure) pairs that are demonstrably above the baseline. `deciding` is the (attack, measure) pair that
    settled the status, `decided` its difference to the baseline: of an open rule the largest that is demonstrated,
    otherwise the one that comes closest to being too large. `cost` is the test accuracy lost against FedAvg with nobody
    attacking, `under_attack` the lowest test accuracy over the attacks. `epsilon` is accounted, of an `epsilon_unit`;
    `refutable` is what is accounted at a delta at which the lower bound can refute it, if anything is;
    `epsilon_lower` the largest lower bound that its runs support together, always of a record, `epsilon_reachable` the
    most that any scores of their targets could have supported; `epsilon_if_gaussian` are the bounds that hold if the
    noise that was accounted for is Gaussian.
    """

    defense: str
    status: Status
    worst_attack: str | None = None
    excess: Estimate | None = None
    ceiling: float | None = None
    worst: Mapping[str, tuple[str, Estimate]] = field(default_factory=dict)
    leaking: tuple[tuple[str, str], ...] = ()
    deciding: tuple[str, str] | None = None
    decided: Estimate | None = None
    cost: Estimate | None = None
    under_attack: float | None = None
    too_costly: bool = False
    epsilon: float | None = None
    epsilon_unit: str = ""
    refutable: float | None = None
    epsilon_lower: float | None = None
    epsilon_reachable: float | None = None
    epsilon_if_gaussian: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def refuted(self) -> bool:
        """Whether the runs show more leakage than the accounted epsilon allows: then the accounting has a bug."""
        return self.refutable is not None and self.epsilon_lower is not None and self.epsilon_lower > self.refutable


@dataclass(frozen=True)
class Verdict:
    """The answer in plain words. `text` is the headline and the sentences together.

    `watching` answers whether the model gives its members away at all, to anyone who sees it (None if nobody merely
    watched); `hostile` what a hostile participant adds, and what stops it. `status` is the worse of the two, unless the
    runs allow no answer. `recommended` is None where no rule is good enough, or none can be told apart; `least` then
    still names the one that the verdict is about. `seeds_needed` estimates how many seeds would settle it. The prose
    is `headline` and `sentences`; `baseline` holds the figures of watching under FedAvg, `judgements` one entry per
    rule, and `caveats` what a reader should know beside it.
    """

    headline: str
    sentences: tuple[str, ...]
    recommended: str | None
    status: Answer
    least: str | None = None
    watching: Part | None = None
    hostile: Part = Part("undecided", "")
    seeds_needed: int | None = None
    baseline: Mapping[str, Estimate] = field(default_factory=dict)
    judgements: tuple[Judgement, ...] = ()
    caveats: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Headline and sentences as one paragraph."""
        return " ".join((self.headline, *self.sentences))

    @property
    def decided_by(self) -> str:
        """The metric that decided: that of the part which is worse."""
        parts = [part for part in (self.watching, self.hostile) if part is not None and part.decided_by]
        return next((p.decided_by for p in parts if p.status == self.status), parts[0].decided_by if parts else "")

    def of(self, defense: str) -> Judgement | None:
        """The judgement on a defense."""
        return next((j for j in self.judgements if j.defense == defense), None)


@dataclass(frozen=True)
class Study:
    """All runs that share a setting: data, model and federation. `title` says what sets it apart from the others.

    `settings` are the setting's keys and values, `matrix` its cells, `verdict` what they say; `rounds`, `clients` and
    `malicious` are the federation's, where all runs agree.
    """

    title: str
    settings: Mapping[str, str]
    matrix: Matrix
    verdict: Verdict
    rounds: int | None = None
    clients: int | None = None
    malicious: int | None = None


@dataclass(frozen=True)
class PaperCell:
    """Our figure (`ours`) beside the `paper`'s, or the `reason` why there is none of ours."""

    ours: Estimate | None = None
    paper: float | None = None
    reason: str = ""

    @property
    def differs(self) -> bool:
        """Whether the paper's figure lies outside our interval (never claimed without an interval)."""
        if self.paper is None or self.ours is None or not self.ours.bounded:
            return False
        return not self.ours.low <= self.paper <= self.ours.high


@dataclass(frozen=True)
class PaperTable:
    """A table in the paper's layout.

    `rows` and `columns` are header tuples of one or more levels, e.g. ("Location30", "FedPoisonMIA") and
    ("ATM", "IID"); neighbours with the same outer level share one header. `row_titles` names the levels of `rows`.
    `cells[i][j]` belongs to row i and column j. `mark` is what a marked cell says. `title` and `caption` stand above
    it, `digits` after the decimal point, and `unit` behind the figures.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[PaperCell, ...], ...]
    row_titles: tuple[str, ...] = ()
    caption: str = ""
    digits: int = 3
    unit: str = ""
    mark: str = "the paper's figure is outside our 95% interval"

    def __post_init__(self) -> None:
        if len(self.cells) != len(self.rows) or any(len(row) != len(self.columns) for row in self.cells):
            raise ValueError(f"table {self.title!r}: cells must be {len(self.rows)} rows of {len(self.columns)}")
        for name, headers in (("rows", self.rows), ("columns", self.columns)):
            if len({len(header) for header in headers}) > 1:
                raise ValueError(f"table {self.title!r}: all {name} must have equally many header levels")


@dataclass(frozen=True)
class Line:
    """One line of a figure, called `label`: an estimate `y` for each `x`, None for a gap; `paper` has the paper's."""

    label: str
    x: tuple[float, ...]
    y: tuple[Estimate | None, ...]
    paper: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.paper and len(self.paper) != len(self.x)):
            raise ValueError(f"line {self.label!r}: x, y and paper must have the same length")


@dataclass(frozen=True)
class Panel:
    """One small chart of a figure, with its `title` and `lines`; in the paper's figures, one per defense."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class PaperFigure:
    """A figure as in the paper: `panels` side by side, one line per attack, error bars from the intervals.

    `title` and `caption` stand beside it, `x_label` and `y_label` at the axes; `y_range` is what the y axis shows.
    """

    title: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    caption: str = ""
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Section:
    """A part of the page beside the audit: a `title`, `text`, then `tables`, then `figures`."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[PaperTable, ...] = ()
    figures: tuple[PaperFigure, ...] = ()


@dataclass(frozen=True)
class Page:
    """A report called `title`. `sections` come before the `studies`: a sweep's reader came for its tables and figures.

    `source`, `command`, `created` and `versions` say where it comes from, `notes` what was left out and
    what is not vouched for, and `plan` what the audit recommends.
    """

    title: str
    studies: tuple[Study, ...] = ()
    sections: tuple[Section, ...] = ()
    source: str = ""
    command: str = ""
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    plan: Plan | None = None
