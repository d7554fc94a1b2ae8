"""The model, the data of each hospital, and local training."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat import data
from scapegoat.data.partitions import IID
from scapegoat.data.splits import Splits, split

RECORDS, FEATURES, CLASSES = 2000, 200, 20


class Net(nn.Module):
    """A small classifier of hospital stays."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES, 256)
        self.norm = nn.BatchNorm1d(256)
        self.out = nn.Linear(256, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.norm(self.hidden(x))))


@lru_cache
def federation(nodes: int) -> tuple[data.Dataset, Splits]:
    """All records, and who holds which: the last node's own records are what an attacker there would have."""
    source = data.get("hospital", records=RECORDS, features=FEATURES, classes=CLASSES)
    records = source.read([])
    return records, split(records, source, partition=IID(), benign=nodes - 1, targets=200, mask=200, seed=0)


def load_data(partition: int, nodes: int) -> tuple[Tensor, Tensor]:
    """The records of one hospital."""
    records, splits = federation(nodes)
    rows = splits.shards[partition] if partition < nodes - 1 else splits.mask
    return records.inputs(rows), records.y[rows]


def train(model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float, batch_size: int, seed: int) -> float:
    """Local epochs of SGD; the mean loss of the last one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    order = torch.Generator().manual_seed(seed)
    model.train()
    losses = []
    for _ in range(epochs):
        losses = []
        for rows in torch.randperm(len(y), generator=order).split(batch_size):
            if len(rows) < 2:  # BatchNorm needs company
                continue
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / max(len(losses), 1)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of right predictions."""
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()
