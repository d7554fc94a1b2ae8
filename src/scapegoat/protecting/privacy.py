"""Clipping and noise for every record, and the epsilon that they give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scapegoat.accounting import Exposure, Sampling, record_epsilons

LISTED_CLIENTS = 100
"""Epsilons are told for so many clients; in a larger federation for those alone that can be the worst."""

RELATIONS: dict[Sampling, str] = {"poisson": "add or remove one record", "fixed": "replace one record"}


@dataclass(frozen=True)
class GaussianMechanism:
    """Each step sends a sum of gradients, none longer than `clip`, with noise of standard deviation noise · clip."""

    clip: float
    noise: float
    sampling: Sampling
    delta: float

    def spent(self, exposures: Mapping[int, Exposure]) -> dict[str, Any]:
        """What the steps of each client promise its records, as a run's summary tells it.

        An epsilon is None where there is none, without noise. The whole is as private as its worst client.
        """
        exposures = dict(exposures)
        if len(exposures) > LISTED_CLIENTS:
            worst = _undominated(exposures)
            exposures = {client: exposures[client] for client in worst}
        told = record_epsilons(exposures, self.noise, self.delta, self.sampling)
        return {
            "unit": "record",
            "relation": RELATIONS[self.sampling],
            "epsilon": _finite(told.whole),
            "delta": self.delta,
            "clip": self.clip,
            "noise": self.noise,
            "sampling": self.sampling,
            "per_client": [
                {
                    "client": client,
                    "epsilon": _finite(told.clients[client]),
                    "steps": exposure.rounds,
                    "sampling_rate": exposure.rate,
                }
                for client, exposure in sorted(exposures.items())
            ],
        }


def _undominated(exposures: Mapping[int, Exposure]) -> list[int]:
    """Clients such that no other has as many steps at a rate as high: epsilon grows in both, so the worst is one."""
    found: list[int] = []
    highest = -1.0
    for client in sorted(exposures, key=lambda c: (-exposures[c].rounds, -exposures[c].rate, c)):
        if exposures[client].rate > highest:
            found.append(client)
            highest = exposures[client].rate
    return found


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
