"""Gaussian noise that belongs to a client, whatever the order in which the updates arrive."""

from __future__ import annotations

import torch
from torch import Tensor

from scapegoat.randomness import add_gaussian, generator


class Noise:
    """Independent Gaussian noise for every client id, from one draw of the round's generator.

    `add(row, sigma, client)` adds to a float32 vector in place. The order of the rows does not matter; calling a rule
    again with the same generator gives fresh noise.
    """

    def __init__(self, source: torch.Generator | None) -> None:
        self._seed = int(torch.randint(2**62, (1,), generator=source))

    def add(self, row: Tensor, sigma: float, client: int, copy: int = 0) -> None:
        """row += sigma · N(0, 1); `copy` tells several updates of one client apart."""
        add_gaussian(row, sigma, generator(self._seed, "noise", client, copy))


def copies(client_ids: tuple[int, ...]) -> list[int]:
    """For every row, how many rows before it have the same client id."""
    seen: dict[int, int] = {}
    out = []
    for client in client_ids:
        out.append(seen.get(client, 0))
        seen[client] = out[-1] + 1
    return out
