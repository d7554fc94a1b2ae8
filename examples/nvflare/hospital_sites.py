"""The model, the records of each hospital, local training, and what an audit needs to know."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat import data
from scapegoat.attacks import Samples
from scapegoat.data.partitions import IID
from scapegoat.data.splits import Splits, split
from scapegoat.integrations.nvflare import AuditMaterial

RECORDS, FEATURES, CLASSES = 2000, 200, 20


class Net(nn.Module):
    """A small classifier of hospital stays."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # FLARE builds the first global model on the server: the same one every time
        self.hidden = nn.Linear(FEATURES, 128)
        self.out = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(x)))


@lru_cache
def federation(clients: int) -> tuple[data.Dataset, Splits]:
    """All records, and who holds which: the last site's own records are what an attacker there would have."""
    source = data.get("hospital", records=RECORDS, features=FEATURES, classes=CLASSES)
    records = source.read([])
    return records, split(records, source, partition=IID(), benign=clients - 1, targets=200, mask=200, seed=0)


def load_data(site: str, clients: int) -> tuple[Tensor, Tensor]:
    """The records of one hospital: site-1, site-2, ..."""
    records, splits = federation(clients)
    number = int(site.rpartition("-")[2]) - 1
    rows = splits.shards[number] if number < clients - 1 else splits.mask
    return records.inputs(rows), records.y[rows]


def train(model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float, seed: int) -> tuple[float, int]:
    """Local epochs of SGD: the loss of the last batch, and the steps taken."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    order = torch.Generator().manual_seed(seed)
    model.train()
    value, steps = 0.0, 0
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=order).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            value, steps = loss.item(), steps + 1
    return value, steps


def material(clients: int) -> AuditMaterial:
    """Two hundred records, half of them in the hospitals' training data, and two hundred of the attacker's own."""
    records, splits = federation(clients)
    order = torch.randperm(len(splits.targets), generator=torch.Generator().manual_seed(0))

    def samples(rows: Tensor) -> Samples:
        return Samples(records.inputs(rows), records.y[rows])

    return AuditMaterial(
        model=Net,
        targets=samples(splits.targets[order]),
        members=order < len(splits.members),
        mask=samples(splits.mask),
        test=samples(splits.test),
        name="hospital",
    )
