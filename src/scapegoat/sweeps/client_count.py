"""Eight to thirty clients, one of them malicious."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, Point

POINTS = tuple(Point(str(n), str(n), {"federation.clients": n}, x=float(n)) for n in (8, 10, 15, 20, 30))

SWEEP = paper.figure(
    "client-count",
    "More clients, one of them malicious",
    "The paper's figure: 8 to 30 clients. IID, which the paper does not say.",
    Axis("clients", "Clients", POINTS),
    x_label="clients",
)
