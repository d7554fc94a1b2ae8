"""A grid without a network, and replies as nodes would send them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# Outside of a run Flower refuses to make messages.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

NodeBehaviour = Callable[[Message], "Message | None"]


class FakeGrid(Grid):
    """Every node is a function from a message to its reply, or None if it stays silent.

    `delay[node]` is the number of polls before the reply is there.
    """

    def __init__(self, nodes: Mapping[int, NodeBehaviour], delay: Mapping[int, int] | None = None) -> None:
        self.nodes = dict(nodes)
        self.delay = dict(delay or {})
        self.sent: list[Message] = []
        self._ready: dict[str, tuple[int, Message]] = {}
        self._count = 0

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            self._count += 1
            name = f"message-{self._count}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_src_node_id"] = 1
            reply = self.nodes[node](message)
            if reply is not None:
                self._ready[name] = (self.delay.get(node, 0), reply)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = []
        for name in list(message_ids):
            if name not in self._ready:
                continue
            left, reply = self._ready[name]
            if left > 0:
                self._ready[name] = (left - 1, reply)
            else:
                found.append(self._ready.pop(name)[1])
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **keywords: Any) -> Message:
        raise NotImplementedError


def record(values: Mapping[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def instruction(node: int, arrays: ArrayRecord, server_round: int = 1) -> Message:
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
    message = Message(content, dst_node_id=node, message_type="train")
    message.metadata.__dict__["_message_id"] = f"instruction-{node}"
    message.metadata.__dict__["_src_node_id"] = 1
    return message


def reply(node: int, arrays: Any, *, examples: Any = 10, metrics: Mapping[str, Any] | None = None) -> Message:
    values = {"num-examples": examples, **(metrics or {})}
    arrays = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(values)})
    return Message(content, reply_to=instruction(node, ArrayRecord()))


def failure(node: int, reason: str) -> Message:
    return Message(Error(code=2, reason=reason), reply_to=instruction(node, ArrayRecord()))


def answering(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], examples: int = 10) -> NodeBehaviour:
    """A node that trains by applying `change` to the arrays it is given."""

    def behave(message: Message) -> Message:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        content = RecordDict({"arrays": record(change(arrays)), "metrics": MetricRecord({"num-examples": examples})})
        return Message(content, reply_to=message)

    return behave
