"""What a client does with the model that it is given, and what it sends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, Self

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from scapegoat.data import Dataset
from scapegoat.devices import Number, later
from scapegoat.errors import InputError
from scapegoat.federation.training import PLAIN, Training
from scapegoat.models import FlatModel
from scapegoat.optimizers import OptimizerOptions
from scapegoat.randomness import derive
from scapegoat.registry import Component, Registry

TAKEN_FLOATS = 300_000
"""Records that may be taken together whatever the size of the model (1.2 MB): small models gain from long passes."""


class Records(Protocol):
    """What a client trains on."""

    def __len__(self) -> int: ...

    @property
    def floats(self) -> int:
        """Numbers per record."""

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs as the model takes them, and labels, of some of the records."""


@dataclass(frozen=True)
class Shard:
    """A client's rows of the data set."""

    dataset: Dataset
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def floats(self) -> int:
        """Numbers per record."""
        return math.prod(self.dataset.x.shape[1:])

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at these positions of the shard."""
        rows = self.rows[positions]
        return self.dataset.inputs(rows), self.dataset.targets(rows)


class LocalRule(Component):
    """How a client turns the global parameters and its data into an update."""

    sends: ClassVar[Literal["gradient", "epochs"]]
    purpose: ClassVar[str]
    """What its seeds are derived for."""
    server: ClassVar[OptimizerOptions] = OptimizerOptions()
    """How the server steps with such updates, unless it is told otherwise."""
    protectable: ClassVar[bool] = False
    """Whether every step of its training is `training`'s, so that clients' protections act in it."""

    _training: Training = PrivateAttr(default_factory=lambda: PLAIN)

    @property
    def training(self) -> Training:
        """How a batch becomes a gradient: plainly, unless it is `trained_by` something else."""
        return self._training

    def trained_by(self, training: Training) -> Self:
        """The same rule with another way from a batch to a gradient."""
        if training is self._training:
            return self
        other = self.model_copy()
        other._training = training
        return other

    def draw(self, size: int, batch_size: int, seed: int) -> Tensor:
        """Positions of a mini-batch as the training's mechanism assumes it, and without one of a fixed size."""
        mechanism = self._training.mechanism
        if mechanism is not None and mechanism.sampling == "poisson":
            return draw_poisson_batch(size, min(1.0, batch_size / max(size, 1)), seed)
        return draw_batch(size, batch_size, seed)

    def shares_passes(self, model: FlatModel) -> bool:
        """Whether clients may share passes."""
        return False

    def has_routes(self, model: FlatModel) -> bool:
        """Whether there are several routes to the updates of clients that share passes."""
        return self.training is PLAIN and self.shares_passes(model)

    def steps(self, records: int, batch_size: int) -> int:
        """Batches that a client with so many records trains on in a round."""
        raise NotImplementedError

    def share(self, records: int, batch_size: int) -> tuple[float, float] | None:
        """The chance that a record is in its client's update of a round, and the weight of its gradient there.

        It is what the protocol tells a server that looks for a record; None where a record has no such share.
        """
        return None

    def alone(
        self, model: FlatModel, start: Tensor, records: Records, batch_size: int, seed: int, out: Tensor
    ) -> Number:
        """Write one client's update to `out` [d] and return its mean loss. The model's statistics move on."""
        raise NotImplementedError

    def updates(
        self,
        model: FlatModel,
        starts: Sequence[Tensor],
        records: Sequence[Records],
        batch_size: int,
        seeds: Sequence[int],
        out: Tensor,
    ) -> tuple[Number, Tensor]:
        """Write each client's update to its row of `out`; the model's statistics are as before afterwards.

        Returns the mean loss, and the mean of the clients' running statistics (empty for models without any).
        """
        losses, statistics = self.totals(model, starts, records, batch_size, seeds, out)
        return losses / len(records), statistics / len(records)

    def totals(
        self,
        model: FlatModel,
        starts: Sequence[Tensor],
        records: Sequence[Records],
        batch_size: int,
        seeds: Sequence[int],
        out: Tensor,
    ) -> tuple[Number, Tensor]:
        """As `updates`, with the sums of losses and statistics. Those of `passes` add up to those of all, in order."""
        losses: Number = 0.0
        before = model.buffers()
        statistics = torch.zeros_like(before)
        for row, (start, held, seed) in enumerate(zip(starts, records, seeds, strict=True)):
            model.set_buffers(before)
            losses += self.alone(model, start, held, batch_size, seed, out[row])
            statistics += model.buffers()
        model.set_buffers(before)
        return losses, statistics

    def passes(
        self, model: FlatModel, starts: Sequence[Tensor], records: Sequence[Records], batch_size: int
    ) -> list[list[int]]:
        """Rows of clients that are computed together: any process gets the same bits of all clients of a pass."""
        return [[row] for row in range(len(records))]

    def probe_step(self, server: OptimizerOptions) -> float:
        """How far a client's own model is from the global one, in multiples of what it sends."""
        return 1.0


registry: Registry[LocalRule] = Registry("local rule", LocalRule, "scapegoat.federation")


@registry.register("gradient")
class Gradient(LocalRule):
    """The gradient of one mini-batch at the global model, as the paper's equations say."""

    sends = "gradient"
    purpose = "batch"
    protectable = True

    def shares_passes(self, model: FlatModel) -> bool:
        """Unless each has statistics of its own, or protections that act client by client."""
        return not model.has_statistics and self.training.shared

    def steps(self, records: int, batch_size: int) -> int:
        """One."""
        return 1

    def share(self, records: int, batch_size: int) -> tuple[float, float] | None:
        """A record is in the batch or not; the update is the batch's mean."""
        batch = min(batch_size, max(records, 1))
        return batch / max(records, 1), 1 / batch

    def alone(
        self, model: FlatModel, start: Tensor, records: Records, batch_size: int, seed: int, out: Tensor
    ) -> Number:
        """The gradient of one batch; a record that BatchNorm cannot normalise changes nothing."""
        x, y = records.take(self.draw(len(records), batch_size, seed))
        usual = min(batch_size, len(records))
        loss = self.training.gradient(model, start, x, y, out, seed=seed, step=0, usual=usual)
        if loss is None:
            out.zero_()
            return _untrained(model, start, x, y, batch_size)
        return loss if len(y) else _evaluated(model, start, records, batch_size)

    def totals(
        self,
        model: FlatModel,
        starts: Sequence[Tensor],
        records: Sequence[Records],
        batch_size: int,
        seeds: Sequence[int],
        out: Tensor,
    ) -> tuple[Number, Tensor]:
        """As for every local rule; clients that start from the same model share passes where no layer forbids it."""
        if not self.shares_passes(model):
            return super().totals(model, starts, records, batch_size, seeds, out)
        losses: Number = 0.0
        for start, rows in self._together(model, starts, records, batch_size):
            batches = [self.draw(len(records[row]), batch_size, seeds[row]) for row in rows]
            x, y = _gathered([records[row] for row in rows], batches)
            adjacent = rows[-1] - rows[0] + 1 == len(rows)
            block = out[rows[0] : rows[-1] + 1] if adjacent else torch.empty(len(rows), out.shape[1], device=out.device)
            found = self.training.gradients(
                model,
                start,
                x,
                y,
                [len(b) for b in batches],
                block,
                seeds=[seeds[row] for row in rows],
                usual=[min(batch_size, len(records[row])) for row in rows],
            )
            losses += sum(
                loss if len(batch) else _evaluated(model, start, records[row], batch_size)
                for row, batch, loss in zip(rows, batches, found, strict=True)
            )
            if not adjacent:
                for row, update in zip(rows, block, strict=True):
                    out[row] = update
        return losses, torch.empty(0, device=out.device)

    def passes(
        self, model: FlatModel, starts: Sequence[Tensor], records: Sequence[Records], batch_size: int
    ) -> list[list[int]]:
        """Clients that share a pass, or each alone."""
        if not self.shares_passes(model):
            return super().passes(model, starts, records, batch_size)
        return [rows for _, rows in self._together(model, starts, records, batch_size)]

    def _together(
        self, model: FlatModel, starts: Sequence[Tensor], records: Sequence[Records], batch_size: int
    ) -> Iterator[tuple[Tensor, list[int]]]:
        at_once = clients_at_once(model.d, batch_size * records[0].floats)
        return _together(starts, min(at_once, model.routes.together or at_once))

    def probe_step(self, server: OptimizerOptions) -> float:
        """The server's learning rate: a gradient is not yet a step."""
        return server.lr


@registry.register("epochs")
class Epochs(LocalRule):
    """`global - local` after local epochs, as federated systems deploy it.

    Where BatchNorm cannot normalise a last batch of one record, it sits the epoch out; another order draws another one.
    The server takes the mean of the clients' models, unless it is told otherwise.
    """

    sends = "epochs"
    purpose = "epochs"
    protectable = True
    server = OptimizerOptions(optimizer="sgd", lr=1.0)
    epochs: Annotated[int, Field(ge=1)] = 1
    """Passes over the client's records."""
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    """The client's optimizer."""
    lr: Annotated[float, Field(gt=0)] = 0.1
    """The client's learning rate."""

    def steps(self, records: int, batch_size: int) -> int:
        """As many as it takes to go through the records `epochs` times."""
        return self.epochs * math.ceil(records / batch_size)

    def share(self, records: int, batch_size: int) -> tuple[float, float] | None:
        """Every record is in a batch per epoch. Only under plain steps does its gradient keep a weight."""
        if self.optimizer != "sgd":
            return None
        return 1.0, self.epochs * self.lr / min(batch_size, max(records, 1))

    def alone(
        self, model: FlatModel, start: Tensor, records: Records, batch_size: int, seed: int, out: Tensor
    ) -> Number:
        """Train from `start` on all records; write `start - local` to `out`."""
        optimizer = OptimizerOptions(optimizer=self.optimizer, lr=self.lr)
        state: dict[str, Tensor] = {}
        local = start.clone()
        losses: list[Number] = []
        grad = torch.empty_like(start)
        x, y = records.take(torch.arange(len(records)))
        usual = min(batch_size, len(y))
        for step, rows in enumerate(self._batches(len(y), batch_size, seed)):
            rows = rows.to(x.device)
            loss = self.training.gradient(model, local, x[rows], y[rows], grad, seed=seed, step=step, usual=usual)
            if loss is not None:
                optimizer.advance(local, grad, state)
                if len(rows):
                    losses.append(loss)
        torch.sub(start, local, out=out)
        if losses:
            return sum(losses) / len(losses)
        if self.training.mechanism is not None:
            return _evaluated(model, start, records, batch_size)
        return _untrained(model, start, x, y, batch_size)

    @property
    def vectors(self) -> int:
        """Vectors as long as the model that the client's optimizer keeps."""
        return OptimizerOptions(optimizer=self.optimizer, lr=self.lr).vectors

    def _batches(self, size: int, batch_size: int, seed: int) -> Iterator[Tensor]:
        """Every record once per epoch, in an order of its own; under noise as many independent draws.

        What noise is worth is known for batches that are drawn independently of each other.
        """
        if self.training.mechanism is not None:
            for step in range(self.steps(size, batch_size)):
                yield self.draw(size, batch_size, derive(seed, "step", step))
            return
        for epoch in range(self.epochs):
            order = torch.randperm(size, generator=torch.Generator().manual_seed(derive(seed, "epoch", epoch)))
            for first in range(0, size, batch_size):
                yield order[first : first + batch_size]


def clients_at_once(d: int, batch_floats: int) -> int:
    """Clients whose records are taken together: no more floats than in an update, unless that is short."""
    return max(1, max(d, TAKEN_FLOATS) // max(1, batch_floats))


def _together(starts: Sequence[Tensor], at_once: int) -> Iterator[tuple[Tensor, list[int]]]:
    """Rows of clients that may share a pass: they start from the same model, and are not too many."""
    groups: dict[int, tuple[Tensor, list[int]]] = {}
    for row, start in enumerate(starts):
        groups.setdefault(id(start), (start, []))[1].append(row)
    for start, rows in groups.values():
        for first in range(0, len(rows), at_once):
            yield start, rows[first : first + at_once]


def _gathered(records: Sequence[Records], batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The batches of several clients, one after the other; of one data set, in a single copy."""
    first = records[0]
    if isinstance(first, Shard) and all(isinstance(r, Shard) and r.dataset is first.dataset for r in records):
        rows = torch.cat([r.rows[b] for r, b in zip(records, batches, strict=True) if isinstance(r, Shard)])
        return first.dataset.inputs(rows), first.dataset.targets(rows)
    taken = [r.take(b) for r, b in zip(records, batches, strict=True)]
    return torch.cat([x for x, _ in taken]), torch.cat([y for _, y in taken])


def _untrained(model: FlatModel, start: Tensor, x: Tensor, y: Tensor, batch_size: int) -> Number:
    """The loss of a client with a single record, which sends no change; a user who asked for such batches is told."""
    if batch_size == 1:
        raise InputError("federation.batch_size: 1 is too few for a model with BatchNorm (allowed: 2 or more)")
    return later(model.task.losses(model.logits(start, x), y, "mean"))


def _evaluated(model: FlatModel, vector: Tensor, records: Records, batch_size: int) -> Number:
    """The loss that a client reports whose batches were all empty, which Poisson's sampling allows."""
    x, y = records.take(torch.arange(min(len(records), batch_size)))
    return later(model.task.losses(model.logits(vector, x), y, "mean"))


def draw_batch(size: int, batch_size: int, seed: int) -> Tensor:
    """Positions of a mini-batch drawn without replacement from `size` records."""
    generator = torch.Generator().manual_seed(seed)
    if size <= batch_size:
        return torch.arange(size)
    if size <= 16 * batch_size:
        return torch.randperm(size, generator=generator)[:batch_size]
    # For large shards a full permutation would cost more than the batch: draw, and redraw what came twice.
    rows = torch.randint(size, (batch_size,), generator=generator)
    taken = list(dict.fromkeys(rows.tolist()))
    while len(taken) < batch_size:
        extra = torch.randint(size, (batch_size - len(taken),), generator=generator)
        taken = list(dict.fromkeys(taken + extra.tolist()))
    return torch.tensor(taken)


def draw_poisson_batch(size: int, rate: float, seed: int) -> Tensor:
    """Positions of a mini-batch in which each of `size` records is with probability `rate`, independently.

    `rate · size` of them on average; none is a possible answer. It is what DP-SGD's accounting assumes.
    """
    if not 0 <= rate <= 1:
        raise InputError(f"the sampling rate is {rate:g}; it must be between 0 and 1")
    # Double precision: a rate that float32 rounds up would be more than was accounted for.
    draws = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draws < rate).nonzero()[:, 0]
