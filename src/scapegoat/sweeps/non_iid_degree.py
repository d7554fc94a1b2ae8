"""Label bias from 0.1 to 0.9."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point

POINTS = tuple(
    Point(str(beta), str(beta), {"federation.partition": {"name": "label_bias", "beta": beta}}, x=beta)
    for beta in (0.1, 0.3, 0.5, 0.7, 0.9)
)

SWEEP = paper.figure(
    "non-iid-degree",
    "More unequal clients",
    "The paper's figure: the degree of Non-IID from 0.1 to 0.9.",
    Axis("beta", "Degree of Non-IID", POINTS),
    x_label="degree of Non-IID (beta)",
)
