"""What strategies and aggregators are called. Known without a framework, so that a report can name them."""

from __future__ import annotations

# Names that a reader of a framework's own would look for; every other rule is called by its own name in CamelCase.
NAMES = {
    "atm": "AngularTrimmedMean",
    "clipped_atm": "ClippedAngularTrimmedMean",
    "memory_atm": "MemoryAngularTrimmedMean",
    "reputation_atm": "ReputationAngularTrimmedMean",
    "fedavg": "Mean",
    "median": "CoordinateMedian",
    "dp": "DifferentialPrivacy",
    "fltrust": "FLTrust",
    "deepsight": "DeepSight",
    "arc": "AdaptiveRobustClipping",
    "mda": "MinimumDiameterAveraging",
    "foolsgold": "FoolsGold",
    "fldetector": "FLDetector",
    "signguard": "SignGuard",
}


def class_name(rule: str) -> str:
    """The class's name for a registered rule."""
    return NAMES.get(rule, "".join(part.capitalize() for part in rule.split("_")))
