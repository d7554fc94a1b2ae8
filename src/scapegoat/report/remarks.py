"""What a reader should know of the data and the models before believing the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scapegoat.report.measures import no_better

_MOST = 12
_LONGEST = 600


def remarks(summaries: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What was done to the data, each said once, and whether models are no better than the most frequent class."""
    said: dict[str, None] = {}
    for summary in summaries:
        notes = summary.get("data_notes")
        for note in notes if isinstance(notes, list) else []:
            if isinstance(note, str):
                said[f"Data: {note[:_LONGEST]}."] = None
    for task, metric in sorted({(s["task"], s["metric"]) for s in summaries if _has_other_metric(s)}):
        said[f"Task: {task}. What is called the model's accuracy on this page is its {metric}."] = None
    finished = [s for s in summaries if _is_figure(s.get("test_accuracy")) and _is_figure(s.get("test_majority"))]
    weak = [s for s in finished if no_better(s["test_accuracy"], s["test_majority"])]
    remarks = list(said)[:_MOST]
    if weak:
        share = max(s["test_majority"] for s in weak)
        answer = "same" if any(map(_has_other_metric, weak)) else "most frequent class"
        remarks.append(
            f"In {len(weak)} of {len(finished)} runs the model's test accuracy is no better than always answering the "
            f"{answer} ({share:.3f}): such a model is of no use, whatever it leaks."
        )
    return tuple(remarks)


def _has_other_metric(summary: Mapping[str, Any]) -> bool:
    """Whether the model is no classifier."""
    return isinstance(summary.get("task"), str) and summary.get("metric") not in (None, "accuracy")


def _is_figure(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
