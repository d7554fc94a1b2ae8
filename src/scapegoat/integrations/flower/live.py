"""A spec as a Flower app: the simulator's data, batches, seeds and choices, in processes that talk over the network."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from scapegoat.attacks import get as get_attack
from scapegoat.errors import InputError, OptionError
from scapegoat.experiments.run import prepare
from scapegoat.experiments.spec import Spec, parse
from scapegoat.integrations.flower.hostile import HostileConfig, hostile_mod, live_attack
from scapegoat.integrations.flower.modules import ReceivedModel
from scapegoat.integrations.flower.records import ReplyKind
from scapegoat.integrations.flower.strategy import RobustAggregation


def live_spec(value: Any) -> Spec:
    """The spec, checked for what a live federation cannot do."""
    spec = parse(value)
    live_attack(spec.attack)
    if spec.federation.schedule.name != "sync":
        raise OptionError("federation.schedule", "a live federation waits for its clients: sync is wanted")
    return spec


def reply_kind(spec: Spec) -> ReplyKind:
    """Gradients are sent as they are, models after local epochs as arrays."""
    return "updates" if spec.federation.local.sends == "gradient" else "arrays"


@functools.lru_cache(maxsize=1)
def _simulation(text: str, root: str) -> tuple[Spec, Any]:
    spec = live_spec(json.loads(text))
    torch.set_num_threads(spec.threads)
    return spec, prepare(spec, root or None)


def _setting(context: Context) -> tuple[Spec, Any]:
    """The spec, and the simulator's state before the first round: its splits, model, clients and attacker."""
    return _simulation(str(context.run_config["spec"]), str(context.run_config["data-root"]))


def _client(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _train(message: Message, context: Context) -> Message:
    spec, simulation = _setting(context)
    client = _client(context)
    if client < spec.federation.benign:
        return _honest(message, context)
    return hostile_mod(_hostile(spec, simulation, context))(message, context, _honest)


def _evaluate(message: Message, context: Context) -> Message:
    spec, simulation = _setting(context)
    client = _client(context)
    if client < spec.federation.benign:
        return _accuracy(message, context)
    return hostile_mod(_hostile(spec, simulation, context))(message, context, _accuracy)


def _honest(message: Message, context: Context) -> Message:
    """What the simulator's client of this number would send in this round."""
    spec, simulation = _setting(context)
    client, round_ = _client(context), int(message.content["config"]["server-round"]) - 1
    given = ReceivedModel(lambda: simulation.model.module, message.content["arrays"], simulation.targets.x)
    if client < spec.federation.benign:
        out = torch.empty(1, given.model.d)
        loss, statistics = simulation.benign.updates(round_, [client], [given.parameters], out)
        if len(statistics):
            simulation.model.set_buffers(statistics)
        update, examples = out[0], len(simulation.splits.shards[client])
    else:
        mask = simulation.attacker.mask
        update, examples = own_updates(simulation, round_, [client], given.parameters)[0], len(mask)
        loss = float(F.cross_entropy(given.model.logits(given.parameters, mask.x), mask.y))
    template = ArrayRecord(simulation.model.module.state_dict())
    arrays = given.reply(update, template, reply_kind(spec))
    metrics = MetricRecord({"num-examples": examples, "loss": float(loss)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def _accuracy(message: Message, context: Context) -> Message:
    _, simulation = _setting(context)
    given = ReceivedModel(lambda: simulation.model.module, message.content["arrays"], simulation.targets.x)
    correct = given.model.logits(given.parameters, simulation.test.x).argmax(1) == simulation.test.y
    metrics = MetricRecord({"num-examples": len(correct), "test-accuracy": float(correct.float().mean())})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def own_updates(simulation: Any, round_: int, clients: list[int], start: Tensor) -> Tensor:
    """What these clients of the attacker's would honestly send: the passive attacker's updates."""
    passive = dataclasses.replace(simulation.attacker, attack=get_attack("passive", knowledge="partial"))
    updates: Tensor = passive.craft(round_, clients, start, torch.empty(0, simulation.model.d)).updates
    return updates


def _hostile(spec: Spec, simulation: Any, context: Context) -> HostileConfig:
    attacker = simulation.attacker

    def honest(round_: int, start: Tensor) -> Tensor:
        mine = [client for client in simulation.pick(round_) if client >= spec.federation.benign]
        return own_updates(simulation, round_, mine, start)

    return HostileConfig(
        attack=spec.attack,
        model=lambda: simulation.model.module,
        targets=simulation.targets,
        wrong_labels=attacker.wrong_labels,
        mask=attacker.mask,
        observations=Path(str(context.run_config["observations"])) / f"observations-{_client(context)}.jsonl",
        replies=reply_kind(spec),
        local=spec.federation.local.sends,
        seed=spec.seed,
        honest=honest,
        trim=attacker.trim if spec.attack.name == "adaptive" else None,
    )


def _main(grid: Grid, context: Context) -> None:
    spec, simulation = _setting(context)
    setting = spec.federation
    clients = {int(node): int(client) for node, client in json.loads(str(context.run_config["clients"])).items()}
    module = simulation.model.module
    strategy = RobustAggregation(
        spec.defense,
        fraction_train=setting.picked / setting.clients,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=1,
        replies=reply_kind(spec),
        server_optimizer=setting.server,
        round_timeout=float(context.run_config["round-timeout"]),
        seed=spec.seed,
        sampler=lambda server_round, ids: simulation.pick(server_round - 1),
        clients=clients,
        validate=functools.partial(_validate, simulation),
        train_on_root=functools.partial(_train_on_root, simulation, spec),
        probe_outputs=functools.partial(_probe, simulation),
    )
    result = strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=setting.rounds)
    if result.arrays is None:
        raise InputError("no round could be used; the log of the run says why")
    # One last look at the finished model for everybody, so that the attacker sees what the last round left.
    config = ConfigRecord({"server-round": setting.rounds})
    content = RecordDict({"arrays": result.arrays, "config": config})
    last = [Message(content, dst_node_id=node, message_type="evaluate") for node in grid.get_node_ids()]
    grid.send_and_receive(last, timeout=float(context.run_config["round-timeout"]))


def _validate(simulation: Any, arrays: ArrayRecord) -> tuple[float, float]:
    given = ReceivedModel(lambda: simulation.model.module, arrays, simulation.targets.x)
    x, y = simulation.server.validation
    logits = given.model.logits(given.parameters, x)
    return float(F.cross_entropy(logits, y)), float((logits.argmax(1) != y).float().mean())


def _train_on_root(simulation: Any, spec: Spec, arrays: ArrayRecord) -> ArrayRecord:
    given = ReceivedModel(lambda: simulation.model.module, arrays, simulation.targets.x)
    server = simulation.server
    server.parameters = given.parameters
    update = server.context([], [], server.steps).root_update()
    server.steps += 1
    return given.reply(update, arrays, reply_kind(spec))


def _probe(simulation: Any, arrays: ArrayRecord, seed: int) -> Tensor:
    given = ReceivedModel(lambda: simulation.model.module, arrays, simulation.targets.x)
    simulation.server.parameters = given.parameters
    probabilities: Tensor = simulation.server.context([], [], 0).output_probe(torch.zeros(given.model.d), seed)
    return probabilities


client_app = ClientApp()
client_app.train()(_train)
client_app.evaluate()(_evaluate)
server_app = ServerApp()
server_app.main()(_main)
