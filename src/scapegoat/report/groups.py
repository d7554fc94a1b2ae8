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

    Members are compared with the non-members of their own class or client, never with others: classes and clients
    differ before any training. Runs that do not say whose a non-member would have been say nothing of clients. Classes
    and clients share the level of confidence.
    """
    if not runs:
        return ()
    values, all_of_them = pooled(runs, score)
    member = all_of_them.member
    found: list[Group] = []
    kinds: tuple[tuple[Literal["class", "client"], NDArray[np.int64]], ...] = (
        ("class", all_of_them.label),
        ("client", np.concatenate([_owners(run) for run in runs])),
    )
    for kind, labels in kinds:
        usable = labels != NOBODY
        if not 2 <= len(np.unique(labels[member & usable])) <= MOST_GROUPS:
            continue
        level = 1 - (1 - LEVEL) / 2
        for s in by_slice(values[usable], member[usable], labels[usable], level=level, tested=False):
            name = int(s.name)  # type: ignore[call-overload]
            inside = labels == name
            caught = tpr_at_fpr(values[inside], member[inside], 0.01).value if s.others else 0.0
            found.append(Group(kind, name, s.members, s.others, round(caught * s.members), s.auc))
    return tuple(sorted(found, key=lambda g: -g.auc.value))


def _owners(run: Told) -> NDArray[np.int64]:
    """Whose each target is; nobody's throughout where that is not known of every non-member."""
    known = bool((run.client[~run.member] != NOBODY).all())
    return run.client if known else np.full_like(run.client, NOBODY)
