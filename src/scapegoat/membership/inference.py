"""Who is called a member, and with what score."""

from __future__ import annotations

import torch
from torch import Tensor


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """The true label's logit minus the largest other logit: positive when the model predicts the true label.

    A model that has diverged (NaN logits) tells nothing: its margins are minus infinity.
    """
    truth = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    margin = truth - others
    return torch.where(margin.isnan(), torch.full_like(margin, -torch.inf), margin)


def called(margin: Tensor) -> Tensor:
    """The paper's rule: a target is called a member when the model predicts its true label."""
    return margin > 0
