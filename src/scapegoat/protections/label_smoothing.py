"""Label smoothing: clients do not insist on the label."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scapegoat.errors import InputError
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.protecting.contract import ClientProtection, Examples, register


@register("label_smoothing")
class LabelSmoothing(ClientProtection):
    """Clients train on (1 - share) · label + share / classes (Szegedy et al., 2016, section 7)."""

    changes_examples = True

    share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the label that is spread over all classes."""

    def fits(self, model: FlatModel) -> None:
        """Labels must be classes: there is nothing to spread a number over."""
        if model.task.labels != "classes":
            raise InputError(
                f"federation.protect: label_smoothing spreads classes, and task={model.task.name} has none"
            )

    def examples(self, examples: Examples, seed: int) -> Examples:
        """The same inputs with softer targets."""
        classes = examples.targets.shape[1]
        return Examples(examples.x, examples.targets * (1 - self.share) + self.share / classes)
