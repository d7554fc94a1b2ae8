"""Flower's messages as replies: one set of arrays, and the weight that a node gives itself."""

from __future__ import annotations

import logging
import math
from typing import Any

from flwr.app import Message

from scapegoat.integrations.shared.faults import MalformedReplyError
from scapegoat.integrations.shared.rounds import Reply, RoundReport, checked_weight, remarks

log = logging.getLogger("flwr")


def read_reply(message: Message, weighted_by_key: str) -> Reply:
    """The reply in a message, or MalformedReplyError."""
    content = message.content
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MalformedReplyError(f"{len(records)} array records, where one is expected")
    examples = read_weight(content, weighted_by_key)
    return Reply(message.metadata.src_node_id, records[0], examples, content)


def read_weight(content: Any, key: str) -> float:
    """The weight that a reply reports about itself, or MalformedReplyError."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise MalformedReplyError(f"{len(records)} metric records, where one is expected")
    value = records[0].get(key)
    if value is None or isinstance(value, list):
        raise MalformedReplyError(f"no single metric {key!r}")
    return checked_weight(key, value)


def read_metric(content: Any, key: str) -> float | None:
    """A finite single metric of a reply, if there is one of that name."""
    for record in content.metric_records.values():
        value = record.get(key)
        if isinstance(value, int | float):
            try:
                number = float(value)
            except OverflowError:  # a whole number can be larger than any float
                continue
            if math.isfinite(number):
                return number
    return None


def announce(report: RoundReport) -> None:
    """Name in the log whoever was not used, and why."""
    for level, line in remarks(report):
        log.log(level, "%s", line)
