"""Audit a model of your own on data of your own, from Python.

    python examples/own_model.py

A small text-like classifier with an embedding and attention: layers that scapegoat knows nothing special about.
"""

import numpy as np
import torch
from torch import nn

import scapegoat as sg

VOCABULARY, LENGTH, CLASSES = 200, 16, 8


class Reader(nn.Module):
    """Tokens in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x.long())
        seen, _ = self.attend(tokens, tokens, tokens, need_weights=False)
        return self.head(seen.mean(1))


def make() -> nn.Module:
    return Reader()


def records(count: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """Sentences that mix words of their class with words of everybody."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, count)
    own = rng.integers(0, 12, (count, LENGTH)) + 20 * y[:, None]
    common = rng.integers(0, VOCABULARY, (count, LENGTH))
    return np.where(rng.random((count, LENGTH)) < 0.15, own, common).astype(np.float32), y


if __name__ == "__main__":
    audit = sg.audit(
        model=make,
        data=records(),
        attacks=["passive", "fedpoisonmia"],
        defenses=["fedavg", "atm", "memory_atm"],
        rounds=60,
        overrides=["attack.targets=200", "attack.mask=100", "data.validation=50"],
        title="A reader of my own",
    )
    print(audit.verdict.text)
    print("report:", audit.save("own_model.html"))
