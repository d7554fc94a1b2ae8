"""The lines that put a plan into practice: in a spec, a Flower server and, where clients take part, a Flower client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from scapegoat.aggregation import parse as parse_rule
from scapegoat.aggregation import registry as rules
from scapegoat.experiments import Spec
from scapegoat.federation import FederationSetting
from scapegoat.integrations.shared.names import class_name
from scapegoat.optimizers import OptimizerOptions
from scapegoat.protections import registry as protections
from scapegoat.report.planned import Option

PLAIN_STEP = OptimizerOptions(optimizer="sgd", lr=1.0)
"""How a strategy steps unless it is told otherwise."""
PRIVATE = "dp_sgd"
"""The clients' protection that there are lines for."""
OWN_DATA = {
    "score": (
        "validate",
        "def validate(arrays):\n"
        '    raise NotImplementedError("(loss, error rate) of these arrays on records of the server\'s own")\n',
    ),
    "root_update": (
        "train_on_root",
        "def train_on_root(arrays):\n"
        '    raise NotImplementedError("what a client would reply, trained on records of the server\'s own")\n',
    ),
}
"""What a rule asks for of the server's own data, as the strategy takes it, and where to write it."""


def lines(option: Option, spec: Spec) -> dict[str, str]:
    """What to write, by title."""
    found = {"Spec": _spec_text(option), "Flower server": _server_text(option, spec.federation)}
    private = next((p for p in option.protect if p["name"] == PRIVATE), None)
    if private is not None:
        # What was searched is written without its defaults; what clients call has them all.
        found["Flower client"] = _client_text(protections.parse(dict(private)).canonical(), spec.federation)
    return found


def changed(written: Mapping[str, Any]) -> dict[str, Any]:
    """A protection's options that matter to a reader: those that are not its defaults, and the first unless it is 0."""
    usual = protections.get(str(written["name"])).canonical()
    options = {key: value for key, value in written.items() if key != "name"}
    return {k: v for i, (k, v) in enumerate(options.items()) if (i == 0 and v) or v != usual.get(k)}


def stepping(written: Mapping[str, Any]) -> dict[str, Any]:
    """A server's optimizer with its learning rate and what else is not its default."""
    usual = OptimizerOptions().model_dump()
    return {k: v for k, v in written.items() if k in ("optimizer", "lr") or v != usual[k]}


def _spec_text(option: Option) -> str:
    protect = [{"name": p["name"], **changed(p)} for p in option.protect]
    rule = [_rule(p) for p in option.rule] if isinstance(option.rule, list) else _rule(option.rule)
    steps = {} if option.server is None else {"server": stepping(option.server)}
    content = {"federation": {"rounds": option.rounds, **steps, "protect": protect}, "defense": rule}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None).rstrip()


def _rule(written: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with its trim and what else is not its default."""
    usual = rules.get(str(written["name"])).canonical()
    return {k: v for k, v in written.items() if k in ("name", "trim") or v != usual.get(k)}


def _decay(written: Mapping[str, Any]) -> str:
    options = {"rate": written["rate"]} | ({"decoupled": True} if written.get("decoupled") else {})
    return f"weight_decay={options if len(options) > 1 else written['rate']!r}"


def _cooling(written: Mapping[str, Any]) -> str:
    return f"cooling={changed(written) or True!r}"


STRATEGYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"weight_decay": _decay, "cooling": _cooling}
"""The protections that a strategy has, as its argument."""


def _server_text(option: Option, federation: FederationSetting) -> str:
    if isinstance(option.rule, list):
        name, arguments = "RobustAggregation", [repr([_rule(part) for part in option.rule])]
    elif ":" in str(option.rule["name"]):
        name, arguments = "RobustAggregation", [repr(_rule(option.rule))]
    else:
        options = _rule(option.rule)
        name, arguments = class_name(str(options.pop("name"))), [f"{k}={v!r}" for k, v in options.items()]
    comments, functions = [], []
    parts = parse_rule(option.rule).parts()
    for asked in dict.fromkeys(part.asks_for for part in parts if part.asks_for is not None):
        argument, function = OWN_DATA[asked]
        arguments.append(f"{argument}={argument}")
        functions.append(function)
    if any(part.probes for part in parts):
        comments.append("It also judges outputs, as in the audit, if it is given probe_outputs=, a function of yours.")
    for written in option.protect:
        if written["name"] in STRATEGYS:
            arguments.append(STRATEGYS[str(written["name"])](written))
        elif written["name"] != PRIVATE:
            comments.append(_missing(written))
    arguments.append(f"fraction_train={federation.fraction!r}")
    if federation.schedule.name != "sync":
        comments.append(f"A strategy waits for every node; the audit's schedule was {federation.schedule.name}.")
    if federation.local.sends == "gradient":
        arguments.append('replies="updates"')
        comments.append("As in the audit: clients reply with the gradient of a batch, the server steps.")
    server = federation.server if option.server is None else OptimizerOptions(**option.server)
    if server != PLAIN_STEP:
        arguments.append(f"server_optimizer={stepping(server.model_dump(mode='json'))!r}")
    return (
        f"from scapegoat.integrations.flower import {name}\n\n"
        + "".join(f"{function}\n" for function in functions)
        + "".join(f"# {comment}\n" for comment in comments)
        + f"strategy = {name}({', '.join(arguments)})\n"
        f"strategy.start(grid=grid, initial_arrays=arrays, num_rounds={option.rounds})"
    )


def _missing(written: Mapping[str, Any]) -> str:
    """What a reader has to do where Flower has nothing for a protection."""
    options = ", ".join(f"{key} {value}" for key, value in changed(written).items())
    said = f"{written['name']} ({options})" if options else str(written["name"])
    if protections.cls(str(written["name"])).acts == "client":
        return f"Clients also train with {said}; that is not in these lines."
    return f"The audit's server also had {said}; a strategy has not, so it is not in these lines."


def _client_text(private: Mapping[str, Any], federation: FederationSetting) -> str:
    size = federation.batch_size
    text = (
        "from scapegoat.integrations.private_step import PrivateStep\n\n"
        f"private = PrivateStep(model, clip={private['clip']!r}, noise={private['noise']!r}, batch_size={size!r})\n"
    )
    if private["sampling"] != "poisson":
        text += (
            f"# The audit's batches had {size} records each; these draw each record by chance, and account for that.\n"
        )
    if federation.local.sends == "gradient":
        text += (
            "x, y = next(private.batches(records, labels))  # each record with the same chance\n"
            "private.gradients(x, y)  # in place of loss.backward(): clipped per record, with noise\n"
            "update = [p.grad for p in model.parameters()]  # the reply of a round\n"
        )
    else:
        epochs = getattr(federation.local, "epochs", 1)
        more = f", epochs={epochs}" if epochs != 1 else ""
        text += (
            f"for x, y in private.batches(records, labels{more}):  # each record with the same chance\n"
            "    private.gradients(x, y)  # in place of loss.backward(): clipped per record, with noise\n"
            "    optimizer.step()\n"
        )
    if private["noise"]:
        text += f"epsilon = private.epsilon(delta={private['delta']!r})  # of a record, for the steps so far\n"
    return text.rstrip("\n")
