"""One to five malicious clients of ten."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point

POINTS = tuple(Point(str(m), f"{10 * m}%", {"federation.malicious": m}, x=10.0 * m) for m in range(1, 6))

SWEEP = paper.figure(
    "malicious-fraction",
    "More malicious clients",
    "The paper's figure: 1 to 5 of 10 clients are malicious. IID, which the paper does not say.",
    Axis("malicious", "Malicious clients", POINTS),
    x_label="malicious clients (%)",
    fit_rules=True,
)
