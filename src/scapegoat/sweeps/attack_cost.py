"""What crafting an update costs the attacker."""

from scapegoat.sweeping import paper
from scapegoat.sweeping.sweep import Axis, CostSweep, Point, Table

SWEEP = CostSweep(
    name="attack-cost",
    title="Seconds to craft an update",
    about="The paper's running times of FedPoisonMIA and AGREvader (not in its source), and the other attacks.",
    kind="attack",
    subjects=paper.attacks(),
    sizes=Axis("clients", "Clients", (Point("10", "10 clients", {"federation.clients": 10}),)),
    layout=Table(rows=("attack",), columns=("data", "clients")),
    data=paper.DATA,
    base=paper.SETTING | {"federation.rounds": 20, "federation.fraction": 1.0},
)
