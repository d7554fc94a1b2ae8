"""What must have happened in a live federation before figures of it say anything: training, and the attack."""

from __future__ import annotations

from pathlib import Path

from scapegoat.attacks import Attack
from scapegoat.errors import RunError
from scapegoat.integrations.shared.hostile import read_lines


def require_training(rounds: Path) -> None:
    """Raise RunError if no recorded round changed the model; a server of which nothing is recorded passes."""
    lines = read_lines(rounds)
    if lines and all(line["skipped"] is not None for line in lines):
        raise RunError(
            f"no round of {len(lines)} changed the model, so there is nothing to find out; the last one: "
            f"{lines[-1]['skipped']} ({rounds} has them all)"
        )


def require_attack(observations: Path, rounds: Path, attack: Attack) -> None:
    """Raise RunError if the hostile participant was given no model, or never sent what its attack makes.

    The figures would be those of an honest participant, or of somebody who looks at the finished model only.
    """
    seen = read_lines(observations)
    if not any("scores" in line for line in seen):
        raise RunError(
            f"the hostile participant was never given a model to train, so {attack.name} did not take place "
            f"({observations.parent} is what it was given; the logs beside it say more)"
        )
    reached = max([line["server_round"] for line in seen] + [line["round"] for line in read_lines(rounds)])
    poisons = any(part.poisons for part in attack.parts())
    if poisons and reached > attack.start_round and not any(line.get("attacking") for line in seen):
        raise RunError(
            f"{attack.name} was never sent: the hostile participant had no reply of its own to put it into in "
            f"{reached} rounds (the logs beside {observations.parent} say why)"
        )
