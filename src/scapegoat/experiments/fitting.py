"""What suits what: a model for a data set, a rule's strength for the number of hostile clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapegoat import aggregation
from scapegoat.data import registry as data_sets
from scapegoat.federation import FederationSetting

IMAGES = ("cifar10", "stl10", "fer2013", "fashion_mnist", "images")


def fitting_model(data: Any) -> dict[str, Any]:
    """ResNet-20 for pictures, a fully connected model for records."""
    name = data_sets.parse(data).name
    return {"name": "resnet20" if name in IMAGES else "mlp"}


def fit_defense(defense: Any, federation: FederationSetting) -> Any:
    """A defense as the spec writes it, its trim (or assumed number of hostile clients) set where the user did not.

    The paper fixes one hostile client of ten and a trim of 1. With m of them a rule must be able to set m aside:
    b = m, as far as 2b < updates allows.
    """
    if isinstance(defense, list | tuple):
        return [fit_defense(stage, federation) for stage in defense]
    if isinstance(defense, aggregation.Rule):
        return defense.canonical()
    stated: dict[str, Any] = dict(defense) if isinstance(defense, Mapping) else {"name": defense}
    fields = type(aggregation.parse(stated)).model_fields
    strength = max(1, min(federation.malicious, (federation.updates_per_step - 1) // 2))
    for option in ("trim", "malicious"):
        if option in fields and option not in stated and strength > 1:
            stated[option] = strength
    return stated
