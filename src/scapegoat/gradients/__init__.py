"""Per-client updates, per-sample gradients and their inner products."""

from scapegoat.gradients.clients import client_gradients
from scapegoat.gradients.clipped import ClippedGradients, clipped_gradients
from scapegoat.gradients.oracle import GradientOracle, SampleGradients
from scapegoat.gradients.private import private_gradients

__all__ = [
    "ClippedGradients",
    "GradientOracle",
    "SampleGradients",
    "client_gradients",
    "clipped_gradients",
    "private_gradients",
]
