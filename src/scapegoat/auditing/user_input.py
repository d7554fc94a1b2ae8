"""A user's own model and data, as a spec states them."""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from scapegoat import models
from scapegoat.errors import InputError, StorageError
from scapegoat.files import PRIVATE, passing_folder, whole

Model = str | Mapping[str, Any] | nn.Module | Callable[..., nn.Module]
Data = str | Mapping[str, Any] | tuple[Any, Any]


def stated_model(model: Model) -> Any:
    """The model as a spec states it."""
    if isinstance(model, str | Mapping):
        return model
    if not isinstance(model, nn.Module) and not callable(model):
        raise InputError(f"model: {type(model).__name__} is not allowed; it must be a name, a module or a factory")
    return models.given(model)


def stated_data(data: Any, out: Path | None) -> Any:
    """The data as a spec states it."""
    if isinstance(data, Mapping) and "name" not in data:
        raise InputError(
            "data: a mapping is {'name': ..., option: value}; arrays are handed over as a pair, data=(x, y), "
            "their options as overrides=['data.option=value']"
        )
    return data if isinstance(data, str | Mapping) else {"name": f"given:{_save(data, out)}"}


def _save(data: Any, out: Path | None) -> Path:
    """A pair of arrays as a file of its own content's name, which the user's own workers can read and nobody else.

    Without a folder of the user's it lasts as long as this process.
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data: a name, npz:PATH, or a pair (records, labels) is expected")
    x, y = (d.detach().cpu().numpy() if isinstance(d, Tensor) else np.asarray(d) for d in data)
    if x.dtype == object or y.dtype == object:
        raise InputError("data: records and labels must be numbers of one shape each")
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        count = len(y) if y.ndim else 1
        raise InputError(f"data: records of shape {x.shape} with {count} labels; one label per record is expected")
    name = f"{hashlib.sha256(x.tobytes() + y.tobytes() + repr(x.shape).encode()).hexdigest()[:16]}.npz"
    path = (passing_folder() if out is None else out) / "data" / name
    try:
        with whole(path, mode=PRIVATE) as draft:
            with draft.open("wb") as stream:
                np.savez(stream, x=x, y=y)
            # What is there already may be an earlier version's, or somebody else's: only its bytes tell. Of the same
            # bytes the time stays, by which caches know them.
            if path.is_file() and filecmp.cmp(draft, path, shallow=False):
                os.utime(draft, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    except OSError as error:
        raise StorageError(f"{path}: the records could not be written ({error.strerror or error})") from None
    return path
