"""Fast passes that are no feature: sparse products, GroupNorm, sketches."""
