"""Views of small made-up rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scapegoat import attacks
from scapegoat.attacks import Attack, AttackerView, Samples
from scapegoat.crafting.search import Products
from scapegoat.gradients import GradientOracle
from scapegoat.modelling.flat_model import FlatModel

ATTACKS = ["passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia", "blend", "alie", "ipm", "mimic"]
ATTACKS += ["sleeper", "alternating", "few_targets", "colluders", "shadow", "tangent"]

AT_ONCE = {"sleeper": {"until": 0}, "alternating": {"every": 1}, "few_targets": {"few": 5, "stint": 1}}
"""What makes an attack poison in the first round, and in every other."""


def made(name: str, **options: Any) -> Attack:
    """An attack that does not rest."""
    return attacks.get(name, **AT_ONCE.get(name, {}), **options)


def samples(count: int, shape: tuple[int, ...], classes: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(
        torch.rand(count, *shape, generator=generator), torch.randint(classes, (count,), generator=generator)
    )


def mlp(features: int = 10, classes: int = 4, seed: int = 0) -> FlatModel:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(features, 12), nn.ReLU(), nn.Linear(12, classes))
    return FlatModel(module, (features,), classes)


def view(
    model: FlatModel | None = None,
    peers: Tensor | int = 5,
    draw: Callable[[int, tuple[int, ...], int, int], Samples] = samples,
    **changes: Any,
) -> AttackerView:
    """A round in which the peers have trained on batches of their own."""
    model = mlp() if model is None else model
    vector = changes.pop("parameters", model.initial())
    if isinstance(peers, int):
        batches = [draw(8, model.input_shape, model.classes, 100 + i) for i in range(peers)]
        rows = [model.gradient(vector, batch.x, batch.y)[0] for batch in batches]
        peers = torch.stack(rows) if rows else torch.empty(0, model.d)
    targets = draw(16, model.input_shape, model.classes, 1)
    mask = draw(20, model.input_shape, model.classes, 2)
    senders = changes.pop("senders", 1)

    def honest() -> Tensor:
        batches = [draw(8, model.input_shape, model.classes, 200 + i) for i in range(senders)]
        return torch.stack([model.gradient(vector, batch.x, batch.y)[0] for batch in batches])

    given: dict[str, Any] = {
        "round": 0,
        "parameters": vector,
        "gradients": GradientOracle(model, vector),
        "targets": targets,
        "wrong_labels": (targets.y + 1) % model.classes,
        "mask": mask,
        "peers": peers,
        "honest": honest,
        "senders": senders,
        "local": "gradient",
        "generator": torch.Generator().manual_seed(3),
        "trim": 1,
    }
    return AttackerView(**{**given, **changes})


def rows(tensor: Tensor) -> list[Any]:
    return list(tensor.double().numpy())


def products_of(attack: Any, masks: list[Any], peers: list[Any]) -> Products:
    """Inner products of written-out vectors."""
    m, p = np.stack(masks), np.stack(peers)
    return Products(float(attack @ attack), p @ attack, m @ attack, m @ m.T, m @ p.T)
