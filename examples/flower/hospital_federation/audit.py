"""What an audit of this app needs to know. Only its owner can write this: who is in the training data."""

import torch

from hospital_federation.task import Net, federation
from scapegoat.attacks import Samples
from scapegoat.integrations.flower import AuditMaterial


def material(nodes: int) -> AuditMaterial:
    """Two hundred records, half of them in the hospitals' training data, and two hundred of the attacker's own."""
    records, splits = federation(nodes)
    order = torch.randperm(len(splits.targets), generator=torch.Generator().manual_seed(0))

    def samples(rows: torch.Tensor) -> Samples:
        return Samples(records.inputs(rows), records.y[rows])

    return AuditMaterial(
        model=Net,
        targets=samples(splits.targets[order]),
        members=order < len(splits.members),
        mask=samples(splits.mask),
        test=samples(splits.test),
        name="hospital",
    )
