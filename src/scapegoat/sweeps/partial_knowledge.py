"""Partial knowledge: ten malicious clients of fifty, who see only each other.

The last row is not in the paper: FedPoisonMIA in the same federation with full knowledge, so that the effect of
knowledge can be told from the effect of fifty clients.
"""

from dataclasses import replace

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point, Sweep, Table

_SEEING_ALL = Point(
    "fedpoisonmia-full",
    "FedPoisonMIA (full)",
    {"attack.name": "fedpoisonmia", "attack.knowledge": "full"},
)


def _partial(axis: Axis) -> Axis:
    points = tuple(replace(p, settings={**p.settings, "attack.knowledge": "partial"}) for p in axis.points)
    return replace(axis, points=(*points, _SEEING_ALL))


SWEEP = Sweep(
    name="partial-knowledge",
    title="Attackers who do not see the honest updates",
    about="The paper's table for partial knowledge: 50 clients, 10 of them malicious.",
    axes=(_partial(paper.attacks()), paper.defenses(*paper.MAIN_DEFENSES), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    base=paper.SETTING | {"federation.clients": 50, "federation.malicious": 10},
    paper="partial_knowledge",
    fit_rules=True,
)
