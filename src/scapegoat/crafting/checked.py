"""Crafting, checked: a view lends the federation's own tensors, and an attack that writes to them ends the run.

Copies of all peers would cost a round's memory once more. PyTorch counts the writes to a tensor and all its views; what
goes past its count (`tensor.data`, `tensor.numpy()`, the parameters of `view.gradients.model`) is not seen.
"""

from __future__ import annotations

from scapegoat.crafting.contract import Attack, AttackerView, Crafted
from scapegoat.errors import InputError


def craft_checked(attack: Attack, view: AttackerView) -> Crafted:
    """What `attack.craft(view)` answers; InputError if that changed in place what the view lends."""
    lent = {
        "the honest updates (view.peers)": view.peers,
        "the global parameters (view.parameters)": view.parameters,
        "the targets (view.targets.x)": view.targets.x,
        "the targets' labels (view.targets.y)": view.targets.y,
        "the wrong labels (view.wrong_labels)": view.wrong_labels,
        "the mask data (view.mask.x)": view.mask.x,
        "the mask labels (view.mask.y)": view.mask.y,
    }
    before = {what: tensor._version for what, tensor in lent.items()}
    crafted = attack.craft(view)
    for what, tensor in lent.items():
        if tensor._version != before[what]:
            # Inputs that the attack only passed on can have been changed by a model that works on its input in place.
            or_model = ", or the model in its forward pass," if what.endswith(".x)") else ""
            name = attack.name or type(attack).__name__
            raise InputError(f"attack {name}{or_model} changed {what} in place; work on a copy (.clone())")
    return crafted
