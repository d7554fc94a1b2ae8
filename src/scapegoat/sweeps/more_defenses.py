"""Fang, Multi-Krum and DeepSight."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Sweep, Table

SWEEP = Sweep(
    name="more-defenses",
    title="Five attacks against Fang, Multi-Krum and DeepSight",
    about="The paper's table of further defenses.",
    axes=(paper.attacks(), paper.defenses("fang", "multi_krum", "deepsight"), paper.partitions()),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    base=paper.SETTING,
    paper="more_defenses",
)
