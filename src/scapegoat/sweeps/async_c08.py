"""Asynchronous rounds, C = 0.8: clients start from models up to five rounds old."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Sweep, Table

SWEEP = Sweep(
    name="async-c08",
    title="Asynchronous rounds, 80% of the clients per round",
    about="The paper's asynchronous tables for C = 0.8; their numbers are not in its source.",
    axes=(paper.attacks(), paper.defenses(*paper.MAIN_DEFENSES), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    data=paper.DATA,
    base=paper.SETTING | {"federation.schedule": {"name": "async", "tau_max": 5}},
)
