"""One to five malicious clients of ten."""

from scapegoat.experiments.plans import paper
from scapegoat.experiments.plans.sweep import FIGURE_METRICS, Axis, Figure, Point, Sweep

SWEEP = Sweep(
    name="malicious-fraction",
    title="More malicious clients",
    about="The paper's figure: 1 to 5 of 10 clients are malicious. IID, which the paper does not say.",
    axes=(
        paper.attacks(),
        paper.defenses(*paper.FIGURE_DEFENSES),
        Axis(
            "malicious",
            "Malicious clients",
            tuple(Point(str(m), f"{10 * m}%", {"federation.malicious": m}, x=10.0 * m) for m in range(1, 6)),
        ),
    ),
    layout=Figure(panel="defense", line="attack", x="malicious", x_label="malicious clients (%)"),
    base=paper.SETTING,
    metrics=FIGURE_METRICS,
    fit_rules=True,
)
