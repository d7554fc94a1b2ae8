"""What a server can tell about its rounds, whatever strategy it runs: who replied, how far apart, who was kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from scapegoat.integrations.flower.replies.records import FlowerLayout, ReplyKind
from scapegoat.integrations.flower.replies.rounds import read_metric
from scapegoat.integrations.flower.replies.timeouts import DelegatingGrid
from scapegoat.integrations.shared.faults import MalformedReplyError, fault, plain
from scapegoat.integrations.shared.hostile import append_line
from scapegoat.integrations.shared.recording import round_line
from scapegoat.integrations.shared.rounds import RoundReport, observers

log = logging.getLogger("flwr")


class RecordingGrid(DelegatingGrid):
    """Passes everything on, and writes a line of JSON for every round of training.

    `kept` is what a scapegoat strategy says; for any other strategy it is null, since nobody outside it knows.
    """

    def __init__(self, grid: Grid, path: Path, replies: ReplyKind) -> None:
        super().__init__(grid)
        self._path = path
        self._kind = replies
        self._round = 0
        self._asked: set[str] = set()
        self._layout: FlowerLayout | None = None
        self._rows: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}
        self._losses: dict[int, float] = {}
        self._rejected: dict[int, str] = {}
        self._failed: dict[int, str] = {}
        self._report: RoundReport | None = None

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """Send; a batch of train messages opens a round."""
        listed = list(messages)
        names = list(self._grid.push_messages(listed))
        self._open(listed, names)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """Fetch replies, and note those of the round."""
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            if reply.metadata.reply_to_message_id in self._asked:
                self._note(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        """Send, wait, and note the replies of the round."""
        listed = list(messages)
        train = self._open(listed, [])
        replies = list(self._grid.send_and_receive(listed, timeout=timeout))
        if train:
            for reply in replies:
                self._note(reply)
        return replies

    def observe(self, report: RoundReport, updates: Tensor) -> None:
        """Called by our own strategies: whom the rule kept."""
        del updates
        self._report = report

    def close(self) -> None:
        """Write the line of the round under way."""
        if self._layout is None:
            return
        line = round_line(
            self._round, self._rows, self._report, rejected=self._rejected, failed=self._failed, losses=self._losses
        )
        append_line(self._path, line)
        self._layout, self._rows, self._report = None, {}, None

    def _open(self, messages: list[Message], names: list[str]) -> bool:
        if not messages or not messages[0].metadata.message_type.startswith("train"):
            return False
        records = list(messages[0].content.array_records.values())
        if len(records) != 1:
            return False
        self.close()
        self._layout = FlowerLayout(records[0], any_type=True)
        self._round += 1
        self._asked = set(names)
        self._losses, self._rejected, self._failed = {}, {}, {}
        return True

    def _note(self, reply: Message) -> None:
        node = reply.metadata.src_node_id
        if self._layout is None:
            return
        if reply.has_error():
            self._failed[node] = plain(reply.error.reason)
            return
        try:
            records = list(reply.content.array_records.values())
            if len(records) != 1:
                raise MalformedReplyError(f"{len(records)} array records where one is expected")
            row = np.empty(self._layout.d, dtype=np.float32)
            self._layout.write_update(self._layout.open(records[0]), row, self._kind)
            self._rows[node] = row
        except Exception as error:  # what is recorded never ends what is recorded about
            self._rejected[node] = fault(error)
            log.warning("round %d: the reply of node %d cannot be read: %s", self._round, node, self._rejected[node])
            return
        for name in ("train_loss", "train-loss", "loss"):
            if (loss := read_metric(reply.content, name)) is not None:
                self._losses[node] = loss
                break


def run_recorded(app: ServerApp, grid: Grid, context: Context, path: Path, replies: ReplyKind) -> None:
    """Run a ServerApp and write down its rounds; where the folder is not there (another machine), just run it."""
    if not path.parent.is_dir():
        app(grid, context)
        return
    recording = RecordingGrid(grid, path, replies)
    observers.append(recording.observe)
    try:
        app(recording, context)
    finally:
        observers.remove(recording.observe)
        recording.close()
