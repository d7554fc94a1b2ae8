"""Docstrings of rules' functions, completed from the options' own descriptions so that each is written once."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from scapegoat.combining.rule import Rule

_SHARED = {
    "stack": "The updates of a round: a matrix [n, d], or n vectors as they arrived (tensors or NumPy arrays).",
    "client_ids": "Whose update each is; a memory is kept by these ids. By default the places 0..n-1.",
    "generator": "Source of the rule's randomness.",
    "state": "What the rule remembers from round to round: give the same mapping every round, empty at first.",
    "layout": "(name, shape) of every parameter in the flat vector, in order.",
    "probe": "Maps an update and a seed to class probabilities on noise; see `AggregationContext.output_probe`.",
    "first_seed": "Seed of the first batch of noise.",
    "sampling_rate": "Share of the clients picked per round, from which the epsilon follows.",
    "rounds": "How many rounds are planned, from which the epsilon follows.",
    "sampling": "Whether a fixed number of clients is picked, or each with the same probability (poisson).",
    "score": "Tries a candidate update on the server's own validation data.",
    "weights": "How much each update counts [n]; by default all alike.",
    "parameters": "The global parameters [d] of the round.",
    "root": "The server's own update [d], from records of its own.",
}
"""Parameters that are not options of a rule: what its class takes from the context."""

_RETURNS = """
Returns
-------
An `Aggregate`: `update` [d], and `kept` and `rejected` [n] for the updates as they arrived.
"""


def describe(function: Callable[..., Any], rule: type[Rule]) -> None:
    """Add the sections Parameters and Returns to the docstring of the function behind a rule."""
    lines = []
    for name in inspect.signature(function).parameters:
        option = rule.model_fields.get(name)
        said = _SHARED.get(name, "") if option is None else option.description or ""
        lines.append(textwrap.fill(f"{name}: {said}", 116, subsequent_indent="    "))
    text, mark, examples = inspect.cleandoc(function.__doc__ or "").partition("Examples\n--------\n")
    parameters = "Parameters\n----------\n" + "\n".join(lines)
    function.__doc__ = f"{text.rstrip()}\n\n{parameters}\n{_RETURNS}\n{mark}{examples}".rstrip() + "\n"
