"""A hostile participant of a Flower federation: a mod that wraps anybody's ClientApp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from scapegoat.errors import InputError
from scapegoat.integrations.flower.replies.records import arrays_of, record_of
from scapegoat.integrations.shared.hostile import (
    HostileConfig,
    append_line,
    keep_model,
    poisoned,
    read_lines,
    scores,
)
from scapegoat.integrations.shared.received import ReceivedModel

__all__ = ["HostileConfig", "hostile_mod"]


def hostile_mod(config: HostileConfig) -> Callable[[Message, Context, Callable[[Message, Context], Message]], Message]:
    """A mod that makes a client hostile: `ClientApp(mods=[hostile_mod(config)])`, or around a finished app.

    Parameters
    ----------
    config: what the hostile client brings.

    Returns
    -------
    The mod, which scores the targets under every global model and replaces the client's replies.

    Examples
    --------
    >>> import torch
    >>> from flwr.clientapp import ClientApp
    >>> from scapegoat.attacks import Samples
    >>> targets = Samples(torch.randn(10, 3), torch.arange(10) % 2)
    >>> mask = Samples(torch.randn(5, 3), torch.arange(5) % 2)
    >>> model = lambda: torch.nn.Linear(3, 2)
    >>> config = HostileConfig("fedpoisonmia", model, targets, mask, Path("observations.jsonl"))
    >>> app = ClientApp(mods=[hostile_mod(config)])
    """

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        kind = message.metadata.message_type.split(".")[0]
        received = list(message.content.array_records.values())
        if kind not in ("train", "evaluate") or len(received) != 1:
            return call_next(message, context)
        arrays = arrays_of(received[0])
        given = ReceivedModel(config.model, arrays, config.targets.x, config.task)
        server_round = _server_round(message, config.observations)
        line: dict[str, Any] = {
            "node": context.node_id,
            "message": kind,
            "server_round": server_round,
            # Models after so many rounds: what a round of training starts from is what the one before left.
            "after": server_round - 1 if kind == "train" else server_round,
            "scores": scores(given, config),
        }
        reply = call_next(message, context)
        if kind == "train" and not reply.has_error():
            line |= _poison(reply, given, config, server_round - 1)
        append_line(config.observations, line)
        keep_model(config.observations.with_suffix(".safetensors"), arrays)
        return reply

    return mod


def _poison(reply: Message, given: ReceivedModel, config: HostileConfig, round_: int) -> dict[str, Any]:
    """Put the crafted update in the place of the honest one; what there is to say about it."""
    records = reply.content.array_records
    if len(records) != 1:
        raise InputError(f"the wrapped app replied with {len(records)} array records; one is expected")
    key, honest = next(iter(records.items()))
    sent, said = poisoned(arrays_of(honest), given, config, round_)
    if said["attacking"]:
        reply.content[key] = record_of(sent)
    return said


def _server_round(message: Message, observations: Path) -> int:
    """The round that the message says; where it says none, one more than the rounds of training seen before."""
    for config in message.content.config_records.values():
        for key in ("server-round", "server_round", "round", "current_round"):
            if isinstance(config.get(key), int):
                return int(config[key])
    trained = sum(1 for line in read_lines(observations) if line["message"] == "train")
    return trained + 1 if message.metadata.message_type.startswith("train") else trained
