"""Attacks: what a hostile participant sends. One file per attack."""

from scapegoat.crafting.contract import Attack, AttackerView, AttackLike, Crafted, Samples, get, register, registry

__all__ = ["Attack", "AttackLike", "AttackerView", "Crafted", "Samples", "get", "register", "registry"]
