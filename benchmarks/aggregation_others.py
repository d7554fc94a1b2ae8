"""How others compute the same rules: the paper's pseudo-code, torch's own operations, Flower's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scapegoat.aggregation import fedavg
from scapegoat.combining.stack import checked, stacked

MINUTES = 3e10
"""A function that would go through more numbers than these is left out: it would take minutes."""


@dataclass(frozen=True)
class Other:
    """Another way to compute `rule`; its seconds count `times` over. Without a function, `why_not` says why."""

    kind: str
    rule: str
    function: Callable[[], Any] | None
    times: float = 1.0
    why_not: str = ""


def others(updates: Tensor) -> Iterator[Other]:
    """All that there is to compare with for a stack of this size."""
    yield from _paper_loops(updates)
    yield from _torch_operations(updates)
    yield from _flower(updates)


def _unless_slow(kind: str, rule: str, function: Callable[[], Any], numbers: float) -> Other:
    return Other(kind, rule, function) if numbers < MINUTES else Other(kind, rule, None, why_not="takes minutes")


def _total(rows: list[Tensor]) -> Tensor:
    total = rows[0].clone()
    for row in rows[1:]:
        total = total + row
    return total


def _paper_loops(updates: Tensor) -> Iterator[Other]:
    """The pseudo-code line by line, a pair of vectors at a time.

    ATM's angles are computed in float64, as the reference in the tests does, and in float32 (`paper_loop_float32`), the
    fastest that a loop over pairs can be and the less exact.
    """
    rows, (n, d) = list(updates), updates.shape

    def angle(x: Tensor, y: Tensor) -> Tensor:
        lengths: Tensor = x.norm() * y.norm()
        return torch.arccos((torch.dot(x, y) / lengths).clamp(-1, 1))

    def atm(dtype: torch.dtype) -> Tensor:
        angles = torch.zeros(n, n, dtype=dtype)
        for i in range(n):
            for j in range(i + 1, n):
                angles[i, j] = angles[j, i] = angle(rows[i].to(dtype), rows[j].to(dtype))
        kept = (angles.sum(1) / n).argsort()[: n - 2].tolist()
        return _total([rows[i] for i in kept]) / len(kept)

    def multi_krum() -> Tensor:
        scores = []
        for i in range(n):
            distances = sorted(float((rows[i] - rows[j]).square().sum()) for j in range(n) if j != i)
            scores.append(sum(distances[: max(1, n - 3)]))
        picked = sorted(range(n), key=scores.__getitem__)[: n // 2]
        return _total([rows[i] for i in picked]) / len(picked)

    yield Other("paper_loop", "fedavg", lambda: _total(rows) / n)
    yield _unless_slow("paper_loop", "atm", lambda: atm(torch.float64), n * n * d)
    yield _unless_slow("paper_loop_float32", "atm", lambda: atm(torch.float32), n * n * d)
    yield _unless_slow("paper_loop", "multi_krum", multi_krum, n * n * d)


def _torch_operations(updates: Tensor) -> Iterator[Other]:
    """`torch.mean`, `torch.median`, a full sort, `torch.topk`; of the largest stacks a tenth of the columns, times ten.

    `screened_by_norms` is our mean with the screening of rules that need the norms.
    """
    n, d = updates.shape
    part, times = (updates[:, : d // 10].contiguous(), 10.0) if n * d > 2e8 else (updates, 1.0)

    def top_k() -> None:
        for row in part:
            row.scatter(0, row.abs().topk(len(row) // 2, largest=False).indices, 0)

    yield Other("torch", "fedavg", lambda: part.mean(0), times)
    yield Other("screened_by_norms", "fedavg", lambda: fedavg(checked(stacked(part))).update, times)
    yield Other("torch", "median", lambda: part.median(0), times)
    yield Other("torch", "trimmed_mean", lambda: part.sort(0).values[1:-1].mean(0), times)
    yield Other("torch", "top_k", top_k, times)


def _flower(updates: Tensor) -> Iterator[Other]:
    """Flower's functions on the same rows, as NumPy arrays of one layer."""
    try:
        from flwr.server.strategy import aggregate as flower
    except ImportError:
        for rule in ("fedavg", "median", "trimmed_mean", "krum", "bulyan"):
            yield Other("flower", rule, None, why_not="flwr is not installed")
        return
    n, d = updates.shape
    results = [([row], 1) for row in updates.numpy()]
    yield Other("flower", "fedavg", lambda: flower.aggregate(results))
    yield _unless_slow("flower", "median", lambda: flower.aggregate_median(results), 60 * n * d)
    yield _unless_slow("flower", "trimmed_mean", lambda: flower.aggregate_trimmed_avg(results, 1 / n), 60 * n * d)
    yield _unless_slow("flower", "krum", lambda: flower.aggregate_krum(results, 1, 0), n * n * d)
    bulyan = lambda: flower.aggregate_bulyan(list(results), 1, flower.aggregate_krum, to_keep=0)  # noqa: E731
    yield _unless_slow("flower", "bulyan", bulyan, n**3 / 3 * d)
