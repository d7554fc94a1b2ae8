"""Attacks: what a hostile participant sends. One file an attack."""

from scapegoat.attacks.base import Attack, AttackerView, Crafted, Samples, get, register, registry

__all__ = ["Attack", "AttackerView", "Crafted", "Samples", "get", "register", "registry"]
