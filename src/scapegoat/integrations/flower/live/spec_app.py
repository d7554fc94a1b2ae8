"""A spec as a Flower app: the simulator's data, batches, seeds and choices, in processes that talk over the network."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from scapegoat.errors import InputError, OptionError
from scapegoat.experiments.spec import Spec, SpecLike, parse
from scapegoat.experiments.staging import staged
from scapegoat.federation import Cast
from scapegoat.integrations.flower.live.hostile import HostileConfig, hostile_mod
from scapegoat.integrations.flower.replies.records import ReplyKind, arrays_of, record_of
from scapegoat.integrations.flower.strategies.strategy import RobustAggregation
from scapegoat.integrations.shared.hostile import live_attack
from scapegoat.integrations.shared.received import ReceivedModel

Answer = Callable[[Message, Context], Message]
"""What a client makes of a message."""


def live_spec(value: SpecLike) -> Spec:
    """The spec, checked for what a live federation cannot do."""
    spec = parse(value)
    live_attack(spec.attack)
    if spec.federation.schedule.memory or spec.federation.updates_per_step != spec.federation.picked:
        raise OptionError("federation.schedule", "a live federation waits for its clients: sync is expected")
    ending = next((p.name for p in spec.federation.server_protections if p.ends_training), None)
    if ending is not None:
        raise OptionError("federation.protect", f"{ending} ends training, and a live federation runs all its rounds")
    return spec


def reply_kind(spec: Spec) -> ReplyKind:
    """Gradients are sent as they are, models after local epochs as arrays."""
    return "updates" if spec.federation.local.sends == "gradient" else "arrays"


@functools.lru_cache(maxsize=1)
def _staged(text: str, root: str) -> tuple[Spec, Cast]:
    spec = live_spec(json.loads(text))
    torch.set_num_threads(spec.threads)
    return spec, staged(spec, root or None)


def _setting(context: Context) -> tuple[Spec, Cast]:
    """The spec, and everybody in their seats: splits, model, clients and attacker."""
    return _staged(str(context.run_config["spec"]), str(context.run_config["data-root"]))


def _given(cast: Cast, arrays: ArrayRecord) -> ReceivedModel:
    return ReceivedModel(lambda: cast.model.module, arrays_of(arrays), cast.targets.x, cast.model.task)


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _by_everybody(answer: Answer) -> Answer:
    """The app's answer, which hostile clients poison."""

    def played(message: Message, context: Context) -> Message:
        spec, cast = _setting(context)
        if _client(context) < spec.federation.benign:
            return answer(message, context)
        return hostile_mod(_hostile(spec, cast, context))(message, context, answer)

    return played


def _honest(message: Message, context: Context) -> Message:
    """What the simulator's client of this number would send in this round."""
    spec, cast = _setting(context)
    client, round_ = _client(context), int(message.content["config"]["server-round"]) - 1
    given = _given(cast, message.content["arrays"])
    if client < spec.federation.benign:
        out = torch.empty(1, given.model.d)
        loss, statistics = cast.benign.updates(round_, [client], [given.parameters], out)
        if len(statistics):
            cast.model.set_buffers(statistics)
        update, examples = out[0], len(cast.splits.shards[client])
    else:
        mask = cast.attacker.mask
        update, examples = cast.own_updates(round_, [client], given.parameters)[0], len(mask)
        loss = float(cast.model.task.losses(given.model.logits(given.parameters, mask.x), mask.y, "mean"))
    template = arrays_of(ArrayRecord(cast.model.module.state_dict()))
    arrays = record_of(given.reply(update, template, reply_kind(spec)))
    metrics = MetricRecord({"num-examples": examples, "loss": float(loss)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def _accuracy(message: Message, context: Context) -> Message:
    _, cast = _setting(context)
    given = _given(cast, message.content["arrays"])
    accuracy = cast.model.task.score(given.model.logits(given.parameters, cast.test.x), cast.test.y)
    metrics = MetricRecord({"num-examples": len(cast.test), "test-accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _hostile(spec: Spec, cast: Cast, context: Context) -> HostileConfig:
    attacker = cast.attacker

    def honest(round_: int, start: Tensor) -> Tensor:
        mine = [
            client for client in spec.federation.pick(spec.training_seed, round_) if client >= spec.federation.benign
        ]
        return cast.own_updates(round_, mine, start)

    return HostileConfig(
        attack=spec.attack,
        model=lambda: cast.model.module,
        targets=cast.targets,
        wrong_labels=attacker.wrong_labels,
        mask=attacker.mask,
        observations=Path(str(context.run_config["observations"])) / f"observations-{_client(context)}.jsonl",
        replies=reply_kind(spec),
        local=spec.federation.local.sends,
        seed=spec.training_seed,
        honest=honest,
        task=cast.model.task,
        trim=attacker.trim if any(part.told_trim for part in spec.attack.parts()) else None,
    )


def _main(grid: Grid, context: Context) -> None:
    spec, cast = _setting(context)
    setting = spec.federation
    clients = {int(node): int(client) for node, client in json.loads(str(context.run_config["clients"])).items()}
    module = cast.model.module
    strategy = RobustAggregation(
        spec.defense,
        fraction_train=setting.picked / setting.clients,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=1,
        replies=reply_kind(spec),
        server_optimizer=setting.server,
        round_timeout=float(context.run_config["round-timeout"]),
        seed=spec.training_seed,
        sampler=lambda server_round, ids: setting.pick(spec.training_seed, server_round - 1),
        clients=clients,
        validate=functools.partial(_validate, cast),
        train_on_root=functools.partial(_train_on_root, cast, spec),
        probe_outputs=functools.partial(_probe, cast),
    )
    strategy.server.protections = setting.server_protections
    result = strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=setting.rounds)
    if result.arrays is None:
        raise InputError("no round could be used; the log of the run says why")
    # One last look at the finished model for everybody, so that the attacker sees what the last round left.
    config = ConfigRecord({"server-round": setting.rounds})
    content = RecordDict({"arrays": result.arrays, "config": config})
    last = [Message(content, dst_node_id=node, message_type="evaluate") for node in grid.get_node_ids()]
    grid.send_and_receive(last, timeout=float(context.run_config["round-timeout"]))


def _validate(cast: Cast, arrays: ArrayRecord) -> tuple[float, float]:
    given = _given(cast, arrays)
    x, y = cast.server.validation.x, cast.server.validation.y
    outputs, task = given.model.logits(given.parameters, x), cast.model.task
    return float(task.losses(outputs, y, "mean")), task.error(outputs, y)


def _train_on_root(cast: Cast, spec: Spec, arrays: ArrayRecord) -> ArrayRecord:
    given = _given(cast, arrays)
    server = cast.server
    server.parameters = given.parameters
    update = server.root_update(server.steps)
    server.steps += 1
    return record_of(given.reply(update, arrays_of(arrays), reply_kind(spec)))


def _probe(cast: Cast, arrays: ArrayRecord, seed: int) -> Tensor:
    given = _given(cast, arrays)
    cast.server.parameters = given.parameters
    return cast.server.probe(torch.zeros(given.model.d), seed)


client_app = ClientApp()
client_app.train()(_by_everybody(_honest))
client_app.evaluate()(_by_everybody(_accuracy))
server_app = ServerApp()
server_app.main()(_main)
