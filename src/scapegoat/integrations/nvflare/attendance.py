"""Who was asked in a round of a FLARE job, whose task failed, and from whom nothing came."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from scapegoat.integrations.shared.rounds import Node


class Attendance:
    """Follows the events of a workflow; tasks and results of several clients are handled at the same time.

    FLARE's `FedAvg` tells that a client's task ended in an error, though not which error. `ScatterAndGather` tells of
    no errors: there such a client is silent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._failed: dict[Node, str] = {}

    def follow(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note who is asked and whose task ended in an error."""
        if event_type not in (AppEventType.BEFORE_TRAIN_TASK, AppEventType.AFTER_CONTRIBUTION_ACCEPT):
            return
        if (peer := fl_ctx.get_peer_context()) is None:
            return
        name = str(peer.get_identity_name())
        with self._lock:
            if event_type == AppEventType.BEFORE_TRAIN_TASK:
                self._asked.add(name)
            elif fl_ctx.get_prop(AppConstants.TRAINING_RESULT) is None:
                self._failed[name] = "its task ended in an error; FLARE's log has the code"

    def close(self, heard: Iterable[str]) -> tuple[dict[Node, str], tuple[Node, ...]]:
        """End a round: who failed, and who of the others was asked and not heard of."""
        with self._lock:
            asked, failed = self._asked, self._failed
            self._asked, self._failed = set(), {}
        return failed, tuple(sorted(asked - {*heard, *failed}))
