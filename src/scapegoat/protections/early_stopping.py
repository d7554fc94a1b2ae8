"""Early stopping by the server, on records of its own."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field

from scapegoat.protecting.contract import Look, ServerProtection, register
from scapegoat.registry import added


@register("early_stopping")
class EarlyStopping(ServerProtection):
    """Training ends once the loss on the server's own records has not improved for `patience` rounds.

    With `gap` it also ends once that loss has been larger than the clients' reported training loss by more than `gap`
    for `patience` rounds in a row: a model that knows its members better than others' records tells them apart. That
    second sign trusts what clients report. With `leakage` records of the server's own tell what leaks: half of them,
    chosen by coin, are trained on, as a client's are, and training ends once the global model has told them from the
    other half with a larger AUC for `patience` rounds in a row. That sign trusts nobody, and sees what the model
    memorises, not what an attacker singles out. The model of the last round stays; it is not taken back to an earlier
    one.
    """

    needs_server_data = True
    ends_training = True

    patience: Annotated[int, Field(ge=1)] = 10
    """Rounds without improvement, or with a gap, after which training ends."""
    least: Annotated[float, Field(ge=0)] = 0.0
    """By how much the loss must fall to count as improved."""
    gap: Annotated[float, Field(ge=0)] | None = None
    """Difference between the server's loss and the reported training loss that counts as leakage."""
    leakage: Annotated[float, Field(ge=0.5, le=1)] | None = added(None)
    """AUC, on the server's own records of which half are trained on, that counts as leakage."""

    @property
    def listens(self) -> bool:
        """The gap needs the clients' losses."""
        return self.gap is not None

    @property
    def trains_in(self) -> bool:
        """An estimate needs records that are trained on."""
        return self.leakage is not None

    def stops(self, look: Look) -> bool:
        """Count the rounds since the last improvement, and those that a gap has lasted."""
        loss = look.validation_loss()
        best, waited, apart = look.state.get("early_stopping", _FRESH).tolist()
        better = loss < best - self.least
        best, waited = (loss, 0) if better else (best, waited + 1)
        wide = self.gap is not None and look.loss is not None and loss - look.loss > self.gap
        apart = apart + 1 if wide else 0
        look.state["early_stopping"] = torch.tensor([best, waited, apart], dtype=torch.float64)
        look.notes["validation_loss"] = loss
        return waited >= self.patience or apart >= self.patience or self._told(look)

    def _told(self, look: Look) -> bool:
        """Whether the server's own records have been told apart for long enough."""
        if self.leakage is None or look.leakage is None:
            return False
        auc = look.leakage()
        before = int(look.state.get(_TOLD, torch.zeros((), dtype=torch.int64)))
        told = before + 1 if auc > self.leakage else 0
        look.state[_TOLD] = torch.tensor(told, dtype=torch.int64)
        look.notes["own_records_auc"] = auc
        return told >= self.patience


_TOLD = "early_stopping/told"
_FRESH = torch.tensor([math.inf, 0, 0], dtype=torch.float64)
