"""Asynchronous rounds, C = 1.0: clients start from models up to five rounds old."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Sweep, Table

SWEEP = Sweep(
    name="async-c10",
    title="Asynchronous rounds, all clients every round",
    about="The paper's asynchronous tables for C = 1.0; their numbers are not in its source.",
    axes=(paper.attacks(), paper.defenses(*paper.MAIN_DEFENSES), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    data=paper.DATA,
    base=paper.SETTING | {"federation.fraction": 1.0, "federation.schedule": {"name": "async", "tau_max": 5}},
)
