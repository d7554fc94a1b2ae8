"""What aggregating a round costs the server."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, CostSweep, Point, Table

SWEEP = CostSweep(
    name="defense-cost",
    title="Seconds to aggregate a round",
    about="The paper's cost of each defense with 10 and 50 clients; its numbers are not in its source.",
    kind="defense",
    subjects=paper.defenses(
        "dp", "top_k", "fedavg", "median", "trimmed_mean", "multi_krum", "fang", "deepsight", "atm"
    ),
    sizes=Axis(
        "clients",
        "Clients",
        tuple(Point(str(n), f"{n} clients", {"federation.clients": n}) for n in (10, 50)),
    ),
    layout=Table(rows=("defense",), columns=("data", "clients")),
    base=paper.SETTING | {"federation.rounds": 20, "federation.fraction": 1.0},
)
