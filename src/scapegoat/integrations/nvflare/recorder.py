"""What a FLARE server can tell about its rounds, whatever aggregates: who replied, how far apart, who was kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from torch import Tensor

from scapegoat.integrations.nvflare.arrays import FlareLayout, arrays_of, checked_params
from scapegoat.integrations.nvflare.attendance import Attendance
from scapegoat.integrations.shared.faults import NDArray, fault
from scapegoat.integrations.shared.hostile import append_line, keep_model
from scapegoat.integrations.shared.layout import ReplyKind
from scapegoat.integrations.shared.recording import round_line
from scapegoat.integrations.shared.rounds import RoundReport, observers

_KINDS: dict[str, ReplyKind] = {DataKind.WEIGHTS: "arrays", DataKind.WEIGHT_DIFF: "differences"}


class RoundRecorder(FLComponent):  # type: ignore[misc]
    """A component of the server that writes a line of JSON per round to `path` and keeps the newest global model.

    `kept` is what an aggregator of scapegoat's says; for any other it is null, since nobody outside it knows. `failed`
    are clients whose task ended in an error, `silent` the others that were asked and from whom nothing came.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._round = 0
        self._layout: FlareLayout | None = None
        self._rows: dict[str, NDArray] = {}
        self._losses: dict[str, float] = {}
        self._rejected: dict[str, str] = {}
        self._attendance = Attendance()
        self._report: RoundReport | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow the workflow; what is recorded never ends what is recorded about."""
        try:
            self._follow(event_type, fl_ctx)
        except Exception as error:
            self.log_warning(fl_ctx, f"the round cannot be recorded: {fault(error)}")

    def _follow(self, event_type: str, fl_ctx: FLContext) -> None:
        self._attendance.follow(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            observers.append(self._observe)
        elif event_type == EventType.END_RUN and self._observe in observers:
            observers.remove(self._observe)
        elif event_type == AppEventType.BEFORE_TRAIN_TASK:
            self._ask(fl_ctx)
        elif event_type == AppEventType.AFTER_CONTRIBUTION_ACCEPT:
            self._note(fl_ctx)
        elif event_type == AppEventType.AFTER_AGGREGATION:
            self._close()
        elif event_type == AppEventType.BEFORE_LEARNABLE_PERSIST:
            learnable = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
            keep_model(Path(self.path).with_name("final.safetensors"), arrays_of(learnable[ModelLearnableKey.WEIGHTS]))

    def _observe(self, report: RoundReport, updates: Tensor) -> None:
        del updates
        self._report = report

    def _ask(self, fl_ctx: FLContext) -> None:
        """The first task that goes out begins the round."""
        if self._layout is None:
            sent = from_shareable(fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE)).data
            self._layout = FlareLayout(arrays_of(sent), any_type=True)
            self._rows, self._losses, self._rejected, self._report = {}, {}, {}, None

    def _note(self, fl_ctx: FLContext) -> None:
        result, peer = fl_ctx.get_prop(AppConstants.TRAINING_RESULT), fl_ctx.get_peer_context()
        if self._layout is None or peer is None or result is None:
            return
        name = str(peer.get_identity_name())
        try:
            dxo = from_shareable(result)
            row = np.empty(self._layout.d, dtype=np.float32)
            arrays = self._layout.open(checked_params(dxo.data))
            self._layout.write_update(arrays, row, _KINDS[dxo.data_kind])
            self._rows[name] = row
        except Exception as error:
            self._rejected[name] = fault(error)
            return
        if (loss := _loss(dxo)) is not None:
            self._losses[name] = loss

    def _close(self) -> None:
        if self._layout is None:
            return
        self._round += 1
        aside = self._report.set_aside if self._report is not None else {}
        failed, silent = self._attendance.close({*self._rows, *self._rejected, *map(str, aside)})
        line = round_line(
            self._round, self._rows, self._report, rejected=self._rejected, failed=failed, losses=self._losses
        )
        line["silent"] = list(silent)
        append_line(Path(self.path), line)
        self._layout = None


def _loss(dxo: DXO) -> float | None:
    metrics: Any = dxo.get_meta_prop(MetaKey.INITIAL_METRICS)
    for name in ("train_loss", "train-loss", "loss"):
        value = metrics.get(name) if isinstance(metrics, Mapping) else None
        if isinstance(value, int | float) and np.isfinite(float(value)):
            return float(value)
    return None
