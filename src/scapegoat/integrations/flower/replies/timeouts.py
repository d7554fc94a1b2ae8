"""Waiting for replies with a limit: nodes that die, hang or answer late do not hold up a round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from scapegoat.integrations.shared.faults import fault, plain

log = logging.getLogger("flwr")

# The first polls come fast, for quick rounds; long rounds are asked about once in `poll` seconds.
_FIRST_POLL = 0.1


class DelegatingGrid(Grid):  # type: ignore[misc]
    """A Grid that passes everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        """Set the run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Any:
        """Nodes that are connected."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Any:
        """Nodes that are connected, with what is known about them."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """Fetch replies."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        """Send messages and wait for the replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class PatientGrid(DelegatingGrid):
    """A Grid whose `send_and_receive` gives up on silent nodes.

    It waits at most `limit` seconds (or the caller's timeout, whichever is shorter). A node that stayed silent is
    written to again, but not waited for until it answers something. Replies that come after their round are named in
    the log and thrown away. `silent` holds the nodes that the last call did not hear from, `broken` those whose reply
    was none, with the reason.
    """

    def __init__(
        self,
        grid: Grid,
        limit: float | None = None,
        poll: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(grid)
        self._limit = limit
        self._poll = poll
        self._clock = clock
        self._sleep = sleep
        self._outstanding: dict[str, int] = {}
        self._absent: set[int] = set()
        self._singly = False
        self.silent: tuple[int, ...] = ()
        self.broken: dict[int, str] = {}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, and return the replies that came in time, in no particular order."""
        listed = list(messages)
        started = self._clock()
        self.broken = {}
        waiting = self._push(listed)
        replies: list[Message] = []
        limits = [bound for bound in (timeout, self._limit) if bound is not None]
        deadline = started + min(limits) if limits else None
        pause = _FIRST_POLL
        while waiting:
            for reply in self._pull(waiting):
                waiting.pop(reply.metadata.reply_to_message_id, None)
                replies.append(reply)
            left = set(waiting.values()) - self._absent
            if not left:
                break
            now = self._clock()
            if deadline is not None and now >= deadline:
                break
            self._sleep(pause if deadline is None else max(min(pause, deadline - now), 0.0))
            pause = min(pause * 2, self._poll)
        self.silent = tuple(sorted(set(waiting.values())))
        for node in self.silent:
            log.warning("node %d: no reply after %.1f s; the round goes on without it", node, self._clock() - started)
        self._absent |= set(self.silent)
        self._outstanding |= waiting
        return replies

    def _push(self, messages: list[Message]) -> dict[str, int]:
        if not messages:
            return {}
        nodes = [message.metadata.dst_node_id for message in messages]
        identifiers = list(self._grid.push_messages(messages))
        unsent = [node for node, name in zip(nodes, identifiers, strict=False) if not name] + nodes[len(identifiers) :]
        for node in unsent:
            log.warning("node %d: the message could not be sent", node)
        return {name: node for name, node in zip(identifiers, nodes, strict=False) if name}

    def _pull(self, waiting: dict[str, int]) -> Iterator[Message]:
        """Replies to this round's messages; late ones to earlier messages are dealt with here."""
        for reply in self._fetch(waiting):
            asked = reply.metadata.reply_to_message_id
            if asked in waiting:
                node, named = waiting[asked], reply.metadata.src_node_id
                if reply.has_error():
                    # The SuperLink speaks for nodes that it has lost, in its own name.
                    reply.metadata.__dict__["_src_node_id"] = node
                elif named != node:
                    self.broken[waiting.pop(asked)] = f"a reply in the name of node {named}"
                    continue
                else:
                    self._absent.discard(node)
                yield reply
            elif asked in self._outstanding:
                node = self._outstanding.pop(asked)
                if reply.has_error():
                    log.warning("node %d: never answered an earlier round (%s)", node, plain(reply.error.reason))
                else:
                    self._absent.discard(node)
                    log.warning("node %d: its reply to an earlier round came too late and is not used", node)

    def _fetch(self, waiting: dict[str, int]) -> Iterator[Message]:
        """Replies that are there. Flower cannot open every reply that a node can send, and then loses those that came
        with it: from then on they are fetched one by one, and whose cannot be opened is named."""
        names = {*waiting, *self._outstanding}
        if not self._singly:
            try:
                yield from list(self._grid.pull_messages(names))
                return
            except Exception as error:
                if _transport(error):
                    raise
                log.warning("a reply cannot be opened (%s); they are fetched one by one from now on", plain(error))
                self._singly = True
        for name in sorted(names):
            try:
                yield from list(self._grid.pull_messages({name}))
            except Exception as error:
                if _transport(error):
                    raise
                self._outstanding.pop(name, None)
                if name in waiting:
                    self.broken[waiting.pop(name)] = fault(error)


def _transport(error: Exception) -> bool:
    """The SuperLink cannot be reached: nobody's reply is at fault."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in ("httpx", "httpcore", "grpc")
