"""A loss of the user's own, `package.module:loss`."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from scapegoat.errors import InputError, OptionError
from scapegoat.extending.explained import explained
from scapegoat.extending.resolve import resolve
from scapegoat.extending.sources import sources

TRIED = 4
"""Records that a loss is tried on, together and alone."""


class OwnLoss:
    """A function of outputs [n, k] and targets that returns a loss per record [n]."""

    def __init__(self, path: str, code: str | None) -> None:
        self.path = path
        made = resolve("loss", path)
        self._function: Any = made() if isinstance(made, type) else made
        if not callable(self._function):
            raise InputError(f"loss {path}: is {type(made).__name__}, not something that can be called")
        digest = hashlib.sha256(path.encode())
        for name, text in sources(path.partition(":")[0]).items():
            digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(text).digest())
        self.code = digest.hexdigest()
        if code is not None and code != self.code:
            raise OptionError("task.code", f"{path} has changed since the run was planned; plan it again without this")

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record [n]."""
        try:
            losses = self._function(outputs, y)
        except (InputError, RuntimeError, NotImplementedError):
            raise  # torch's own, which some callers have another way for
        except Exception as error:
            raise InputError(f"loss {self.path}: raised {explained(error)}") from error
        if not isinstance(losses, Tensor) or losses.shape != (len(outputs),):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"loss {self.path}: gave {shape} for {len(outputs)} records; one loss per record, "
                f"{(len(outputs),)}, is expected (reduction='none', and the mean over a record's outputs)"
            )
        return losses

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse a loss that cannot be differentiated, is not finite, or depends on the other records of a batch."""
        outputs = outputs[:TRIED].detach().requires_grad_()
        y = y[:TRIED]
        try:
            together = self(outputs, y)
            alone = torch.cat([self(outputs[i : i + 1], y[i : i + 1]) for i in range(len(y))])
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"loss {self.path}: raised {explained(error)}") from error
        if not together.requires_grad:
            raise InputError(f"loss {self.path}: does not lead back to the outputs, so nothing can be trained with it")
        if not bool(together.isfinite().all()):
            raise InputError(f"loss {self.path}: is not finite for the model's first outputs")
        if not torch.allclose(together, alone, rtol=1e-4, atol=1e-6):
            raise InputError(
                f"loss {self.path}: gives a record another loss in a batch than alone; a record's loss must be its own"
            )
