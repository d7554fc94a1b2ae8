"""Where the updates of a round are: here, or wherever another `Gathering` puts them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from scapegoat.aggregation import Stack
from scapegoat.combining.stack import narrow, stacked
from scapegoat.devices import Number
from scapegoat.federation.cast import Cast


class Gathering(Protocol):
    """The updates of one round after the other: of honest clients first, then what the attacker's clients send."""

    def train(self, round_: int, clients: list[int], starts: list[Tensor]) -> tuple[Number, Tensor]:
        """Have these honest clients train; the mean loss, and the mean of the clients' running statistics."""

    def honest(self) -> Tensor:
        """The honest updates [b, d]."""

    def send(self, updates: Tensor) -> None:
        """Put the attacker's updates [m, d] behind the honest ones."""

    def matrix(self) -> Tensor:
        """All updates of the round [n, d]."""

    def stack(self) -> Stack:
        """The same for a rule."""


SCRATCH_FLOATS = 1 << 26
"""Updates that are computed in float32 before they are held in fewer bits (256 MB), at least one."""


class _InThisProcess:
    """The rows that every round uses again: honest updates first, what is sent behind them."""

    def __init__(self, cast: Cast, dtype: torch.dtype) -> None:
        self._benign = cast.benign
        self._updates = torch.empty(cast.setting.picked, cast.model.d, dtype=dtype, device=cast.model.device)
        self._honest = 0

    def honest(self) -> Tensor:
        """As they are held, not copied."""
        return self._updates[: self._honest]

    def send(self, updates: Tensor) -> None:
        """Copied to their rows, and rounded where those have fewer bits."""
        self._updates[self._honest :] = updates

    def matrix(self) -> Tensor:
        """As they are held, not copied."""
        return self._updates


class InOnePlace(_InThisProcess):
    """All updates in this process, in float32."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast, torch.float32)

    def train(self, round_: int, clients: list[int], starts: list[Tensor]) -> tuple[Number, Tensor]:
        """Pass after pass."""
        self._honest = len(clients)
        if not clients:
            return float("nan"), torch.empty(0, device=self._updates.device)
        return self._benign.updates(round_, clients, starts, self.honest())

    def stack(self) -> Stack:
        """A view of them."""
        return stacked(self._updates)


class InFewerBits(_InThisProcess):
    """All updates in this process, held in bfloat16: computed in float32 a few at a time, and read so."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast, torch.bfloat16)

    def train(self, round_: int, clients: list[int], starts: list[Tensor]) -> tuple[Number, Tensor]:
        """Pass after pass, each into the same few rows."""
        self._honest = len(clients)
        if not clients:
            return float("nan"), torch.empty(0, device=self._updates.device)
        most = max(1, SCRATCH_FLOATS // self._updates.shape[1])
        passes = self._benign.passes(clients, starts)
        longest = min(most, max(len(together) for together in passes))
        scratch = torch.empty(longest, self._updates.shape[1], device=self._updates.device)
        losses: Number = 0.0
        statistics: Tensor | None = None
        for together in passes:
            for first in range(0, len(together), most):
                rows = together[first : first + most]
                out = scratch[: len(rows)]
                loss, moved = self._benign.totals(round_, [clients[r] for r in rows], [starts[r] for r in rows], out)
                losses, statistics = losses + loss, moved if statistics is None else statistics + moved
                for row, update in zip(rows, out, strict=True):
                    self._updates[row] = update
        assert statistics is not None
        return losses / len(clients), statistics / len(clients)

    def stack(self) -> Stack:
        """Read in float32, piece by piece."""
        return narrow(self._updates)


def here(cast: Cast) -> Gathering:
    """All updates in this process, held as the setting says."""
    return InFewerBits(cast) if cast.setting.updates == "bfloat16" else InOnePlace(cast)
