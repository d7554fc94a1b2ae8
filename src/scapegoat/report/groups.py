"""The leakage of each class and client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scapegoat.membership.metrics import LEVEL, tpr_at_fpr
from scapegoat.membership.multiplicity import by_slice
from scapegoat.report.model import Group
from scapegoat.report.told import NOBODY, Told, pooled

MOST_GROUPS = 200
"""With more classes or clients than this none has enough targets to show anything."""


def groups_of(runs: Sequence[Told], score: str | None = None) -> tuple[Group, ...]:
    """Leakage of every class and client that has members among the targets, the most exposed first.

    A class's members are compared with the non-members of the class, a client's with all: nobody else's records are
    a client's. Classes and clients share the level of confidence.
    """
    if not runs:
        return ()
    values, all_of_them = pooled(runs, score)
    member = all_of_them.member
    found: list[Group] = []
    kinds: tuple[tuple[Literal["class", "client"], NDArray[np.int64]], ...] = (
        ("class", all_of_them.label),
        ("client", all_of_them.client),
    )
    for kind, labels in kinds:
        usable = member & (labels != NOBODY)
        if not 2 <= len(np.unique(labels[usable])) <= MOST_GROUPS:
            continue
        chosen = usable | ~member
        for s in by_slice(
            values[chosen],
            member[chosen],
            labels[chosen],
            against_all=kind == "client",
            level=1 - (1 - LEVEL) / 2,
            tested=False,
        ):
            name = int(s.name)  # type: ignore[call-overload]
            inside = member & (labels == name)
            compared = inside | (~member & ((kind == "client") | (labels == name)))
            caught = tpr_at_fpr(values[compared], inside[compared], 0.01).value if s.others else 0.0
            found.append(Group(kind, name, s.members, s.others, round(caught * s.members), s.auc))
    return tuple(sorted(found, key=lambda g: -g.auc.value))
