"""The main table: synchronous rounds, C = 0.8."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Sweep, Table

SWEEP = Sweep(
    name="main-c08",
    title="Five attacks against six defenses, 80% of the clients per round",
    about="The paper's main table, and its tables of precision, recall and test accuracy.",
    axes=(paper.attacks(), paper.defenses(*paper.MAIN_DEFENSES), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    data=paper.DATA,
    base=paper.SETTING,
    paper="main_c08",
)
