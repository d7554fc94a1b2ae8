"""Mask samples chosen greedily or at random."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point, Sweep, Table


def _selection(key: str, label: str) -> Point:
    return Point(f"fedpoisonmia-{key}", label, {"attack.name": "fedpoisonmia", "attack.selection": key})


SWEEP = Sweep(
    name="mask-selection",
    title="Mask samples of FedPoisonMIA, greedy or random",
    about="The paper's comparison of the two ways to choose mask samples.",
    axes=(
        Axis("attack", "Method", (_selection("random", "Random"), _selection("greedy", "Greedy"))),
        paper.defenses(*paper.MAIN_DEFENSES),
        paper.partitions(),
    ),
    layout=Table(rows=("data", "attack"), columns=("defense", "partition")),
    base=paper.SETTING,
    paper="mask_selection",
)
