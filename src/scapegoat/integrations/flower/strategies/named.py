"""A named strategy for every rule, like Flower's own: `AngularTrimmedMean(trim=1, fraction_train=0.8)`."""

from __future__ import annotations

from scapegoat.aggregation import registry as rules
from scapegoat.integrations.flower.strategies.strategy import RobustAggregation
from scapegoat.integrations.shared.named import named_classes
from scapegoat.integrations.shared.names import class_name

# Flower's own strategies that do what a rule of ours does; Krum, MultiKrum and Bulyan share their names.
FLOWERS = {"FedAvg": "fedavg", "FedMedian": "median", "FedTrimmedAvg": "trimmed_mean"}


def rule_name(strategy: str) -> str:
    """The rule that a strategy of ours or of Flower's stands for; a name that is neither stays."""
    ours = {class_name(name): name for name, _ in rules.classes()}
    return ours.get(strategy, FLOWERS.get(strategy, strategy))


strategies = named_classes(RobustAggregation, "scapegoat.integrations.flower")
