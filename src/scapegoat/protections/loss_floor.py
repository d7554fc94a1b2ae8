"""A floor under the loss: what the model knows already it is not taught again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from scapegoat.protecting.contract import ClientProtection, register


@register("loss_floor")
class LossFloor(ClientProtection):
    """Records whose loss is below the floor have no gradient in this step; the mean is still over the whole batch.

    It is the gradient of the mean of max(loss, floor): members are not pushed further than the floor. Flooding (Ishida
    et al., 2020), which holds the loss of the batch, is another thing.
    """

    chooses_records = True

    floor: Annotated[float, Field(ge=0)] = 0.5
    """The loss below which a record has no gradient."""

    def teaching(self, losses: Tensor) -> Tensor:
        """The records that are not below the floor; one whose loss is not a number counts, so that it is noticed."""
        return ~(losses < self.floor)
