"""Mixup: clients train between records, never on one."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from scapegoat.errors import InputError
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.protecting.contract import ClientProtection, Examples, register
from scapegoat.randomness import numpy_generator


@register("mixup")
class Mixup(ClientProtection):
    """Clients train on m · record + (1 - m) · another of the batch, m ~ Beta(alpha, alpha) (Zhang et al., 2018)."""

    changes_examples = True
    mixes_records = True

    alpha: Annotated[float, Field(gt=0)] = 0.2
    """Both parameters of the Beta distribution that shares are drawn from: small ones mix little."""

    def fits(self, model: FlatModel) -> None:
        """Inputs must be numbers that can be averaged, not the places of words in a table."""
        if not model.input_dtype.is_floating_point:
            raise InputError(f"federation.protect: mixup averages inputs, and the model takes {model.input_dtype}")

    def examples(self, examples: Examples, seed: int) -> Examples:
        """The batch mixed with itself in another order; inputs and targets alike."""
        source = numpy_generator(seed, "mixup")
        share = float(source.beta(self.alpha, self.alpha))
        other = torch.from_numpy(source.permutation(len(examples.x))).to(examples.x.device)
        return Examples(
            share * examples.x + (1 - share) * examples.x[other],
            share * examples.targets + (1 - share) * examples.targets[other],
        )
