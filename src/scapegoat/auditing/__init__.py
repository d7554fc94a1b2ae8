"""The audit: attacks against defenses, a verdict, a report; and a policy that its figures are held against.

found = audit(data="hospital", attacks=["passive", "fedpoisonmia"], defenses=["fedavg", "atm"])
found.verdict.text, found.save("report.html")
"""

from scapegoat.auditing.auditor import audit, budget_of, execute_cells, planned_seeds
from scapegoat.auditing.cells import ATTACKS, DEFENSES, ROUNDS, audit_specs
from scapegoat.auditing.outcome import Audit
from scapegoat.auditing.policy import Policy, read_policy

__all__ = [
    "ATTACKS",
    "DEFENSES",
    "ROUNDS",
    "Audit",
    "Policy",
    "audit",
    "budget_of",
    "execute_cells",
    "audit_specs",
    "planned_seeds",
    "read_policy",
]
