"""One step of a client's training: from a batch to the gradient that is stepped along or sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from scapegoat.devices import Number, later
from scapegoat.gradients import client_gradients, private_gradients
from scapegoat.modelling.flat_model import FlatModel, Teaching
from scapegoat.protecting.contract import ClientProtection, Examples
from scapegoat.protecting.privacy import GaussianMechanism
from scapegoat.randomness import derive, generator


class Training:
    """Plain training: the gradient of a batch's mean loss."""

    mechanism: ClassVar[GaussianMechanism | None] = None
    """The clipping and the noise of each step, if there is any; batches are then drawn as it says."""

    @property
    def shared(self) -> bool:
        """Whether `gradients` takes the batches of several clients together."""
        return True

    def gradient(
        self, model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, out: Tensor, *, seed: int, step: int, usual: int
    ) -> Number | None:
        """Write the gradient of a batch to `out` and return the loss; None if BatchNorm cannot normalise one record.

        All chance is drawn from the client's seed in this round and the number of the step in it; `usual` is the
        expected size of a batch.
        """
        return _unless_alone(model, vector, x, y, out)

    def gradients(
        self,
        model: FlatModel,
        vector: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Sequence[int],
        out: Tensor,
        *,
        seeds: Sequence[int],
        usual: Sequence[int],
    ) -> list[Number]:
        """What `gradient` does in the first step, for clients whose batches of these sizes follow each other."""
        return client_gradients(model, vector, x, y, sizes, out)


PLAIN = Training()


@dataclass(frozen=True)
class ProtectedTraining(Training):
    """What the protections say: other examples, records left out, clipping and noise, in this order."""

    protections: tuple[ClientProtection, ...]

    @property
    def mechanism(self) -> GaussianMechanism | None:  # type: ignore[override]
        """That of the protection that has one; a spec allows one at most."""
        return next((p.mechanism for p in self.protections if p.mechanism is not None), None)

    @property
    def shared(self) -> bool:
        """Where nothing but the mechanism acts: examples and records are chosen client by client."""
        others = any(p.changes_examples or p.chooses_records for p in self.protections)
        return self.mechanism is not None and not others

    def gradient(
        self, model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, out: Tensor, *, seed: int, step: int, usual: int
    ) -> Number | None:
        """As for plain training; the loss is that of what is trained on, records left out included."""
        changing = [p for p in self.protections if p.changes_examples]
        if changing and len(y):
            examples = Examples(x, model.task.soft(y, model.classes))
            for place, protection in enumerate(changing):
                examples = protection.examples(examples, derive(seed, "examples", step, place))
            x, y = examples.x, examples.targets
        mechanism = self.mechanism
        if mechanism is not None:
            return self._private(model, vector, x, y, out, mechanism, _noise(seed, step), usual)
        return _unless_alone(model, vector, x, y, out, self._teaching)

    def gradients(
        self,
        model: FlatModel,
        vector: Tensor,
        x: Tensor,
        y: Tensor,
        sizes: Sequence[int],
        out: Tensor,
        *,
        seeds: Sequence[int],
        usual: Sequence[int],
    ) -> list[Number]:
        """Clipped and noisy; only where the training is `shared`."""
        mechanism = self.mechanism
        assert mechanism is not None
        assert self.shared
        found = private_gradients(
            model,
            vector,
            x,
            y,
            sizes,
            clip=mechanism.clip,
            noise=mechanism.noise,
            expected=usual,
            sources=[_noise(seed, 0) for seed in seeds],
            out=out,
        )
        return found.losses

    def _teaching(self, losses: Tensor) -> Tensor:
        teaching = torch.ones(len(losses), dtype=torch.bool, device=losses.device)
        for protection in self.protections:
            if protection.chooses_records:
                teaching &= protection.teaching(losses)
        return teaching

    def _private(
        self,
        model: FlatModel,
        vector: Tensor,
        x: Tensor,
        y: Tensor,
        out: Tensor,
        mechanism: GaussianMechanism,
        source: torch.Generator,
        usual: int,
    ) -> Number:
        """Clipped and noisy. A record is left out by its own loss alone, so clipping still bounds what it can do."""
        loss = None
        if len(y) and any(p.chooses_records for p in self.protections):
            model.point_at(vector)
            model.module.train()
            with torch.no_grad():
                losses = model.task.losses(model.outputs(model.prepare(x)), y)
            teaching, loss = self._teaching(losses), later(losses.mean())
            x, y = x[teaching], y[teaching]
        found = private_gradients(
            model,
            vector,
            x,
            y,
            [len(y)],
            clip=mechanism.clip,
            noise=mechanism.noise,
            expected=[usual],
            sources=[source],
            out=out[None],
        )
        return found.losses[0] if loss is None else loss


def protected(protections: tuple[ClientProtection, ...]) -> Training:
    """Training under these protections; plain training if there are none."""
    return ProtectedTraining(protections) if protections else PLAIN


def _noise(seed: int, step: int) -> torch.Generator:
    """What the noise of a client's step is drawn from."""
    return generator(seed, "record noise", step)


def _unless_alone(
    model: FlatModel, vector: Tensor, x: Tensor, y: Tensor, out: Tensor, teaching: Teaching | None = None
) -> Number | None:
    """The gradient and the loss of a batch; None for a single record that BatchNorm cannot normalise."""
    if len(y) > 1 or not model.has_statistics:
        return model.gradient(vector, x, y, out=out, teaching=teaching)[1]
    # Tried, not ruled out: BatchNorm over the pixels of one image works.
    statistics = model.buffers()
    try:
        return model.gradient(vector, x, y, out=out, teaching=teaching)[1]
    except ValueError:
        model.set_buffers(statistics)
        return None
