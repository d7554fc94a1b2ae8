"""Targets, scores, and metrics with confidence intervals."""

from scapegoat.membership.metrics import Calls, Estimate, auc, auc_value, calls, rate, tpr_at_fpr

__all__ = ["Calls", "Estimate", "auc", "auc_value", "calls", "rate", "tpr_at_fpr"]
