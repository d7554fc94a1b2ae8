"""A hostile client of a FLARE federation: a filter around anybody's job that watches the model and poisons replies."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from scapegoat.errors import InputError
from scapegoat.integrations.nvflare.arrays import arrays_of, like
from scapegoat.integrations.shared.audit_inputs import read_hostile
from scapegoat.integrations.shared.environment import is_loopback
from scapegoat.integrations.shared.hostile import (
    HostileConfig,
    append_line,
    keep_model,
    poisoned,
    read_lines,
    read_model,
    scores,
)
from scapegoat.integrations.shared.layout import ReplyKind
from scapegoat.integrations.shared.received import ReceivedModel

_KINDS: dict[str, ReplyKind] = {DataKind.WEIGHTS: "arrays", DataKind.WEIGHT_DIFF: "differences"}
_UNFILTERED = "scapegoat_unfiltered_reply"


class HostileFilter(DXOFilter):  # type: ignore[misc]
    """Makes the client `site` hostile: put it on tasks and on results of a job that is yours.

    On a task it scores the targets under the global model, a line of JSON beside `config` (which `write_hostile`
    wrote); on a result it puts the crafted update in the place of the honest one. On other clients it does nothing.
    Filters of the job act on it too, unless an `UnfilteredReply` is the first of them and this the last.
    Outside the simulator and POC it refuses to work unless `owned` declares that the federation is yours to attack.
    """

    def __init__(self, site: str, config: str, owned: bool = False) -> None:
        super().__init__(supported_data_kinds=list(_KINDS), data_kinds_to_filter=None)
        self.site, self.config, self.owned = site, config, owned
        self._read: HostileConfig | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Refuse before the first task."""
        if event_type == EventType.START_RUN and fl_ctx.get_identity_name() == self.site:
            try:
                refuse_elsewhere(fl_ctx, self.owned)
            except InputError as error:
                self.system_panic(str(error), fl_ctx)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """As every filter, but of what the client made before the filters in between."""
        kept = fl_ctx.get_prop(_UNFILTERED)
        if kept is not None and self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_RESULT_CHAIN:
            fl_ctx.set_prop(_UNFILTERED, None, private=True, sticky=False)
            shareable = kept.update_shareable(shareable)
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Watch a task, or poison a result."""
        if fl_ctx.get_identity_name() != self.site:
            return None
        refuse_elsewhere(fl_ctx, self.owned)
        if self._read is None:
            self._read = read_hostile(Path(self.config))
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            self._watch(dxo, shareable, self._read)
            return None
        return self._poison(dxo, self._read)

    def _watch(self, dxo: DXO, shareable: Shareable, config: HostileConfig) -> None:
        arrays = arrays_of(dxo.data)
        given = ReceivedModel(config.model, arrays, config.targets.x)
        tasks = [line["server_round"] for line in read_lines(config.observations) if line["message"] == "task"]
        said = shareable.get_header(AppConstants.CURRENT_ROUND)
        number = said + 1 if isinstance(said, int) else 1 + max(tasks, default=0)
        line = {"node": self.site, "message": "task", "server_round": number, "after": number - 1}
        append_line(config.observations, line | {"scores": scores(given, config)})
        keep_model(_model(config), arrays)

    def _poison(self, dxo: DXO, config: HostileConfig) -> DXO | None:
        # The simulator may hand a client's result to another process than its task: what was given is read back.
        tasks = [line for line in read_lines(config.observations) if line["message"] == "task"]
        if not tasks:
            return None
        number = int(tasks[-1]["server_round"])
        config = replace(config, replies=_KINDS[dxo.data_kind])
        given = ReceivedModel(config.model, read_model(_model(config)), config.targets.x)
        sent, said = poisoned(arrays_of(dxo.data), given, config, number - 1)
        append_line(config.observations, {"message": "train", "server_round": number, "after": 0, **said})
        if not said["attacking"]:
            return None
        dxo.data = like(sent, dxo.data)
        return dxo


class UnfilteredReply(Filter):  # type: ignore[misc]
    """Before all filters on results: keeps what `site` made, which its `HostileFilter` behind them takes up again.

    An attacker removes filters from its own machine; where all sites share one configuration, this is how it does.
    """

    def __init__(self, site: str) -> None:
        super().__init__()
        self.site = site

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Keep a copy, since filters may change arrays in place."""
        if fl_ctx.get_identity_name() == self.site:
            # An error is no reply, and a reply that is none of FLARE's exchange objects has no model to poison.
            with contextlib.suppress(ValueError):
                dxo = from_shareable(shareable)
                kept = DXO(dxo.data_kind, copy.deepcopy(dxo.data), copy.deepcopy(dxo.meta))
                fl_ctx.set_prop(_UNFILTERED, kept, private=True, sticky=False)
        return shareable


def _model(config: HostileConfig) -> Path:
    return config.observations.with_suffix(".safetensors")


def refuse_elsewhere(fl_ctx: FLContext, owned: bool) -> None:
    """Raise InputError unless this is FLARE's simulator, on this machine (POC), or declared to be owned."""
    if owned or fl_ctx.get_prop(FLContextKey.SIMULATE_MODE):
        return
    hosts = server_hosts(fl_ctx)
    if not hosts or not all(is_loopback(host) for host in hosts):
        where = ", ".join(sorted(hosts)) or "an unknown server"
        raise InputError(
            f"the federation of {where} is neither a simulation nor on this machine; a hostile client sends poisoned "
            "updates, so it joins only a federation that is yours: say so with owned=True"
        )


def server_hosts(fl_ctx: FLContext) -> set[str]:
    """The hosts of the server that this client's startup kit names."""
    engine = fl_ctx.get_engine()
    workspace = engine.get_workspace() if engine is not None else None
    if workspace is None:
        return set()
    try:
        kit: dict[str, Any] = json.loads(Path(workspace.get_client_startup_file_path()).read_text(encoding="utf-8"))
        return {str(server["service"]["target"]).rpartition(":")[0] for server in kit["servers"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
