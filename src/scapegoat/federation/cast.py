"""Everybody who takes part, before the first round: what a simulation and a live federation share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scapegoat.aggregation import Rule
from scapegoat.attacks import Attack, Samples
from scapegoat.data import Dataset
from scapegoat.data.splits import Splits
from scapegoat.errors import InputError
from scapegoat.federation.attacker import Attacker
from scapegoat.federation.clients import BenignClients
from scapegoat.federation.record import Truth
from scapegoat.federation.server import Server
from scapegoat.federation.setting import FederationSetting
from scapegoat.federation.training import protected
from scapegoat.models import FlatModel
from scapegoat.randomness import derive, numpy_generator


@dataclass(frozen=True)
class Cast:
    """The clients, the attacker's seat, the server, the targets and who of them is a member.

    `targets` are shuffled, so that their order tells nothing about membership: target i is row `target_order[i]` of
    `splits.targets`.
    """

    setting: FederationSetting
    dataset: Dataset
    splits: Splits
    model: FlatModel
    seed: int
    target_order: Tensor
    member: NDArray[np.bool_]
    targets: Samples
    test: Samples
    benign: BenignClients
    attacker: Attacker
    server: Server

    @property
    def sample_counts(self) -> list[int]:
        """Records per client, by client id."""
        return [len(s) for s in self.splits.shards] + [len(self.attacker.mask)] * self.setting.malicious

    @property
    def coins(self) -> bool:
        """Whether independent fair coins decided who of the targets is a member."""
        return self.splits.coins

    @property
    def owners(self) -> NDArray[np.int64] | None:
        """Whose a target is, member or not; None where non-members are nobody's."""
        return self.splits.target_clients[self.target_order].numpy() if self.coins else None

    @property
    def truth(self) -> Truth:
        """Who of the targets is a member, and whose."""
        splits, order = self.splits, self.target_order
        owners = [owner if owner >= 0 else None for owner in splits.target_clients[order].tolist()]
        return Truth(
            record=splits.targets[order].numpy(),
            label=self.dataset.grouped[0][splits.targets[order]].numpy(),
            wrong_label=splits.wrong_labels[order].numpy() if self.model.task.labels == "classes" else None,
            member=self.member,
            client=owners,
        )

    def own_updates(self, round_: int, clients: list[int], start: Tensor) -> Tensor:
        """What these clients of the attacker's would honestly send."""
        return self.attacker.own(round_, clients, start)()


def cast(
    *,
    dataset: Dataset,
    splits: Splits,
    model: FlatModel,
    setting: FederationSetting,
    attack: Attack,
    rule: Rule,
    seed: int,
    training_seed: int | None = None,
) -> Cast:
    """Give everybody their data and their seat.

    Everything that happens in training is drawn from `training_seed`, which is the seed unless told otherwise: then
    the same records are trained on by chance of another kind.
    """
    order = torch.from_numpy(numpy_generator(seed, "target order").permutation(len(splits.targets)))

    training = seed if training_seed is None else training_seed

    records = dataset.on(model.device)

    def samples(rows: Tensor) -> Samples:
        return Samples(records.inputs(rows), records.targets(rows))

    # Honest training is protected, the attacker's clients included; what an attack crafts is not.
    local = setting.local.trained_by(protected(setting.client_protections))
    for protection in setting.protect:
        protection.fits(model)
    changing = next((p.name for p in setting.client_protections if p.changes_examples), None)
    if changing is not None and model.task.loss is not None:
        raise InputError(f"federation.protect: {changing} makes labels that {model.task.loss} was not written for")
    targets, mask = samples(splits.targets[order]), samples(splits.mask)
    return Cast(
        setting=setting,
        dataset=dataset,
        splits=splits,
        model=model,
        seed=training,
        target_order=order,
        member=splits.member[order].numpy(),
        targets=targets,
        test=samples(splits.test),
        benign=BenignClients(records, splits.shards, model, local, setting.batch_size, training),
        attacker=Attacker(
            attack=attack,
            model=model,
            targets=targets,
            wrong_labels=splits.wrong_labels[order].to(model.device),
            mask=mask,
            local=local,
            batch_size=setting.batch_size,
            seed=training,
            trim=rule.trims(setting.updates_per_step),
        ),
        server=Server(
            model=model,
            rule=rule,
            optimizer=setting.server,
            local=setting.local,
            batch_size=setting.batch_size,
            validation=samples(splits.validation),
            sampling_rate=setting.picked / setting.clients,
            rounds=setting.rounds,
            seed=training,
            protections=setting.server_protections,
            keeps_old=setting.schedule.memory > 0 or setting.malicious > 0,
        ),
    )


def model_seed(seed: int) -> int:
    """The seed of the initial parameters."""
    return derive(seed, "model")
