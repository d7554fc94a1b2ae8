"""Models of a user's own, with layers of many kinds, for records of 20 to 40 numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """A perceptron that is no `Sequential`."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(input_shape[0], 16), nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.last(torch.tanh(self.first(x)))


class Dropout(Net):
    """Random numbers in the pass; none with a rate of zero, so that two devices agree."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.last(nn.functional.dropout(torch.relu(self.first(x)), 0.0, self.training))


class Tied(Net):
    """A weight that is read twice."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        once = torch.relu(self.first(x))
        return self.last(once + torch.relu(self.first(2 * x)))


class Norms(nn.Module):
    """BatchNorm and LayerNorm."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        width = input_shape[0]
        self.layers = nn.Sequential(
            nn.Linear(width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.layers(x)


class Attention(nn.Module):
    """A linear map at several places, and attention, which nothing is known of."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.embed, self.last = nn.Linear(4, 8), nn.Linear(8, classes)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        places = self.embed(x.view(len(x), -1, 4))
        return self.last(self.attend(places, places, places, need_weights=False)[0].mean(1))


class Tokens(nn.Module):
    """An embedding; records of numbers are rounded to its places."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(40, 8), nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.last(self.table(x.long().clamp(0, 3)).mean(1))
