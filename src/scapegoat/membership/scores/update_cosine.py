"""The cosine of a client's updates with a target's gradient."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from scapegoat.errors import InputError
from scapegoat.membership.scoring import Evidence, Floats, Score, checked_cosines, register


def update_cosine(cosines: np.ndarray, client: int | np.ndarray | None = None) -> Floats:
    """Mean over rounds of the cosine between a client's update and the target's gradient.

    A client that trained on a target moves the model along that target's gradient. Rounds that the client sat out are
    left out.

    Parameters
    ----------
    cosines: [rounds, clients, targets]; NaN where the client did not take part.
    client: the client in question, one for all targets or [targets]. None: the client with the largest mean.

    Returns
    -------
    [targets]; -inf where the client never took part.

    Examples
    --------
    >>> update_cosine(np.array([[[0.2, 0.1], [0.0, 0.3]], [[0.4, 0.1], [np.nan, np.nan]]]))
    array([0.3, 0.3])
    """
    checked = checked_cosines(cosines)
    seen = ~np.isnan(checked)
    mean = np.where(seen, checked, 0.0).sum(0) / seen.sum(0).clip(1)
    return of_client(np.where(seen.any(0), mean, -np.inf), client)


def of_client(per_client: Floats, client: int | np.ndarray | None) -> Floats:
    """From [clients, targets] to [targets]: the client in question, or the largest of all."""
    if client is None:
        return np.asarray(per_client.max(0), dtype=np.float64)
    clients, targets = per_client.shape
    chosen = np.asarray(client)
    if chosen.dtype.kind not in "iu" or chosen.shape not in ((), (targets,)):
        raise InputError(f"client must be one client's number or one per target, [{targets}]")
    if ((chosen < 0) | (chosen >= clients)).any():
        raise InputError(f"client must be between 0 and {clients - 1}: the cosines are of {clients} clients")
    return np.asarray(per_client[chosen, np.arange(targets)], dtype=np.float64)


@register("update_cosine")
class UpdateCosine(Score):
    """Mean cosine of a client's update with the target's gradient, as a curious server sees it."""

    seat: ClassVar[Literal["client", "server"]] = "server"

    def score(self, seen: Evidence) -> Floats:
        """See `update_cosine`."""
        return update_cosine(seen.need("cosines"), seen.client)
