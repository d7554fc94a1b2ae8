"""A hostile participant: it watches every global model that it is given and poisons what it replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import load, save
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from scapegoat import files
from scapegoat.attacks import Attack, AttackerView, AttackLike, Crafted, Samples
from scapegoat.attacks import registry as attacks
from scapegoat.crafting.checked import craft_checked
from scapegoat.errors import InputError, OptionError
from scapegoat.files import PRIVATE, whole
from scapegoat.gradients import GradientOracle
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.layout import ReplyKind
from scapegoat.integrations.shared.received import ReceivedModel
from scapegoat.modelling.task import CLASSES
from scapegoat.randomness import derive, generator
from scapegoat.tasks import TaskSpec

# (round from 0, global parameters) -> honest updates [k, d] of the attacker's own clients.
Honest = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class HostileConfig:
    """What a hostile participant brings: an attack, the model's architecture, `targets` and `mask` data of its own.

    `model` builds the module. `attack` is a name, a mapping with options, or an Attack. Wrong labels are drawn from the
    seed if none are given.
    Nobody shows it the other clients' updates: its knowledge is partial. In their place stand what the wrapped app
    honestly sends and `stand_ins` more updates on batches of the mask data, or, where it is given, what `honest` says.
    `replies` says what the app's clients send, `local` whether that is a gradient or a model after local epochs.
    Every global model that it is given is scored on the targets, one line of JSON in `observations`. `wrong_labels` are
    one per target, `batch_size` is that of the stand-ins, all chance comes from `seed`, `trim` is what an attack that
    knows the rule is told, and `task` what the model is trained for.

    Examples
    --------
    >>> targets = Samples(torch.randn(10, 3), torch.arange(10) % 2)
    >>> mask = Samples(torch.randn(5, 3), torch.arange(5) % 2)
    >>> config = HostileConfig("fedpoisonmia", lambda: nn.Linear(3, 2), targets, mask, Path("observations.jsonl"))
    >>> config.attack.name, len(config.wrong_labels)
    ('fedpoisonmia', 10)
    """

    attack: AttackLike
    model: Callable[[], nn.Module]
    targets: Samples
    mask: Samples
    observations: Path
    wrong_labels: Tensor | None = None
    replies: ReplyKind = "arrays"
    local: Literal["gradient", "epochs"] = "epochs"
    stand_ins: int = 8
    batch_size: int = 64
    seed: int = 0
    honest: Honest | None = None
    trim: int | None = None
    task: TaskSpec = CLASSES

    def __post_init__(self) -> None:
        object.__setattr__(self, "attack", live_attack(self.attack))
        if self.wrong_labels is None:
            object.__setattr__(self, "wrong_labels", draw_wrong_labels(self.targets, self.mask, self.seed))
        elif len(self.wrong_labels) != len(self.targets):
            raise InputError(f"{len(self.wrong_labels)} wrong labels for {len(self.targets)} targets")
        if self.stand_ins < 0 or self.batch_size < 1:
            raise InputError(f"stand_ins {self.stand_ins} and batch_size {self.batch_size}: 0 or more, 1 or more")

    @property
    def played(self) -> Attack:
        """The attack itself, whatever it was given as."""
        assert isinstance(self.attack, Attack)
        return self.attack


def draw_wrong_labels(targets: Samples, mask: Samples, seed: int) -> Tensor:
    """One label per target, drawn uniformly from the other classes that the labels speak of."""
    classes = int(max(targets.y.max(), mask.y.max())) + 1
    if classes < 2:
        raise InputError("targets: wrong labels need at least two classes")
    draw = torch.randint(classes - 1, (len(targets),), generator=generator(seed, "wrong labels"))
    return draw + (draw >= targets.y).long()


def live_attack(value: AttackLike) -> Attack:
    """An attack as it can run in a live federation: with partial knowledge, unless it needs none."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Mapping):
        value = {"knowledge": "partial", **value}
    attack = attacks.parse(value)
    if attack.knowledge == "full" and any(part.uses_peers for part in attack.parts()):
        raise OptionError(
            "attack.knowledge",
            "no participant of a live federation sees the others' updates; partial is the only knowledge it can have",
        )
    return attack


def check_company(attack: Attack, known: int, remedy: str) -> None:
    """Refuse an attack that would not take place: it hides among others, and knows of too few (`known`)."""
    if known < max(part.least_peers for part in attack.parts()):
        raise InputError(
            f"{attack.name}: hides among the updates that the attacker knows of, and {known} is too few: it would send "
            f"no poison, and its figures would be those of merely watching; {remedy}"
        )


def scores(given: ReceivedModel, config: HostileConfig) -> list[float]:
    """The targets' margins under a global model: positive where a record is called a member."""
    outputs = given.model.logits(given.parameters, config.targets.x)
    return [float(margin) for margin in config.task.margins(outputs, config.targets.y)]


def poisoned(
    honest_arrays: Mapping[str, NDArray], given: ReceivedModel, config: HostileConfig, round_: int
) -> tuple[Mapping[str, NDArray], dict[str, Any]]:
    """What is sent in the place of an honest reply (round from 0), and what there is to say about it."""
    honest = given.update(honest_arrays, config.replies)
    if round_ < config.played.start_round:
        return honest_arrays, {"norm": float(honest.norm()), "attacking": False}
    crafted = _craft(given, config, round_, honest)
    update = crafted.updates[0]
    return given.reply(update, honest_arrays, config.replies), {
        "norm": float(update.norm()),
        "honest_norm": float(honest.norm()),
        "attacking": True,
        "notes": {name: float(value) for name, value in crafted.notes.items()},
        "masks": [int(index) for index in crafted.masks],
    }


def _craft(given: ReceivedModel, config: HostileConfig, round_: int, honest: Tensor) -> Crafted:
    oracle = GradientOracle(given.model, given.parameters)
    if config.honest is not None:
        peers = config.honest(round_, given.parameters)
    else:
        peers = torch.stack([honest, *_stand_ins(oracle, config, round_, honest)])
    assert config.wrong_labels is not None
    # Every message may come to a process of its own: what the attack remembers lies beside its observations.
    kept = config.observations.with_suffix(".memory.safetensors")
    memory = load_tensors(kept.read_bytes()) if kept.is_file() else {}
    seen = AttackerView(
        round=round_,
        parameters=given.parameters,
        gradients=oracle,
        targets=config.targets,
        wrong_labels=config.wrong_labels,
        mask=config.mask,
        peers=peers,
        honest=lambda: honest[None],
        senders=1,
        local=config.local,
        generator=generator(config.seed, "attack", round_),
        trim=config.trim,
        memory=memory,
    )
    crafted = craft_checked(config.played, seen)
    if memory:
        with whole(kept, mode=PRIVATE, durable=False) as draft:
            draft.write_bytes(save_tensors(memory))
    return crafted


def _stand_ins(oracle: GradientOracle, config: HostileConfig, round_: int, honest: Tensor) -> list[Tensor]:
    """What more clients of the attacker's would honestly send: gradients of mask batches, as long as the honest update
    where clients send models after local epochs."""
    updates = []
    for number in range(config.stand_ins):
        order = generator(derive(config.seed, "stand-in", number), "batch", round_)
        rows = torch.randperm(len(config.mask), generator=order)[: config.batch_size]
        gradient = oracle.mean(config.mask.x[rows], config.mask.y[rows])
        size = float(gradient.norm())
        if config.local == "epochs" and size > 0:
            gradient = gradient * (float(honest.norm()) / size)
        updates.append(gradient)
    return updates


def keep_model(path: Path, received: Mapping[str, NDArray]) -> None:
    """The newest global model that the attacker was given, whole or not at all, for the owner alone."""
    with whole(path, mode=PRIVATE, durable=False) as draft:
        draft.write_bytes(save({name: np.array(value) for name, value in received.items()}))


def read_model(path: Path) -> dict[str, NDArray]:
    """The arrays that `keep_model` wrote."""
    return dict(load(path.read_bytes()))


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Add one line of JSON to a file of the owner's alone; processes never mix their lines."""
    files.append_line(path, json.dumps(line))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines written so far; a last line that a killed process left unfinished is dropped."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
