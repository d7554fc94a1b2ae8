"""One to five hundred targets."""

from scapegoat.experiments.plans import paper
from scapegoat.experiments.plans.sweep import FIGURE_METRICS, Axis, Figure, Point, Sweep

SWEEP = Sweep(
    name="target-count",
    title="More targets",
    about="The paper's figure: 100 to 500 attack samples. IID, which the paper does not say.",
    axes=(
        paper.attacks(),
        paper.defenses(*paper.FIGURE_DEFENSES),
        Axis(
            "targets",
            "Targets",
            tuple(Point(str(t), str(t), {"attack.targets": t}, x=float(t)) for t in (100, 200, 300, 400, 500)),
        ),
    ),
    layout=Figure(panel="defense", line="attack", x="targets", x_label="targets"),
    base=paper.SETTING,
    metrics=FIGURE_METRICS,
)
