"""What a sweep is: axes, what each point of an axis sets in the spec, and how the result is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Point:
    """One value on an axis. `settings` maps key paths of the spec to values; `x` is its place in a figure."""

    key: str
    label: str
    settings: Mapping[str, Any]
    x: float | None = None


@dataclass(frozen=True)
class Axis:
    """What a sweep varies. `name` is what `--only` calls it."""

    name: str
    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Table:
    """Axes down and across, outer level first, as the paper prints it."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """One panel per point of `panel`, one line per point of `line`, over the points of `x`."""

    panel: str
    line: str
    x: str
    x_label: str


# What a run's summary calls it. Accuracy, precision and recall are of the best round, as in the paper.
TABLE_METRICS = ("accuracy_best", "accuracy_final", "precision", "recall", "test_accuracy")
FIGURE_METRICS = ("accuracy_best", "test_accuracy")
METRICS = (
    *TABLE_METRICS,
    "auc",
    "auc_mean",
    "auc_worst",
    "tpr_at_fpr_01",
    "tpr_at_fpr_001",
    "advantage",
    "train_accuracy",
)


@dataclass(frozen=True)
class Sweep:
    """One table or figure of the paper, or a user's own.

    The cells are the product of the data sets and the axes. `data` are the data sets unless the user names others;
    `base` maps key paths to values that all cells share. `paper` names the file of the printed numbers. With
    `fit_rules`, a rule that must be told how many clients are malicious is told (see `fitted`).
    """

    name: str
    title: str
    about: str
    axes: tuple[Axis, ...]
    layout: Table | Figure
    data: tuple[str, ...] = ("texas100",)
    base: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = TABLE_METRICS
    paper: str | None = None
    fit_rules: bool = False


@dataclass(frozen=True)
class CostSweep:
    """A table of seconds per call, of attacks or of rules, each timed on the same rounds of the same federation.

    `sizes` are federations, as points whose settings make them; there is one simulation a data set and size.
    """

    name: str
    title: str
    about: str
    kind: Literal["attack", "defense"]
    subjects: Axis
    sizes: Axis
    layout: Table
    data: tuple[str, ...] = ("texas100",)
    base: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 20


AnySweep = Sweep | CostSweep
