"""What a reader should know of the data and the models before believing the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scapegoat.report.measures import no_better

_MOST = 12
_LONGEST = 600
# From here on an AUC of a model that was not trained is worth a word; fewer than 600 targets often make as much.
_BEGINNING = 0.55


def remarks(summaries: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What was done to the data, each said once, and what models could do that have learnt nothing, or nothing yet."""
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
    if initial := [auc for s in summaries if (auc := _initial_auc(s)) >= _BEGINNING]:
        remarks.append(
            f"The model that training began with tells members from others with an AUC of {max(initial):.2f} already: "
            "figures near that show nothing that training let out."
        )
    return tuple(remarks)


def _initial_auc(summary: Mapping[str, Any]) -> float:
    """Of the model before the first round, where somebody was given it; one half where nobody tells."""
    membership = summary.get("membership")
    found = membership.get("initial_auc") if isinstance(membership, Mapping) else None
    return float(found) if isinstance(found, float) else 0.5


def _has_other_metric(summary: Mapping[str, Any]) -> bool:
    """Whether the model is no classifier."""
    return isinstance(summary.get("task"), str) and summary.get("metric") not in (None, "accuracy")


def _is_figure(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
