"""Stacks of updates to try rules on, and a server that knows everything a rule may ask for."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from scapegoat.aggregation import AggregationContext, Score

CLASSES, HIDDEN = 5, 6
OUTPUT = CLASSES * HIDDEN + CLASSES


def make(seed: int, n: int, d: int, size: float = 1.0, kind: str = "normal", spread: float = 1.0) -> Tensor:
    """Rows [n, d] of about the given Euclidean size; `spread` is the largest ratio between two rows' sizes."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, d, generator=draw, dtype=torch.float64)
    if kind == "shared":
        rows += 2 * torch.randn(d, generator=draw, dtype=torch.float64)
    elif kind == "close":
        rows = torch.randn(d, generator=draw, dtype=torch.float64) + 1e-3 * rows
    elif kind == "sparse":
        rows *= torch.rand(n, d, generator=draw) < 0.3
    factor = spread ** (torch.rand(n, 1, generator=draw, dtype=torch.float64) - 0.5)
    return (rows / d**0.5 * size * factor).float()


@st.composite
def stacks(
    draw: st.DrawFn,
    min_rows: int = 1,
    max_rows: int = 11,
    kinds: tuple[str, ...] = ("normal", "shared", "close", "sparse"),
) -> Tensor:
    """Updates of sizes 1e-6 to 1e6, all alike or a hundredfold apart, shorter and longer than a chunk of the work."""
    return make(
        seed=draw(st.integers(0, 2**31)),
        n=draw(st.integers(min_rows, max_rows)),
        d=draw(st.sampled_from([1, 2, 3, 17, 64, 300])),
        size=10.0 ** draw(st.integers(-6, 6)),
        kind=draw(st.sampled_from(kinds)),
        spread=draw(st.sampled_from([1.0, 100.0])),
    )


@st.composite
def outnumbered(draw: st.DrawFn, kinds: tuple[str, ...] = ("normal", "shared", "close")) -> tuple[Tensor, int]:
    """Honest updates of size 1, then m < n/2 hostile ones up to 1e17 times as long, all alike or not; and m."""
    n, d = draw(st.integers(3, 11)), draw(st.sampled_from([1, 2, 3, 17, 64, 300]))
    m = draw(st.integers(1, (n - 1) // 2))
    seed = draw(st.integers(0, 2**31))
    hostile = make(seed + 1, m, d, size=10.0 ** draw(st.integers(0, 17)), spread=draw(st.sampled_from([1.0, 1e4])))
    if draw(st.booleans()):
        hostile = hostile[:1].expand(m, -1)
    return torch.cat([make(seed, n - m, d, kind=draw(st.sampled_from(kinds))), hostile]), m


def as_rows(updates: Tensor) -> list[np.ndarray]:
    """The same rows for a reference."""
    return [row.double().numpy() for row in updates]


def context(
    n: int,
    d: int,
    ids: tuple[int, ...] | None = None,
    seed: int = 0,
    size: float = 1.0,
    **fields: object,
) -> AggregationContext:
    """A context with all that any rule asks for: d must be at least OUTPUT, whose last entries are the output layer."""
    goal = torch.randn(d, generator=torch.Generator().manual_seed(seed + 1)) * size / d**0.5

    def score(update: Tensor) -> Score:
        return Score(loss=float((update - goal).norm()), error_rate=float((update * goal < 0).double().mean()))

    def probe(update: Tensor, noise: int) -> Tensor:
        x = torch.rand(16, HIDDEN, generator=torch.Generator().manual_seed(noise))
        weight, bias = update[-OUTPUT:-CLASSES].view(CLASSES, HIDDEN), update[-CLASSES:]
        return (-(x @ weight.T + bias) / size).softmax(1)

    return AggregationContext(
        client_ids=tuple(range(n)) if ids is None else ids,
        sample_counts=(1,) * n,
        generator=torch.Generator().manual_seed(seed),
        score=score,
        root_update=lambda: goal,
        output_probe=probe,
        layout=(("body", (d - OUTPUT, 1)), ("out.weight", (CLASSES, HIDDEN)), ("out.bias", (CLASSES,))),
        **fields,  # type: ignore[arg-type]
    )
