"""Protections of training: one file each, on the server or on clients. They compose.

get("weight_decay", rate=0.01)   a protection by name
parse([{"name": "weight_decay", "rate": 0.01}, {"name": "dp_sgd", "clip": 1.0, "noise": 0.2}])
"""

from scapegoat.protecting.contract import (
    ClientProtection,
    Examples,
    Look,
    Protection,
    ServerProtection,
    get,
    pace_of,
    register,
    registry,
)
from scapegoat.protecting.listed import parse

__all__ = [
    "ClientProtection",
    "Examples",
    "Look",
    "Protection",
    "ServerProtection",
    "get",
    "pace_of",
    "parse",
    "register",
    "registry",
]
