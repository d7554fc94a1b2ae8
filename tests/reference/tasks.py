"""Losses, margins and metrics of tasks as their definitions read, record by record in plain Python."""

from __future__ import annotations

import itertools
import math


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def cross_entropy(logits: list[float], label: int) -> float:
    top = max(logits)
    return top + math.log(sum(math.exp(z - top) for z in logits)) - logits[label]


def binary_cross_entropy(logit: float, label: float) -> float:
    return label * _softplus(-logit) + (1 - label) * _softplus(logit)


def label_cross_entropy(logits: list[float], labels: list[float]) -> float:
    return sum(binary_cross_entropy(z, y) for z, y in zip(logits, labels, strict=True)) / len(labels)


def squared_error(outputs: list[float], targets: list[float]) -> float:
    return sum((o - t) ** 2 for o, t in zip(outputs, targets, strict=True)) / len(targets)


def class_margin(logits: list[float], label: int) -> float:
    wrong = [cross_entropy(logits, other) for other in range(len(logits)) if other != label]
    return min(wrong) - cross_entropy(logits, label)


def binary_margin(logit: float, label: int) -> float:
    return binary_cross_entropy(logit, 1 - label) - binary_cross_entropy(logit, label)


def label_margin(logits: list[float], labels: list[int]) -> float:
    """Over all other label sets; the loss of a record is taken as the sum over its labels."""
    size = len(labels)
    truth = size * label_cross_entropy(logits, labels)
    others = (other for other in itertools.product((0, 1), repeat=size) if list(other) != labels)
    return min(size * label_cross_entropy(logits, list(other)) for other in others) - truth


def value_margin(output: float, target: float, spread: float) -> float:
    wrong = min((output - target - spread) ** 2, (output - target + spread) ** 2)
    return wrong - (output - target) ** 2


def explained_variance(outputs: list[float], targets: list[float]) -> float:
    mean = sum(targets) / len(targets)
    around = sum((t - mean) ** 2 for t in targets)
    off = sum((o - t) ** 2 for o, t in zip(outputs, targets, strict=True))
    return max(0.0, 1 - off / around)
