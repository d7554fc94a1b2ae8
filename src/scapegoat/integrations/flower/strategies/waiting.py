"""Waiting for nodes until a round can begin, but not forever: what both of Flower's strategy APIs share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sized
from typing import TypeVar

from scapegoat.aggregation import Rule
from scapegoat.errors import InputError, RunError

log = logging.getLogger("flwr")

Nodes = TypeVar("Nodes", bound=Sized)


def checked_timeout(seconds: float | None) -> float | None:
    """A `node_timeout`: seconds greater than 0, or None to wait without end."""
    if seconds is not None and not seconds > 0:
        raise InputError(f"node_timeout: {seconds!r} is not allowed; it must be seconds greater than 0, or None")
    return seconds


def wait_for_nodes(
    connected: Callable[[], Nodes], enough: Callable[[int], int], timeout: float | None, reason: Callable[[int], str]
) -> Nodes:
    """The connected nodes, once there are `enough` of them.

    When for `timeout` seconds there were never more than before, the run ends with RunError, which gives the `reason`
    for the number that is needed. Nodes that leave and come back are no further nodes.
    """
    most, since = -1, time.monotonic()
    while True:
        nodes = connected()
        needed = enough(len(nodes))
        if len(nodes) >= needed:
            return nodes
        if len(nodes) > most:
            most, since = len(nodes), time.monotonic()
            log.info("Waiting for nodes to connect: %d connected (minimum required: %d).", most, needed)
        if timeout is not None and time.monotonic() - since >= timeout:
            raise RunError(
                f"{len(nodes)} nodes are connected and no more came within {timeout:g} s, where {needed} are needed: "
                f"{reason(needed)}. Start more nodes (flwr run . --federation-config 'num-supernodes=10'), or raise "
                "node_timeout"
            )
        time.sleep(1 if timeout is None else min(1.0, timeout))


def why_so_many(rule: Rule, needed: int, enough: int, options: str) -> str:
    """Who asks for `enough` nodes: the rule that needs so many replies, or the strategy's `options`."""
    return f"{rule.name or 'the rule'} cannot work with fewer replies" if needed == enough else options
