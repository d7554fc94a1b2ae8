"""A FLARE workflow in one process: the events that FedAvg fires, in its order, around an aggregator."""

from __future__ import annotations

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContextManager
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from torch import nn


class Net(nn.Linear):
    """A model of our own: of one of torch's classes FLARE would copy all of torch into the job."""

    def __init__(self):
        super().__init__(2, 2)


class Engine:
    """As much of FLARE's engine as an aggregator asks for."""

    def __init__(self, **components):
        self.components = components
        self.panics = []

    def fire_event(self, event_type, fl_ctx):
        if event_type.endswith("fatal_system_error"):
            self.panics.append(fl_ctx.get_prop(FLContextKey.EVENT_DATA))

    def get_component(self, name):
        return self.components.get(name)


class Workflow:
    """Rounds as `FedAvg.run` makes them: `round(replies)` gives the next global parameters."""

    def __init__(self, aggregator, params, folder=None, engine=None):
        self.engine = engine or Engine()
        self.manager = FLContextManager(engine=self.engine, identity_name="server", job_id="job")
        self.context = self.manager.new_context()
        self.context.set_prop(FLContextKey.APP_ROOT, str(folder) if folder else None, private=True, sticky=True)
        self.aggregator, self.params, self.number = aggregator, dict(params), 0
        aggregator.fl_ctx = self.context
        self.result = None
        self._publish()
        aggregator.handle_event(AppEventType.INITIAL_MODEL_LOADED, self.context)

    def _publish(self):
        learnable = make_model_learnable(weights=self.params, meta_props={})
        self.context.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)

    def begin(self, asked=()):
        self.context.set_prop(AppConstants.CURRENT_ROUND, self.number, private=True, sticky=False)
        self.aggregator.reset_stats()
        task = FLModelUtils.to_shareable(FLModel(ParamsType.FULL, self.params, current_round=self.number))
        self.context.set_prop(AppConstants.TRAIN_SHAREABLE, task, private=True, sticky=False)
        self.aggregator.handle_event(AppEventType.BEFORE_TRAIN_TASK, self.context)
        for name in asked:
            self.tell(AppEventType.BEFORE_TRAIN_TASK, name)

    def tell(self, event, client):
        """An event about one client: FLARE puts its context beside the server's."""
        peer = FLContextManager(engine=self.engine, identity_name=client, job_id="job").new_context()
        self.context.set_peer_context(peer)
        self.aggregator.handle_event(event, self.context)
        self.context.set_peer_context(None)

    def end(self):
        self.result = self.aggregator.aggregate_model()
        self.params = dict(FLModelUtils.update_model(FLModel(ParamsType.FULL, self.params), self.result).params)
        self._publish()
        self.number += 1
        self.aggregator.handle_event(AppEventType.BEFORE_LEARNABLE_PERSIST, self.context)
        return self.params

    def round(self, replies):
        self.begin()
        for one in replies:
            self.aggregator.accept_model(one)
        return self.end()


def reply(name, params, kind=ParamsType.FULL, metrics=None, **meta):
    return FLModel(kind, params, metrics=metrics, meta={"client_name": name, **meta})


def differences(name, params, given, **keywords):
    return reply(name, {key: params[key] - given[key] for key in given}, ParamsType.DIFF, **keywords)


def shareable(name, params, manager, kind=DataKind.WEIGHTS, meta=None):
    """A result as `ScatterAndGather` gets it: the client's name is in the peer's context."""
    made = DXO(kind, data=params, meta=meta or {}).to_shareable()
    made.set_peer_props({ReservedKey.IDENTITY_NAME: name})
    return made


def model(seed=0, features=5):
    rng = np.random.default_rng(seed)
    return {
        "a.weight": rng.normal(size=(4, features)).astype(np.float32),
        "a.bias": rng.normal(size=4).astype(np.float32),
        "norm.running_mean": np.zeros(4, dtype=np.float32),
        "norm.num_batches_tracked": np.array(7),
    }


def trained(given, seed, scale=0.1):
    rng = np.random.default_rng(seed)
    out = {}
    for name, value in given.items():
        if value.dtype.kind == "f":
            out[name] = (value + scale * rng.normal(size=value.shape)).astype(np.float32)
        else:
            out[name] = value + 3
    return out
