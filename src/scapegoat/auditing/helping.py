"""The reference federations that an audit trains, so that scores can compare a run with them."""

from __future__ import annotations

from dataclasses import dataclass

from scapegoat.experiments import Spec
from scapegoat.experiments.references import reference_specs


@dataclass(frozen=True)
class Helping:
    """So many references per seed, of merely watching under plain averaging; in a rehearsal of the run itself."""

    count: int = 0
    rehearse: bool = False

    def __bool__(self) -> bool:
        return self.count > 0

    def of(self, spec: Spec) -> list[Spec]:
        """The references of a run: its data, protections and rounds, with other coins."""
        if not self:
            return []
        if self.rehearse:
            return reference_specs(spec, self.count, attack="same", defense="same")
        return reference_specs(spec, self.count)
