"""An aggregator for any rule: drop-in where a FLARE recipe or workflow takes a `ModelAggregator`."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from scapegoat.aggregation import RuleLike
from scapegoat.errors import InputError
from scapegoat.integrations.nvflare import state
from scapegoat.integrations.nvflare.arrays import FlareLayout, arrays_of, checked_params, like
from scapegoat.integrations.nvflare.attendance import Attendance
from scapegoat.integrations.nvflare.options import ServerFunction, plain_rule, reference, server_function
from scapegoat.integrations.shared.faults import MalformedReplyError, fault, plain
from scapegoat.integrations.shared.hostile import append_line
from scapegoat.integrations.shared.layout import BUFFER_NAMES, BufferMerge, ReplyKind
from scapegoat.integrations.shared.robust_server import RobustServer
from scapegoat.integrations.shared.rounds import Reply, RoundReport, checked_weight, no_progress, remarks

ROUNDS = "scapegoat_rounds.jsonl"
_KINDS: dict[ParamsType, ReplyKind] = {ParamsType.FULL: "arrays", ParamsType.DIFF: "differences"}
# Functions of the user's on the server's own data, by the keyword that names them.
_FUNCTIONS = ("validate", "train_on_root", "probe_outputs")


class RobustAggregator(ModelAggregator):  # type: ignore[misc]
    """A `ModelAggregator` with any rule in place of the mean, for full weights and for differences.

    Parameters
    ----------
    rule : str, dict, list or Rule
        The aggregation rule by name (`"atm"`), with options (`rule="atm", trim=1` or `{"name": "atm", "trim": 1}`), a
        pipeline (`[{"name": "norm_clipping"}, {"name": "median"}]`), or a `scapegoat.aggregation.Rule`.
    buffers : sequence of str
        Shell patterns of array names that are statistics, not parameters. The default knows PyTorch's BatchNorm;
        integer arrays are buffers always. Buffers never enter the rule.
    buffer_merge : "mean" or "median", optional
        How the buffers of the kept clients become one. By default their mean under plain `fedavg`, and the
        coordinate-wise median under every other rule: one client could put the mean anywhere.
    server_optimizer, server_lr : (default: "sgd", 1.0)
        The server's step along the aggregate: "sgd", "momentum" or "adam". The default is the plain new model.
    weight_decay : float or mapping (default: 0.0)
        rate · parameters is added to the aggregate before the server's step; `{"rate": 0.01, "decoupled": True}`
        shrinks the parameters beside the step instead.
    cooling : bool or mapping (default: False)
        Whether the server's learning rate falls along half a cosine over the job's rounds, to zero or `{"last": 0.1}`.
    sampling_rate : float (default: 1.0)
        The share of the clients that a round asks, from which the epsilon of `dp` is accounted.
    seed : int, optional
        Makes the rule's own randomness repeatable; without one it is drawn on the server.
    validate, train_on_root, probe_outputs : str or function, optional
        For rules that need data of the server's own (`fang`, `fltrust`, `deepsight`): functions of named NumPy arrays,
        at the top of a module that the server can import (`package.module:function`).
    resume_from : str, optional
        Folder on the server with the memory of an earlier job. By default the folder of the checkpoint that training
        starts from (`initial_ckpt`), if a memory lies beside it.
    persistor_id : str (default: "persistor")
        The persistor that loads that checkpoint.

    Notes
    -----
    Results do not depend on the order in which replies arrive. A reply that cannot be used is set aside and named in
    FLARE's log; `history` holds a `RoundReport` per round, and the job's folder a line of JSON per round
    (scapegoat_rounds.jsonl).

    Examples
    --------
    >>> RobustAggregator("atm", trim=2).server.rule
    ATM(trim=2)
    """

    def __init__(
        self,
        rule: RuleLike = "atm",
        *,
        buffers: Sequence[str] = BUFFER_NAMES,
        buffer_merge: BufferMerge | None = None,
        server_optimizer: str | Mapping[str, Any] = "sgd",
        server_lr: float = 1.0,
        weight_decay: float | Mapping[str, Any] = 0.0,
        cooling: bool | Mapping[str, Any] = False,
        sampling_rate: float = 1.0,
        seed: int | None = None,
        validate: ServerFunction | None = None,
        train_on_root: ServerFunction | None = None,
        probe_outputs: ServerFunction | None = None,
        resume_from: str | None = None,
        persistor_id: str = AppConstants.DEFAULT_PERSISTOR_ID,
        **options: Any,
    ) -> None:
        super().__init__()
        given = plain_rule(rule, options)
        functions = {"validate": validate, "train_on_root": train_on_root, "probe_outputs": probe_outputs}
        named = {key: reference(key, value) for key, value in functions.items()}
        self.server = RobustServer(
            given,
            buffers=buffers,
            buffer_merge=buffer_merge,
            server_optimizer=server_optimizer,
            server_lr=server_lr,
            weight_decay=weight_decay,
            cooling=cooling,
            sampling_rate=sampling_rate,
            seed=seed if seed is not None else int.from_bytes(np.random.default_rng().bytes(6)),
            validate=server_function("validate", named["validate"]),
            train_on_root=server_function("train_on_root", named["train_on_root"]),
            probe_outputs=server_function("probe_outputs", named["probe_outputs"]),
        )
        # FLARE writes a job's configuration from the attributes that are called as the parameters are, or `_` before.
        self._buffers, self._buffer_merge = list(buffers), buffer_merge
        self._server_optimizer, self._server_lr, self._weight_decay = server_optimizer, server_lr, weight_decay
        self._cooling = cooling
        self._sampling_rate, self._seed = sampling_rate, seed
        self._validate, self._train_on_root, self._probe_outputs = (named[key] for key in _FUNCTIONS)
        self._resume_from, self._persistor_id = resume_from, persistor_id
        self._rule = given if isinstance(given, str) else json.dumps(given)
        if isinstance(given, dict):
            for key, value in given.items():
                if key in type(self.server.rule).model_fields:
                    setattr(self, f"_{key}", value)
        self.history: list[RoundReport] = []
        self._lock = threading.Lock()
        self._attendance = Attendance()
        self._round = 0
        self._sent: Mapping[str, Any] | None = None
        self._replies: list[Reply] = []
        self._aside: dict[int | str, str] = {}
        self._digest: str | None = None

    # What FLARE tells.

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow the workflow: what is sent out, and when the model is loaded and saved."""
        super().handle_event(event_type, fl_ctx)
        self._attendance.follow(event_type, fl_ctx)
        if event_type == AppEventType.BEFORE_TRAIN_TASK:
            self._task(fl_ctx)
        elif event_type == AppEventType.INITIAL_MODEL_LOADED:
            self._resume(fl_ctx)
        elif event_type == AppEventType.BEFORE_LEARNABLE_PERSIST:
            self._save(fl_ctx)
        elif event_type == EventType.END_RUN and (nothing := no_progress(self.history)):
            self.log_error(fl_ctx, f"the job ends with the model that it began with: {nothing}")

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Take a reply as `ScatterAndGather` hands it over: the client's name is in the context of the peer."""
        self.fl_ctx = fl_ctx
        name = str(shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, "?"))
        try:
            dxo = from_shareable(shareable)
            kind = {"WEIGHTS": ParamsType.FULL, "WEIGHT_DIFF": ParamsType.DIFF}.get(dxo.data_kind)
            if kind is None:
                raise MalformedReplyError(f"{plain(dxo.data_kind, 40)}, not weights or their difference")
            model = FLModel(kind, dxo.data, metrics=dxo.meta.get(MetaKey.INITIAL_METRICS), meta=dict(dxo.meta))
        except Exception as error:  # one reply never ends a round
            with self._lock:
                self._aside[name] = fault(error)
            return False
        model.meta["client_name"] = name
        self.accept_model(model)
        return name not in self._aside

    def accept_model(self, model: FLModel) -> None:
        """Note a client's reply; what is wrong with it is found out when all are there."""
        meta = model.meta or {}
        name = str(meta.get("client_name", "?"))
        with self._lock:
            try:
                weight = checked_weight(MetaKey.NUM_STEPS_CURRENT_ROUND, meta.get(MetaKey.NUM_STEPS_CURRENT_ROUND, 1))
                kind = _KINDS.get(model.params_type)
                self._replies.append(Reply(name, checked_params(model.params), weight, model.metrics, kind))
            except Exception as error:  # one reply never ends a round
                self._aside[name] = fault(error)

    def reset_stats(self) -> None:
        """Begin a round."""
        with self._lock:
            self._sent, self._replies, self._aside = None, [], {}

    def aggregate_model(self) -> FLModel:
        """The next global model; a round in which nothing can be used leaves it as it is."""
        with self._lock:
            replies, aside, sent = self._replies, self._aside, self._sent
            self._replies, self._aside, self._sent = [], {}, None
        params = sent if sent is not None else self._global(self.fl_ctx)
        if not params:
            raise RuntimeError("the global model that the clients were given is not known to the aggregator")
        given = arrays_of(params)
        self._round += 1
        self.server.rounds = int(self.fl_ctx.get_prop(AppConstants.NUM_ROUNDS, 0) or 0) if self.fl_ctx else 0
        self.server.send(FlareLayout(given, self.server.buffer_names, any_type=True))
        number = self._current_round() + 1
        report = RoundReport(number, set_aside=aside)
        usable = [reply for reply in replies if reply.node not in aside]
        arrays = self.server.aggregate(usable, report)
        heard = {str(node) for node in (*(reply.node for reply in replies), *aside)}
        report.failed, report.silent = self._attendance.close(heard)
        self.history.append(report)
        for level, line in remarks(report, "client"):
            (self.warning if level >= logging.WARNING else self.info)(line)
        for name in report.silent:
            self.warning(f"round {number}: client {name} silent: it was asked, and no model came")
        following = given if arrays is None else arrays
        self._digest = state.digest(following)
        metrics = _averaged([reply.content for reply in usable if reply.node in set(report.kept_nodes)])
        self._write_round(report, metrics)
        return FLModel(
            params_type=ParamsType.FULL,
            params=params if arrays is None else like(arrays, params),
            metrics=metrics or None,
            meta={"nr_aggregated": sum(report.kept)},
        )

    # FLARE's own hooks for state, for workflows that snapshot their components.

    def get_persist_state(self, fl_ctx: FLContext) -> dict[str, Any]:
        """What a snapshot of the server keeps of this aggregator."""
        return {"memory": state.Memory.of(self.server, self._digest or "").to_bytes()}

    def restore(self, state_data: dict[str, Any], fl_ctx: FLContext) -> None:
        """Go on from a snapshot."""
        if state_data and "memory" in state_data:
            state.from_bytes(state_data["memory"]).give(self.server)

    # The rest is ours.

    def _task(self, fl_ctx: FLContext) -> None:
        """What the clients are given is in every task that is sent; one of them is enough."""
        if self._sent is not None:
            return
        task = fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE)
        try:
            self._sent = dict(from_shareable(task).data)
        except Exception as error:  # a task without a model is none of ours
            self.log_debug(fl_ctx, f"a task without a model: {fault(error)}")

    def _global(self, fl_ctx: FLContext | None) -> Mapping[str, Any]:
        learnable = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if fl_ctx is not None else None
        return learnable[ModelLearnableKey.WEIGHTS] if learnable else {}

    def _current_round(self) -> int:
        found = self.fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if self.fl_ctx is not None else None
        return found if isinstance(found, int) else self._round - 1

    def _folder(self, fl_ctx: FLContext | None) -> Path | None:
        """Where the persistor saves the model."""
        if fl_ctx is None or not (root := fl_ctx.get_prop(FLContextKey.APP_ROOT)):
            return None
        return Path(root) / (fl_ctx.get_prop(AppConstants.LOG_DIR) or "")

    def _save(self, fl_ctx: FLContext) -> None:
        folder = self._folder(fl_ctx)
        if folder is None or self._digest is None:
            return
        try:
            state.write(folder, state.Memory.of(self.server, self._digest))
        except OSError as error:
            self.log_error(fl_ctx, f"the rule's memory cannot be saved in {folder}: {error.strerror}")

    def _resume(self, fl_ctx: FLContext) -> None:
        """Find the memory that belongs to the model which training starts from."""
        folder = Path(self._resume_from) if self._resume_from else self._beside_checkpoint(fl_ctx)
        if folder is None:
            return
        try:
            model = state.digest(arrays_of(self._global(fl_ctx)))
            memory = state.find(folder, model, json.dumps(self.server.rule.canonical(), sort_keys=True))
            if memory is None and self._resume_from:
                raise InputError(f"{folder}: holds no memory ({state.NAME})")
        except InputError as error:
            if self._resume_from:
                self.system_panic(f"resume_from: {error}", fl_ctx)
            else:
                self.log_warning(fl_ctx, f"the rule begins without memory: {error}")
            return
        if memory is not None:
            memory.give(self.server)
            self.log_info(fl_ctx, f"the rule goes on with its memory of {memory.steps} rounds from {folder}")

    def _beside_checkpoint(self, fl_ctx: FLContext) -> Path | None:
        engine = fl_ctx.get_engine()
        persistor = engine.get_component(self._persistor_id) if engine is not None else None
        checkpoint = getattr(persistor, "source_ckpt_file_full_name", None)
        return Path(checkpoint).parent if checkpoint else None

    def _write_round(self, report: RoundReport, metrics: Mapping[str, float]) -> None:
        folder = self._folder(self.fl_ctx)
        if folder is None or not folder.is_dir():
            return
        line = {
            "round": report.round,
            "clients": report.nodes,
            "kept": report.kept_nodes,
            "left_out": report.dropped_nodes,
            "set_aside": report.set_aside,
            "failed": report.failed,
            "silent": report.silent,
            "norms": report.norms,
            "skipped": report.skipped,
            "notes": report.notes,
            "metrics": metrics,
        }
        append_line(folder / ROUNDS, line)


def _averaged(metrics: Sequence[Any]) -> dict[str, float]:
    """Metrics that every kept client reports as a finite number, averaged; clients count alike."""
    reported = [found for found in metrics if isinstance(found, Mapping)]
    if not reported or len(reported) < len(metrics):
        return {}
    averages = {}
    for name in reported[0]:
        values: list[Any] = [found.get(name) for found in reported]
        if all(isinstance(value, int | float | np.number) and math.isfinite(value) for value in values):
            averages[str(name)] = sum(float(value) for value in values) / len(values)
    return averages
