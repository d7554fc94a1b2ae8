"""One to five hundred targets."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point

POINTS = tuple(Point(str(t), str(t), {"attack.targets": t}, x=float(t)) for t in (100, 200, 300, 400, 500))

SWEEP = paper.figure(
    "target-count",
    "More targets",
    "The paper's figure: 100 to 500 attack samples. IID, which the paper does not say.",
    Axis("targets", "Targets", POINTS),
    x_label="targets",
)
