"""What is written down about a round, and the truth that its figures are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scapegoat.membership import metrics


@dataclass(frozen=True)
class Truth:
    """What only the auditor knows, target by target.

    `record` are row numbers in the data, `client` is whose record it is: of members always, of the others where coins
    decided over membership (else None). `label` is the class, or, where labels are not classes, the group that the task
    puts the record in; `wrong_label` is the class that the attacker claims.
    """

    record: NDArray[np.int64]
    label: NDArray[np.int64]
    wrong_label: NDArray[np.int64] | None
    member: NDArray[np.bool_]
    client: Sequence[int | None]


@dataclass
class RoundRecord:
    """One round. The lists are aligned with `clients`: the rows that the server aggregated.

    A figure is None where nobody saw it, as in a live federation that skipped the round.
    """

    round: int
    loss: float | None = None
    test_accuracy: float | None = None
    attack_accuracy: float | None = None
    attack_precision: float | None = None
    attack_recall: float | None = None
    attack_auc: float | None = None
    clients: list[int] = field(default_factory=list)
    malicious: list[bool] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    rejected: list[bool] = field(default_factory=list)
    mean_angle: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    attack_notes: dict[str, float] = field(default_factory=dict)
    masks: list[int] = field(default_factory=list)
    defense_notes: dict[str, float] = field(default_factory=dict)

    def score(self, margins: NDArray[np.float32], member: NDArray[np.bool_]) -> None:
        """Note how well the targets' margins tell members from the others."""
        called = margins > 0
        found = int((called & member).sum())
        self.attack_accuracy = float((called == member).mean())
        self.attack_precision = found / max(int(called.sum()), 1)
        self.attack_recall = found / max(int(member.sum()), 1)
        self.attack_auc = metrics.auc_value(margins, member)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and tables."""
        return asdict(self)
