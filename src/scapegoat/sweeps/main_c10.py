"""Synchronous rounds, C = 1.0."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Sweep, Table

SWEEP = Sweep(
    name="main-c10",
    title="Five attacks against six defenses, all clients every round",
    about="The paper's appendix tables for C = 1.0; their numbers are not in its source.",
    axes=(paper.attacks(), paper.defenses(*paper.MAIN_DEFENSES), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    data=paper.DATA,
    base=paper.SETTING | {"federation.fraction": 1.0},
)
