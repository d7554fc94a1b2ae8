"""How prose calls rules, attacks and counts."""

from __future__ import annotations

from collections.abc import Sequence

from scapegoat.membership.metrics import Estimate
from scapegoat.report.measures import ATTACK_NAMES

_NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def rule(defense: str) -> str:
    """A rule as prose calls it: the name to type, but FedAvg as everybody writes it."""
    return "FedAvg" if defense == "fedavg" else defense


def attack_name(attack: str) -> str:
    """An attack as prose calls it."""
    name, _, options = attack.partition(" ")
    return f"{ATTACK_NAMES.get(name, name)} {options}".rstrip()


def hostile(malicious: int | None, clients: int | None) -> str:
    """How many clients are hostile, in words."""
    if malicious is None or clients is None:
        return "a hostile client"
    if malicious == 1:
        return f"a hostile client out of {numeral(clients)}"
    return f"{numeral(malicious)} hostile clients out of {numeral(clients)}"


def numeral(count: int) -> str:
    """Small numbers as words."""
    return _NUMERALS[count] if 0 <= count < len(_NUMERALS) else f"{count:,}"


def points(cost: Estimate) -> str:
    """A loss of test accuracy in percentage points."""
    count = round(cost.value * 100)
    return f"{count} point{'' if count == 1 else 's'} of test accuracy"


def compared(auc: float) -> str:
    """An AUC as people understand it: how often a member is told from a stranger."""
    return f"{round(100 * auc)} of 100 comparisons"


def percent(share: float) -> str:
    """A share as a whole percentage."""
    return f"{share * 100:.0f}%"


def listed(items: Sequence[str]) -> str:
    """Items as prose lists them."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
