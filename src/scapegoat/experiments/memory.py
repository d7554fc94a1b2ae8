"""How much memory a run will need, told from its parts before the first round, and refused where it is not there.

The data and the model are in memory by then. What is still to come is mostly vectors as long as the model: the updates
of a round above all, the rule's memory, the optimizer's. The activations of a pass are found by passing two records.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scapegoat.data.formats.memory import available
from scapegoat.data.formats.safe_io import human
from scapegoat.devices import CPU, free_memory
from scapegoat.errors import InputError
from scapegoat.federation.cast import Cast
from scapegoat.federation.gathering import SCRATCH_FLOATS
from scapegoat.federation.local import clients_at_once
from scapegoat.federation.simulation import TRAIN_ACCURACY_RECORDS
from scapegoat.gradients.layer_map import ACTIVATION_FLOATS
from scapegoat.heap import LARGE, may_keep
from scapegoat.modelling.flat_model import IMAGES_AT_ONCE, FlatModel
from scapegoat.narrow_rows import READ_FLOATS

LIBRARIES = 64 << 20
"""What is imported on the way: clustering, statistics, Parquet."""

BLOCKS = 32 << 20
"""Blocks of columns that a rule goes through at a time."""

PRODUCTS = 4 * 8
"""Bytes per pair of updates: inner products in float64, in the making or looked at from several sides."""

BACKWARD = 1.5
"""A backward pass holds this many times what the forward pass left it."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and what would make it smaller."""

    what: str
    bytes: float
    less: str = ""
    small: float = 0.0
    """How much of it is in pieces so small that the process keeps them when they are freed."""


@dataclass(frozen=True)
class Need:
    """What a run needs beside its data and its model: parts that stay, and the largest of those that come and go."""

    kept: tuple[Part, ...]
    passing: tuple[Part, ...]
    freed: float = 0.0
    """What the process keeps of others when the largest that comes and goes is there, at the most."""

    @property
    def bytes(self) -> int:
        """All of it at the peak."""
        return int(sum(p.bytes for p in self.kept) + max(p.bytes for p in self.passing) + self.freed) + LIBRARIES

    @property
    def largest(self) -> list[Part]:
        """The parts at the peak, the largest first."""
        return sorted((*self.kept, max(self.passing, key=lambda p: p.bytes)), key=lambda p: -p.bytes)


def needed(cast: Cast, server_view: bool = False, *, elsewhere: bool = False) -> Need:
    """What the rounds of this federation will need on this machine; the updates may lie `elsewhere`, in shards."""
    setting, model, rule = cast.setting, cast.model, cast.server.rule
    d, n, vector = model.d, setting.picked, 4.0 * model.d
    stale = setting.schedule.memory + (1 if cast.server.keeps_old else 0)
    size = setting.updates_per_step
    waiting = _waiting(n, size, setting.rounds, copied=setting.updates != "bfloat16")
    few = setting.updates == "bfloat16"
    held = vector / 2 if few else vector
    fewer = "pick fewer clients (federation.fraction)"
    halved = fewer if few or not attack_reads(cast) else f"{fewer}, federation.updates=bfloat16"
    here = n
    if elsewhere and not server_view:
        here = n if setting.malicious and cast.attacker.looks(setting.rounds) else 0
    kept = [
        Part(f"the updates of {n} clients", here * held, halved),
        Part(
            f"{setting.server.optimizer}'s moments", setting.server.vectors * vector, "federation.server.optimizer=sgd"
        ),
        Part("earlier models", stale * vector, "a smaller federation.schedule.tau_max"),
        Part("updates that wait", waiting * held, "a smaller federation.schedule.buffer"),
        Part("what the rule remembers", 4.0 * rule.keeps(setting.clients, d), "defense.sketch or defense.remember"),
        Part("the scores of every round", 4.0 * setting.rounds * len(cast.targets), "fewer attack.targets"),
    ]
    if server_view:
        seen = 6 * 8.0 * setting.clients * len(cast.targets)
        kept.append(Part("what a curious server notes", seen, "evaluation.server_view=false"))
    freed = _small(vector)
    # What is held in fewer bits is read in pieces, or a row at a time.
    read = 4.0 * READ_FLOATS + vector if few else 0.0
    per_record = activations(model, cast.targets.x, cast.targets.y)
    passing = [
        _training(cast, per_record),
        _crafting(cast, per_record),
        Part(
            f"{rule.name} over {n} updates",
            4.0 * rule.needs(size, d) + BLOCKS + read + PRODUCTS * size**2,
            fewer,
            BLOCKS + 2 * freed,
        ),
        Part("a checkpoint", 2 * vector, small=2 * freed),
        Part("the records of the last evaluation", _evaluated(cast), small=_small(_evaluated(cast))),
    ]
    return Need(tuple(kept), tuple(passing), _kept_back(passing) if model.device == CPU else 0.0)


def _small(piece: float) -> float:
    """The bytes of a piece that the process would keep when it is freed; none of a large one."""
    return piece if piece < LARGE else 0.0


def _kept_back(passing: list[Part]) -> float:
    """What the largest of what comes and goes may find left by the others, in pieces that it cannot use."""
    largest = max(passing, key=lambda p: p.bytes)
    return min(may_keep(), max(p.small for p in passing if p is not largest))


def refuse_what_does_not_fit(cast: Cast, server_view: bool = False, *, elsewhere: bool = False) -> Need:
    """What is needed; an InputError with the numbers where that is more than is free."""
    need, there = needed(cast, server_view, elsewhere=elsewhere), free_memory(cast.model.device)
    free = available() if there is None else there
    where = "memory" if there is None else f"the memory of {cast.model.device}"
    if need.bytes > free:
        told = [f"{human(p.bytes)} for {p.what}" for p in need.largest[:2]]
        ways = dict.fromkeys(p.less for p in need.largest[:2] if p.less)
        raise InputError(
            f"the run needs {human(need.bytes)} of {where} beside its data, {human(free)} are free: {', '.join(told)} "
            f"(a model of {cast.model.d:,} parameters); what helps: {', '.join([*ways, 'a smaller model'])}"
        )
    return need


def attack_reads(cast: Cast) -> bool:
    """Whether the attack would read updates that are held in fewer bits."""
    return all(part.reads("bfloat16") for part in cast.attacker.attack.parts())


def activations(model: FlatModel, x: Tensor, y: Tensor) -> float:
    """Bytes per record that a forward pass keeps for the backward pass, found with two records."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters}
    found: dict[int, int] = {}

    def note(saved: Tensor) -> Tensor:
        memory = saved.untyped_storage().data_ptr()
        if memory not in own:
            found[memory] = max(found.get(memory, 0), saved.nbytes)
        return saved

    training = model.module.training
    model.module.eval()  # statistics stay as they are
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            model.task.losses(model.outputs(x[:2]), y[:2]).mean()
    finally:
        model.module.train(training)
    return sum(found.values()) / max(len(x[:2]), 1)


def _waiting(picked: int, size: int, rounds: int, copied: bool = True) -> int:
    """Updates that wait at the most until the server steps, and the copy, if any, that it steps with; 0 in step."""
    if size == picked:
        return 0
    waiting = most = 0
    for _ in range(min(rounds, 2 * size)):
        waiting += picked
        most = max(most, waiting)
        waiting %= size
    return most + (size if copied else 0)


def _training(cast: Cast, per_record: float) -> Part:
    """Batches and activations of a pass; local epochs take all records of a client and have vectors of their own."""
    setting, model = cast.setting, cast.model
    floats = max(1, cast.targets.floats)
    together = clients_at_once(model.d, setting.batch_size * floats)
    if setting.updates == "bfloat16":
        together = min(together, max(1, SCRATCH_FLOATS // model.d))
    images = cast.targets.x.dim() == 4 and not model.has_statistics
    at_once = (model.routes.images or IMAGES_AT_ONCE) if images else setting.batch_size * min(together, setting.picked)
    batches = 4.0 * setting.batch_size * floats * min(together, setting.picked)
    own = 4.0 * model.d
    if setting.updates == "bfloat16":
        shared = cast.benign.local.shares_passes(model)
        own += 4.0 * model.d * (min(together, setting.picked) if shared else 1)
    if setting.local.sends == "epochs":
        at_once = setting.batch_size
        batches = 4.0 * floats * max((len(shard) for shard in cast.splits.shards), default=0)
        scratch = 1 if setting.updates == "bfloat16" else 0
        own = 4.0 * model.d * (3 + scratch + getattr(setting.local, "vectors", 0))
    passed = batches + BACKWARD * per_record * at_once
    small = passed + (own if _small(4.0 * model.d) else 0.0)
    return Part("a training pass", passed + own, "a smaller federation.batch_size", small)


def _crafting(cast: Cast, per_record: float) -> Part:
    """What the attacker's clients send, honestly and crafted, and gradients of mask samples that are written out."""
    setting, attacker = cast.setting, cast.attacker
    senders, d = min(setting.malicious, setting.picked), cast.model.d
    own = (2 * senders + 2 + (2 if setting.updates == "bfloat16" else 0)) * 4.0 * d + PRODUCTS * setting.picked**2
    if not senders or not attacker.attack.per_sample:
        return Part("the attacker's updates", own, "a smaller federation.malicious", own if _small(4.0 * d) else 0.0)
    # Linear layers are never written out: their inner products follow from activations.
    linear = sum(
        p.numel() for m in cast.model.module.modules() if type(m) is nn.Linear for p in m.parameters(recurse=False)
    )
    masks = len(attacker.mask)
    at_once = min(masks, max(8.0, ACTIVATION_FLOATS / max(1.0, per_record / 4)))
    passed = BACKWARD * per_record * at_once
    small = passed + (own if _small(4.0 * d) else 0.0)
    return Part("crafting", own + 4.0 * masks * max(0, d - linear) + passed, "a smaller attack.mask", small)


def _evaluated(cast: Cast) -> float:
    records = min(TRAIN_ACCURACY_RECORDS, sum(len(shard) for shard in cast.splits.shards))
    return 4.0 * records * cast.targets.floats
