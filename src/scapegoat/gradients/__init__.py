"""Per-client updates, per-sample gradients and their inner products."""

from scapegoat.gradients.clients import client_gradients
from scapegoat.gradients.oracle import GradientOracle, SampleGradients

__all__ = ["GradientOracle", "SampleGradients", "client_gradients"]
