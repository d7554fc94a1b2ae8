"""Label bias from 0.1 to 0.9."""

from scapegoat.experiments.plans import paper
from scapegoat.experiments.plans.sweep import FIGURE_METRICS, Axis, Figure, Point, Sweep

SWEEP = Sweep(
    name="non-iid-degree",
    title="More unequal clients",
    about="The paper's figure: the degree of Non-IID from 0.1 to 0.9.",
    axes=(
        paper.attacks(),
        paper.defenses(*paper.FIGURE_DEFENSES),
        Axis(
            "beta",
            "Degree of Non-IID",
            tuple(
                Point(str(beta), str(beta), {"federation.partition": {"name": "label_bias", "beta": beta}}, x=beta)
                for beta in (0.1, 0.3, 0.5, 0.7, 0.9)
            ),
        ),
    ),
    layout=Figure(panel="defense", line="attack", x="beta", x_label="degree of Non-IID (beta)"),
    base=paper.SETTING,
    metrics=FIGURE_METRICS,
)
