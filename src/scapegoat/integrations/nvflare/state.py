"""A rule's memory beside FLARE's saved model: written each time the model is, and found again with it.

FLARE 2.9 keeps no state of components over a restart of the server: what it keeps is the model that the persistor
saves. The memory lies in the same folder. Two generations are kept, each with the digest of the model that it belongs
to, so that whenever the server dies one of them belongs to the model that is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from scapegoat.errors import InputError
from scapegoat.files import whole
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.robust_server import RobustServer

NAME = "scapegoat_state.safetensors"
BEFORE = "scapegoat_state.before.safetensors"


@dataclass(frozen=True)
class Memory:
    """What a rule's server remembers, and the digest of the global model after its last round."""

    model: str
    rule: str
    seed: int
    steps: int
    sampled: tuple[float, ...] = ()
    rule_state: dict[str, Tensor] = field(default_factory=dict)
    optimizer_state: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(server: RobustServer, model: str) -> Memory:
        """What a server remembers now."""
        return Memory(
            model=model,
            rule=json.dumps(server.rule.canonical(), sort_keys=True),
            seed=server.seed,
            steps=server.steps,
            sampled=tuple(server.sampled),
            rule_state={name: value.clone() for name, value in server.state.items()},
            optimizer_state={name: value.clone() for name, value in server.optimizer.state.items()},
        )

    def give(self, server: RobustServer) -> None:
        """Let a server of the same rule go on from here."""
        server.seed, server.steps, server.sampled = self.seed, self.steps, list(self.sampled)
        server.state = {name: value.clone() for name, value in self.rule_state.items()}
        server.optimizer.load(self.optimizer_state)

    def to_bytes(self) -> bytes:
        """As safetensors: nothing in it is ever run."""
        tensors = {f"rule/{name}": value.contiguous() for name, value in self.rule_state.items()}
        tensors |= {f"optimizer/{name}": value.contiguous() for name, value in self.optimizer_state.items()}
        facts = {"model": self.model, "rule": self.rule, "seed": self.seed, "steps": self.steps}
        return save(tensors, {"scapegoat": json.dumps(facts | {"sampled": self.sampled})})


def digest(arrays: Mapping[str, NDArray]) -> str:
    """SHA-256 of a model's names and numbers, in their order: what a rule remembers lies in it."""
    found = hashlib.sha256()
    for name in arrays:
        found.update(f"{name} {arrays[name].size}\n".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def write(folder: Path, memory: Memory) -> None:
    """Write the memory, whole or not at all; the one before stays beside it."""
    newest = folder / NAME
    with whole(newest) as draft:
        draft.write_bytes(memory.to_bytes())
        if newest.is_file():
            os.replace(newest, folder / BEFORE)


def from_bytes(data: bytes) -> Memory:
    """The memory that `Memory.to_bytes` wrote; ValueError or KeyError if it is none."""
    (length,) = struct.unpack("<Q", data[:8])
    facts: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["scapegoat"])
    tensors = load(data)
    return Memory(
        model=str(facts["model"]),
        rule=str(facts["rule"]),
        seed=int(facts["seed"]),
        steps=int(facts["steps"]),
        sampled=tuple(float(share) for share in facts["sampled"]),
        rule_state={n.removeprefix("rule/"): t for n, t in tensors.items() if n.startswith("rule/")},
        optimizer_state={n.removeprefix("optimizer/"): t for n, t in tensors.items() if n.startswith("optimizer/")},
    )


def read(path: Path) -> Memory:
    """The memory in a file."""
    try:
        return from_bytes(path.read_bytes())
    except (OSError, SafetensorError, struct.error, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is not the memory of an aggregator ({type(error).__name__}: {error})") from None


def find(folder: Path, model: str, rule: str) -> Memory | None:
    """The memory in a folder that belongs to a model and a rule; None if there is no memory at all.

    A memory that belongs to something else is refused: training would go on as if nobody were known.
    """
    found = [read(folder / name) for name in (NAME, BEFORE) if (folder / name).is_file()]
    if not found:
        return None
    of_rule = [memory for memory in found if memory.rule == rule]
    if not of_rule:
        raise InputError(f"{folder}: holds the memory of {found[0].rule}, not of {rule}")
    for memory in of_rule:
        if memory.model == model:
            return memory
    raise InputError(f"{folder}: its memory belongs to another model than the one that training starts from")
