"""What is written down about a round."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class RoundRecord:
    """One round. The lists are aligned with `clients`: the rows that the server aggregated."""

    round: int
    loss: float
    test_accuracy: float | None = None
    attack_accuracy: float = 0.0
    attack_precision: float = 0.0
    attack_recall: float = 0.0
    attack_auc: float = 0.5
    clients: list[int] = field(default_factory=list)
    malicious: list[bool] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    rejected: list[bool] = field(default_factory=list)
    mean_angle: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    attack_notes: dict[str, float] = field(default_factory=dict)
    masks: list[int] = field(default_factory=list)
    defense_notes: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and tables."""
        return asdict(self)
