"""A named aggregator for every rule: `AngularTrimmedMean(trim=1)`, `ReputationAngularTrimmedMean()`, ..."""

from __future__ import annotations

from scapegoat.integrations.nvflare.aggregator import RobustAggregator
from scapegoat.integrations.shared.named import named_classes

aggregators = named_classes(RobustAggregator, "scapegoat.integrations.nvflare")
