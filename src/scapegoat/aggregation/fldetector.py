"""FLDetector (Zhang et al. 2022): clients whose updates do not follow from their earlier ones are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.chunked_sums import row64
from scapegoat.combining.clustering import upper_group
from scapegoat.combining.memory import Memory, Remember, WithMemory, known_direction
from scapegoat.combining.rule import (
    Aggregate,
    AggregationContext,
    Stack,
    check_several,
    register,
)
from scapegoat.combining.stack import screened
from scapegoat.devices import host
from scapegoat.errors import InputError

_WIDTH = 1 << 15
"""Columns at a time."""


@screened()
def fldetector(
    stack: Stack,
    window: int = 10,
    remember: int = 100,
    client_ids: Sequence[int] | None = None,
    state: MutableMapping[str, Tensor] | None = None,
    parameters: Callable[[], Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Aggregate:
    """Mean of the updates of the clients that behave as predicted (Algorithms 1 and 2 of the paper).

    A client's next update is predicted as its last one plus H (w_t - w_t'), with H the L-BFGS approximation of the
    Hessian from the last `window` steps of the global parameters w and changes of the aggregate. Its score is the mean,
    over its last `window` predictions, of its distance to the prediction relative to the round's mean distance. Once
    `window` rounds were scored, a gap statistic decides whether the scores of the round's clients are one group; if
    not, those in the upper of two groups are left out. A client without a score stays.

    Without `parameters`, a step is taken to be minus the last aggregate: exact for a server that takes plain steps of
    any one size. All that is remembered is in `state`: two vectors [d], 2 x window of them for H, and one for each of
    the `remember` clients last seen.

    Examples
    --------
    >>> import torch
    >>> updates = torch.tensor([[1.0, 1.0], [1.25, 0.75], [0.75, 1.25], [1.125, 1.125], [-9.0, 9.0]])
    >>> fldetector(updates, client_ids=[0, 1, 2, 3, 4], state={}).kept.tolist()
    [True, True, True, True, True]
    """
    context = AggregationContext.of_rows(stack.ids(client_ids), state)
    return _Round(stack, context, window, remember, parameters, generator).aggregate()


class _Round:
    """One round of FLDetector: what was remembered, and what comes of it."""

    def __init__(
        self,
        stack: Stack,
        context: AggregationContext,
        window: int,
        remember: int,
        parameters: Callable[[], Tensor] | None,
        generator: torch.Generator | None,
    ) -> None:
        self.stack, self.ids, self.window = stack, context.client_ids, window
        self.state, self.generator = context.state, generator
        self.memory = Memory(context.state, remember)
        empty = torch.zeros(0, stack.d, device=stack.device)
        self.turn = int(self.state.get("turn", torch.tensor(0)))
        self.steps, self.changes = self.state.get("steps", empty), self.state.get("changes", empty)
        if self.steps.shape[1] != stack.d:
            problem = f"fldetector remembers {self.steps.shape[1]} parameters, the updates have {stack.d}"
            raise InputError(f"{problem}; start with an empty state")
        before, mean = self.state.get("parameters"), self.state.get("mean")
        if parameters is not None:
            self.now = parameters().detach().to(torch.float32)
        elif before is None or mean is None:
            self.now = torch.zeros(stack.d, device=stack.device)
        else:
            self.now = before - mean
        self.step = torch.zeros_like(self.now) if before is None else self.now - before

    def aggregate(self) -> Aggregate:
        """The mean of those that are not left out, after remembering everything."""
        scored = self._score()
        left_out = self._left_out()
        kept = ~left_out
        update = self.stack.mean(kept)
        self._remember(update)
        notes = {"scored": scored, "left_out": int(left_out.sum()), "remembered": self.memory.close_round(self.ids)}
        return self.stack.aggregate(update, kept, notes)

    def _score(self) -> int:
        """Remember how far each client is from what was predicted of it; for how many there was a prediction."""
        predicted: dict[int, Tensor] = {}
        far: dict[int, float] = {}
        for i, client in enumerate(self.ids):
            last = self.turn - int(self.memory.get("turn", client, torch.tensor(self.turn)))
            if client in far or not 1 <= last <= len(self.steps) + 1:
                continue  # its first update, its second of the round, or its last is too long ago
            if last not in predicted:
                moved = self.step + self.steps[len(self.steps) - (last - 1) :].sum(0)
                predicted[last] = hessian_product(self.steps, self.changes, moved)
            far[client] = self._distance(
                known_direction(self.memory, client, self.stack, "fldetector"), predicted[last], i
            )
        mean = sum(far.values()) / max(len(far), 1)
        for client, distance in far.items():
            earlier = self.memory.get("scores", client, torch.zeros(0, dtype=torch.float64))
            share = torch.tensor([distance / mean if mean > 0 else 1.0], dtype=torch.float64)
            self.memory.put("scores", client, torch.cat([earlier, share])[-self.window :])
        return len(far)

    def _distance(self, last: Tensor, change: Tensor, row: int) -> float:
        factor = 1.0 if self.stack.scale is None else float(self.stack.scale[row])
        update, squares = self.stack.rows[row], []
        for start in range(0, self.stack.d, _WIDTH):
            part = slice(start, start + _WIDTH)
            squares.append(row64(last[part] + change[part] - factor * update[part]).square().sum())
        total = 0.0
        for square in host(torch.stack(squares)).tolist() if squares else ():
            total += square
        return math.sqrt(total)

    def _left_out(self) -> Tensor:
        left_out = torch.zeros(len(self.ids), dtype=torch.bool)
        scores = [self.memory.get("scores", client, None) for client in self.ids]
        known = [i for i, score in enumerate(scores) if score is not None]
        suspicion = torch.stack([score.mean() for score in scores if score is not None]) if known else torch.zeros(0)
        if self.turn >= self.window:
            left_out[known] = upper_group(suspicion, self.generator)
        return left_out

    def _remember(self, update: Tensor) -> None:
        mean = self.state.get("mean")
        if mean is not None:
            self.state["steps"] = torch.cat([self.steps, self.step[None]])[-self.window :]
            self.state["changes"] = torch.cat([self.changes, (update - mean)[None]])[-self.window :]
        self.state["parameters"], self.state["mean"] = self.now.clone(), update.clone()
        for i, client in enumerate(self.ids):
            factor = 1.0 if self.stack.scale is None else float(self.stack.scale[i])
            self.memory.put("direction", client, self.stack.rows[i] * factor)
            self.memory.put("turn", client, torch.tensor(self.turn, dtype=torch.int64))
        self.state["turn"] = torch.tensor(self.turn + 1, dtype=torch.int64)


def hessian_product(steps: Tensor, changes: Tensor, vector: Tensor) -> Tensor:
    """H v [d] by the compact L-BFGS form (Byrd et al. 1994, equation 3.13), from steps S and changes Y [k, d].

    Zero where nothing is known yet, or where what is known makes no matrix.
    """
    if not len(steps):
        return torch.zeros_like(vector)
    sy, ss = geometry.products(steps, changes).numpy(), geometry.gram(steps).numpy()
    if not ss[-1, -1] > 0:
        return torch.zeros_like(vector)
    sigma = sy[-1, -1] / ss[-1, -1]
    lower = np.tril(sy, -1)
    matrix = np.block([[sigma * ss, lower], [lower.T, -np.diag(np.diag(sy))]])
    right = np.concatenate(
        [sigma * geometry.products(steps, [vector]).numpy(), geometry.products(changes, [vector]).numpy()]
    )
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return torch.zeros_like(vector)
    weights = np.linalg.lstsq(matrix, right[:, 0], rcond=1e-10)[0]
    factors = torch.from_numpy(weights).float().to(steps.device)
    product = sigma * vector - sigma * (factors[: len(steps)] @ steps) - factors[len(steps) :] @ changes
    return product if bool(host(product.isfinite().all())) else torch.zeros_like(vector)


@register("fldetector")
class FLDetector(WithMemory):
    """Leave out clients whose updates are, over rounds, not what their earlier ones and the curvature predict."""

    window: Annotated[int, Field(ge=1, le=100)] = 10
    """Rounds over which a client is scored and the curvature is estimated; before, nobody is left out."""
    remember: Remember = 100

    def keeps(self, clients: int, d: int) -> int:
        """Beside the clients' updates: steps, changes, and the last parameters and aggregate."""
        return super().keeps(clients, d) + (2 * self.window + 2) * d

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the others; the memory is in the context's state."""
        parameters = context.parameters
        return _Round(stack, context, self.window, self.remember, parameters, context.generator).aggregate()

    def check(self, updates_per_step: int) -> None:
        """One update has nothing to be compared with."""
        check_several(self.name, updates_per_step)
