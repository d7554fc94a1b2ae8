"""Membership scores: what an adversary makes of what it saw. One file per score.

>>> "lira_offline" in registry.names()
True
"""

from scapegoat.membership.scoring import Evidence, Score, get, register, registry

__all__ = ["Evidence", "Score", "get", "register", "registry"]
