"""Checkpoints: tensors by name in a file that vouches for every bit of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from scapegoat.files import PRIVATE, whole

# Raised when a state of before can no longer be gone on from.
VERSION = "2"


def save(path: Path, run: str, state: Mapping[str, Tensor]) -> None:
    """Replace the checkpoint of a run."""
    tensors = dict(_apart(state))
    with whole(path, mode=PRIVATE) as draft:
        save_file(tensors, draft, metadata={"version": VERSION, "digest": digest(run, tensors)})


def _apart(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors, those that share memory as copies, which the format asks for; others as they are."""
    taken: set[int] = set()
    for name, tensor in state.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage()
        if storage.data_ptr() in taken or storage.nbytes() != own.nbytes:
            own = own.clone()
        taken.add(storage.data_ptr())
        yield name, own


def load(path: Path, run: str) -> dict[str, Tensor]:
    """The state that `save` was given for this run; ValueError, in a few words, for anything else."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise ValueError(f"cannot be read ({type(error).__name__})") from None
    if metadata.get("version") != VERSION:
        raise ValueError("is of another version")
    if metadata.get("digest") != digest(run, tensors):
        raise ValueError("is damaged (its content does not match its digest)")
    return tensors


def digest(run: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the run's name and every tensor's name, type, shape and bytes."""
    state = hashlib.sha256(f"{VERSION} {run}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        state.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()
