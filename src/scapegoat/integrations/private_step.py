"""Record-level DP-SGD for a training step of your own: a few lines in a Flower client, or in any PyTorch loop.

    private = PrivateStep(model, clip=1.0, noise=1.0, batch_size=64)
    for x, y in private.batches(records, labels):
        private.gradients(x, y)                  # in place of loss.backward()
        optimizer.step()
    private.epsilon(delta=1e-5)

It is what the protection `dp_sgd` does in a simulation, by the same code, so an audit with `dp_sgd` speaks about it.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scapegoat.accounting import Exposure, record_epsilons
from scapegoat.errors import InputError
from scapegoat.gradients import private_gradients
from scapegoat.gradients.clipped import refuse_mixing
from scapegoat.modelling.flat_model import FlatModel


class PrivateStep:
    """Clipped and noisy gradients for the parameters of a PyTorch model (Abadi et al., 2016, Algorithm 1).

    `model` maps [n, ...] to [n, classes] logits and is trained with cross-entropy. Every record's gradient is shortened
    to at most `clip`, the sum gets noise of standard deviation noise · clip, and is divided by `batch_size`, the
    expected size of a batch. `seed` makes the noise repeatable, for tests alone: who knows it can take the noise off.
    The noise is float32 from a generator that is not made for cryptography.
    """

    def __init__(
        self, model: nn.Module, *, clip: float = 1.0, noise: float = 1.0, batch_size: int = 64, seed: int | None = None
    ) -> None:
        if not (math.isfinite(clip) and clip > 0):
            raise InputError(f"clip is {clip:g}; it must be a positive number")
        if not (math.isfinite(noise) and noise >= 0):
            raise InputError(f"noise is {noise:g}; it must be 0 or a positive number")
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be 1 or more")
        self.model, self.clip, self.noise, self.batch_size = model, clip, noise, batch_size
        self._source = torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed)
        self._flat: FlatModel | None = None
        self._out = torch.empty(0)
        self.steps = 0
        self._records: int | None = None

    def batches(self, records: Tensor, labels: Tensor, epochs: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in which every record is with the same probability, independently of the others (Poisson sampling).

        As many as an epoch of batches of `batch_size` has. Their sizes differ, and one may be empty: the step is then
        noise alone, as it must be. The accounting holds for batches drawn so, not for those of a shuffled loader.
        """
        count = len(labels)
        if count == 0:
            raise InputError("there are no records to train on")
        if self._records is not None and self._records != count:
            raise InputError(f"{count} records after {self._records}; one PrivateStep is for one set of records")
        self._records = count
        rate = min(1.0, self.batch_size / count)
        for _ in range(epochs * math.ceil(count / self.batch_size)):
            chosen = torch.rand(count, generator=self._source) < rate
            yield records[chosen], labels[chosen]

    def gradients(self, x: Tensor, y: Tensor) -> None:
        """Set `.grad` of every trainable parameter to the clipped and noisy mean; they replace those of a batch."""
        flat = self._copied(x)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        vector = torch.cat([p.detach().reshape(-1).to(torch.float32) for p in parameters])
        size = float(min(self.batch_size, self._records or self.batch_size))
        private_gradients(
            flat,
            vector,
            x,
            y,
            [len(y)],
            clip=self.clip,
            noise=self.noise,
            expected=[size],
            sources=[self._source],
            out=self._out,
        )
        for parameter, part in zip(parameters, torch.split(self._out[0], flat.sizes), strict=True):
            parameter.grad = part.view(parameter.shape).to(parameter.dtype).clone()
        self.steps += 1

    def epsilon(self, delta: float = 1e-5) -> float:
        """The epsilon at `delta` of a record for the steps so far: add or remove one record, Poisson sampling."""
        if self._records is None:
            raise InputError("epsilon needs the batches of `batches`, whose chances are known")
        exposure = Exposure(self.steps, self._records, min(self.batch_size, self._records))
        return record_epsilons({0: exposure}, self.noise, delta).whole

    def _copied(self, x: Tensor) -> FlatModel:
        """The model as a function of one vector; a copy, so that the optimizer keeps its parameters."""
        if self._flat is None:
            copied = copy.deepcopy(self.model).cpu()
            with torch.no_grad():
                logits = copied.eval()(torch.zeros(1, *x.shape[1:], dtype=x.dtype))
            if logits.ndim != 2:
                raise InputError(f"the model gives {tuple(logits.shape)}; logits [records, classes] are expected")
            self._flat = FlatModel(copied, tuple(x.shape[1:]), logits.shape[1], x.dtype)
            refuse_mixing(self._flat)
            self._out = torch.empty(1, self._flat.d)
        return self._flat
