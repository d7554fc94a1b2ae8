"""Eight to thirty clients, one of them malicious."""

from scapegoat.experiments.plans import paper
from scapegoat.experiments.plans.sweep import FIGURE_METRICS, Axis, Figure, Point, Sweep

SWEEP = Sweep(
    name="client-count",
    title="More clients, one of them malicious",
    about="The paper's figure: 8 to 30 clients. IID, which the paper does not say.",
    axes=(
        paper.attacks(),
        paper.defenses(*paper.FIGURE_DEFENSES),
        Axis(
            "clients",
            "Clients",
            tuple(Point(str(n), str(n), {"federation.clients": n}, x=float(n)) for n in (8, 10, 15, 20, 30)),
        ),
    ),
    layout=Figure(panel="defense", line="attack", x="clients", x_label="clients"),
    base=paper.SETTING,
    metrics=FIGURE_METRICS,
)
