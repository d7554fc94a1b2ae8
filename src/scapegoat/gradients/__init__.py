"""Per-client updates, per-sample gradients and their inner products."""
