"""What an audit of a user's own app or job needs: the model, the targets with the truth about them, mask data."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from scapegoat.attacks import Attack, Samples
from scapegoat.attacks import registry as attacks
from scapegoat.errors import InputError
from scapegoat.extending.resolve import resolve_callable
from scapegoat.files import PRIVATE, whole, write_text
from scapegoat.integrations.shared.hostile import HostileConfig, draw_wrong_labels
from scapegoat.integrations.shared.layout import ReplyKind


@dataclass(frozen=True)
class AuditMaterial:
    """Written by the owner of the app, who knows who is in the training data.

    `model` builds the app's torch module and must be importable by name. `targets` are the records whose membership is
    asked for, `members` [targets] the truth; `mask` are records of the attacker's own. `test` gives the report its test
    accuracy. Inputs are as the module takes them. Only the hostile participant's part is handed to it: no truth.
    `replies` and `local` say what clients send (arrays, updates or differences; after local epochs, or a gradient), and
    `name` is what the report calls the app. `trim` is what attacks that know the rule are told: how many updates it
    trims at each end. A FLARE job with an aggregator of ours says so itself.

    Examples
    --------
    >>> def net() -> nn.Module:
    ...     return nn.Linear(3, 2)
    >>> targets = Samples(torch.randn(10, 3), torch.randint(2, (10,)))
    >>> mask = Samples(torch.randn(5, 3), torch.randint(2, (5,)))
    >>> AuditMaterial(net, targets, members=torch.arange(10) < 5, mask=mask, name="wards").local
    'epochs'
    """

    model: Callable[[], nn.Module]
    targets: Samples
    members: Tensor
    mask: Samples
    test: Samples | None = None
    replies: ReplyKind = "arrays"
    local: Literal["gradient", "epochs"] = "epochs"
    name: str = "app"
    trim: int | None = None

    def __post_init__(self) -> None:
        members = torch.as_tensor(self.members)
        if members.shape != (len(self.targets),) or members.dtype != torch.bool:
            raise InputError(f"members: one truth value for each of the {len(self.targets)} targets is expected")
        if not 0 < int(members.sum()) < len(members):
            raise InputError("members: both members and non-members are expected among the targets")
        if self.targets.y.dtype.is_floating_point or self.targets.y.dim() != 1:
            raise InputError("targets: one class per record is expected; other tasks are audited in simulation")
        if self.trim is not None and self.trim < 0:
            raise InputError(f"trim: {self.trim} is not allowed; 0 or more updates are trimmed at each end")
        if len(self.mask) < 1:
            raise InputError("mask: at least one record is expected")

    def content_hash(self) -> str:
        """SHA-256 of all records, the truth about them, and what the app's clients send."""
        told = "" if self.trim is None else f" trim {self.trim}"
        digest = hashlib.sha256(f"{self.replies} {self.local}{told}\n".encode())
        samples = [self.targets, self.mask, *([self.test] if self.test is not None else [])]
        for tensor in (torch.as_tensor(self.members), *(part for both in samples for part in (both.x, both.y))):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
            # As bytes, since NumPy does not know all of torch's types.
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def written(self, attack: Attack, *, seed: int, stand_ins: int, batch_size: int) -> dict[str, Any]:
        """Its part of what names a run in the store: the records, the model, and who attacks it."""
        return {
            "seed": seed,
            "data": {"name": self.name, "content": self.content_hash()},
            "model": {"name": getattr(self.model, "__qualname__", "model")},
            "attack": attack.canonical() | {"stand_ins": stand_ins, "batch_size": batch_size},
        }


def load_material(path: str, nodes: int) -> AuditMaterial:
    """The material that `package.module:function` gives; it may ask for the size as `nodes` or `clients`."""
    function = resolve_callable("material", path)
    wanted = inspect.signature(function).parameters
    made = function(**{name: nodes for name in ("nodes", "clients") if name in wanted})
    if not isinstance(made, AuditMaterial):
        raise InputError(f"material {path!r}: returned {type(made).__name__}, not an AuditMaterial")
    return made


def write_hostile(
    directory: Path,
    material: AuditMaterial,
    attack: Attack,
    *,
    seed: int,
    stand_ins: int,
    batch_size: int,
    trim: int | None = None,
) -> Path:
    """Write what the hostile node is given, without the truth, and return the file that its node config names.

    `trim` is what the rule trims, as far as the audit knows it; what the material says about it comes first.
    """
    module, name = getattr(material.model, "__module__", ""), getattr(material.model, "__qualname__", "")
    if not module or not name or "<" in name:
        raise InputError(
            "model: a class or function at the top of a module is expected, so that the hostile node finds it"
        )
    tensors = {
        "targets.x": material.targets.x,
        "targets.y": material.targets.y,
        "wrong_labels": draw_wrong_labels(material.targets, material.mask, seed),
        "mask.x": material.mask.x,
        "mask.y": material.mask.y,
    }
    with whole(directory / "hostile.safetensors", mode=PRIVATE, durable=False) as draft:
        draft.write_bytes(save({key: value.contiguous() for key, value in tensors.items()}))
    told = trim if material.trim is None else material.trim
    plain = {
        "attack": attack.canonical(),
        "model": f"{module}:{name}",
        "replies": material.replies,
        "local": material.local,
        "stand_ins": stand_ins,
        "batch_size": batch_size,
        "seed": seed,
        "trim": told if any(part.told_trim for part in attack.parts()) else None,
    }
    path = directory / "hostile.json"
    write_text(path, json.dumps(plain, indent=2), mode=PRIVATE, durable=False)
    return path


def read_hostile(path: Path) -> HostileConfig:
    """The hostile node's configuration from the file that `write_hostile` wrote."""
    plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    tensors = load_file(path.parent / "hostile.safetensors")
    return HostileConfig(
        attack=attacks.parse(plain["attack"]),
        model=resolve_callable("model", plain["model"]),
        targets=Samples(tensors["targets.x"], tensors["targets.y"]),
        wrong_labels=tensors["wrong_labels"],
        mask=Samples(tensors["mask.x"], tensors["mask.y"]),
        observations=path.parent / "observations.jsonl",
        replies=plain["replies"],
        local=plain["local"],
        stand_ins=plain["stand_ins"],
        batch_size=plain["batch_size"],
        seed=plain["seed"],
        trim=plain["trim"],
    )
