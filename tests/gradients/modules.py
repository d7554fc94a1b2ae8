"""Small modules, ordinary and odd: what a user may bring."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3


class Head(nn.Module):
    """Any body, then the mean over positions and a linear head."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(h.flatten(2).mean(2) if h.dim() > 2 else h)


class OverPositions(nn.Module):
    """Linear layers and LayerNorm applied at every position of a sequence, then averaged over positions."""

    def __init__(self, features: int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.into = nn.Linear(features, width, bias=bias)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(torch.tanh(self.into(x))).mean(1))


class CalledTwice(nn.Module):
    """One layer that every sample passes twice."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer(torch.relu(self.layer(x)))))


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, features)
        self.second.weight = self.first.weight
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class ReadsAnothersWeight(nn.Module):
    """A weight used by its layer and, behind the layer's back, once more."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x)) + F.linear(x, self.layer.weight))


class NeverCalled(nn.Module):
    """A layer whose parameters are read but which is never called, and one that is not used at all."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.idle = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(F.linear(x, self.layer.weight, self.layer.bias)))


class OwnParameters(nn.Module):
    """Parameters of no layer at all."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features) + 0.5)
        self.shift = nn.Parameter(torch.randn(()))
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x * self.scale + self.shift))


class PositionsFirst(nn.Module):
    """A sequence laid out [positions, batch, features], as older recurrent code has it."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x.transpose(0, 1))).mean(0))


class Backwards(nn.Module):
    """Samples in reverse order inside a layer: the batch dimension has the right length and the wrong order."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x.flip(0)).flip(0)))


class Flattened(nn.Module):
    """Positions folded into the batch, as attention code likes to do."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x.flatten(0, 1))).view(x.shape).mean(1))


class Words(nn.Module):
    """Embedding, recurrence and attention over tokens."""

    def __init__(self, vocabulary: int, width: int, recurrent: bool = True, attention: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width, padding_idx=0)
        self.recurrent = nn.LSTM(width, width, batch_first=True) if recurrent else None
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True) if attention else None
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x.long())
        if self.recurrent is not None:
            h = self.recurrent(h)[0]
        if self.attention is not None:
            h = h + self.attention(h, h, h, need_weights=False)[0]
        return self.head(self.norm(h).mean(1))


class Overwrites(nn.Module):
    """ReLU in place, right after the layers."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.conv = nn.Conv1d(1, 2, 3)
        self.head = nn.Linear(2 * (features - 2), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.layer(x), inplace=True)
        return self.head(F.relu(self.conv(h.unsqueeze(1)), inplace=True).flatten(1))


class MixesInTraining(nn.Module):
    """Subtracts the batch mean, but in training only."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layer(x))
        return self.head(h - h.mean(0) if self.training else h)


class MinusMean(nn.Module):
    """Takes the mean over the batch away: no sample is on its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)
