"""The updates of a round as a rule sees them: only well-formed rows, never copied as a whole.

This is the one place where malformed updates are set aside. A row is malformed if it is not a vector of the round's
length and type, if it holds NaN or Inf, or if its squared norm overflows float32. It is its sender's fault, not the
round's: the other rows are aggregated as if it had never come, and it is reported as rejected.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import torch
from numpy.typing import NDArray
from torch import Tensor

from scapegoat import geometry
from scapegoat.chunked_sums import row64
from scapegoat.combining.arrays import as_tensor
from scapegoat.combining.contract import Aggregate
from scapegoat.devices import host
from scapegoat.errors import InputError
from scapegoat.narrow_rows import NarrowRows
from scapegoat.split_rows import Held, SplitRows

P = ParamSpec("P")
Updates = Tensor | NDArray[Any] | Sequence[Tensor | NDArray[Any]]
"""A matrix [n, d] or n vectors: tensors, NumPy arrays, or arrays of any library that NumPy or DLPack can read."""

LARGEST_SQUARE = torch.finfo(torch.float32).max
_SHORT = 1e15
"""A norm below this is far below the largest that can be squared, whatever float32 made of it."""
_ADD_WIDTH = 1 << 15


@dataclass(frozen=True, eq=False)
class Stack:
    """Well-formed rows x_i [n, d], each times `scale[i]`, of the updates that arrived.

    `accepted` [arrived] says which rows these are. `checked` is False until the values have been looked at. Where rows
    were merged, `members` [n, arrived] says whose updates are in each, and `accepted` which of them it stands for.

    Examples
    --------
    >>> stack = stacked(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    >>> stack.norms(), stack.mean()
    (tensor([5., 1.], dtype=torch.float64), tensor([1.5000, 2.5000]))
    """

    rows: geometry.Rows
    accepted: Tensor
    d: int
    scale: Tensor | None = None
    checked: bool = False
    members: Tensor | None = None
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def device(self) -> torch.device:
        """Where the rows are. What is known about rows (norms, products, who is accepted) is on the host."""
        return geometry.device_of(self.rows)

    @property
    def places(self) -> list[int]:
        """Where each row stood among the updates that arrived."""
        return self.accepted.nonzero().flatten().tolist()

    def ids(self, client_ids: Sequence[int] | None) -> tuple[int, ...]:
        """The clients behind the rows; `client_ids` name all that arrived (by default their places)."""
        return tuple(self.places if client_ids is None else (client_ids[i] for i in self.places))

    def gram(self) -> Tensor:
        """Inner products of the rows [n, n], float64."""
        if "gram" not in self._known:
            self._known["gram"] = geometry.gram(self.rows)
        matrix = self._known["gram"]
        return matrix if self.scale is None else matrix * self.scale[:, None] * self.scale[None, :]

    def norms(self) -> Tensor:
        """Euclidean norms of the rows [n], float64."""
        if "squares" not in self._known:
            known = self._known.get("gram")
            self._known["squares"] = geometry.squared_norms(self.rows) if known is None else known.diagonal().clone()
        length = self._known["squares"].sqrt()
        return length if self.scale is None else length * self.scale

    def weighted(self, weights: Tensor, out: Tensor | None = None) -> Tensor:
        """sum_i weights[i] x_i as a float32 vector [d], in `out` if given."""
        weights = weights.double() if self.scale is None else weights.double() * self.scale
        if isinstance(self.rows, SplitRows):
            found = torch.cat(self.rows.each(functools.partial(_weighted_columns, weights)))
            return found if out is None else out.copy_(found)
        used = weights.nonzero().flatten().tolist()
        if isinstance(self.rows, Tensor) and 3 * len(used) > len(self):
            return torch.mv(self.rows.T, weights.to(self.rows.device, self.rows.dtype), out=out)
        out = torch.zeros(self.d, device=self.device) if out is None else out.zero_()
        factors = weights.tolist()
        for start in range(0, self.d, _ADD_WIDTH):
            part = out[start : start + _ADD_WIDTH]
            for i in used:
                part.add_(self.rows[i][start : start + _ADD_WIDTH], alpha=factors[i])
        return out

    def mean(self, keep: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Mean of the rows, or of those where `keep` [n] is True; in `out` if given."""
        chosen = torch.ones(len(self), dtype=torch.float64) if keep is None else keep.double()
        return self.weighted(chosen / chosen.sum().clamp_min(1), out)

    def columns(self, start: int, stop: int) -> list[Tensor]:
        """Columns start..stop of every row."""
        if isinstance(self.rows, SplitRows):
            columns = list(self.rows.block(start, min(stop, self.d)))
        else:
            columns = [row[start:stop] for row in self.rows]
        if self.scale is None:
            return columns
        return [column * factor for column, factor in zip(columns, self.scale.tolist(), strict=True)]

    def scaled(self, factors: Tensor) -> Stack:
        """The same rows times `factors` [n]; nothing is copied."""
        return replace(self, scale=factors.double() if self.scale is None else factors.double() * self.scale)

    def subset(self, keep: Tensor) -> Stack:
        """Only the rows where `keep` [n] is True, as views."""
        index = keep.nonzero().flatten()
        chosen = index.tolist()
        accepted = torch.zeros_like(self.accepted)
        accepted[self.accepted.nonzero().flatten()[index]] = True
        known = {"squares": self._known["squares"][index]} if "squares" in self._known else {}
        if "gram" in self._known:
            known["gram"] = self._known["gram"][index[:, None], index]
        return replace(
            self,
            rows=self.rows.some(chosen) if isinstance(self.rows, SplitRows) else tuple(self.rows[i] for i in chosen),
            accepted=accepted,
            scale=None if self.scale is None else self.scale[index],
            members=None if self.members is None else self.members[index],
            _known=known,
        )

    def combined(self, weights: Tensor) -> Tensor:
        """k sums of the rows as a matrix [k, d], row i being sum_j weights[i, j] x_j, in one pass."""
        factors = (weights.double() if self.scale is None else weights.double() * self.scale).float().to(self.device)
        out = torch.empty(len(factors), self.d, device=self.device)
        if isinstance(self.rows, SplitRows):
            self.rows.gathers("rows that the rule mixes")
        for start, block in geometry.blocks(self.rows, _ADD_WIDTH):
            out[:, start : start + _ADD_WIDTH] = factors @ block
        return out

    def merged(self, groups: Sequence[Sequence[int]]) -> Stack:
        """The mean of every group of rows, in the place of the group's first; to be screened again."""
        ordered, places = sorted(groups, key=lambda group: group[0]), self.places
        weights = torch.zeros(len(ordered), len(self), dtype=torch.float64)
        accepted = torch.zeros_like(self.accepted)
        alone = torch.eye(len(self.accepted), dtype=torch.bool)[self.accepted]
        known = alone if self.members is None else self.members
        members = torch.zeros(len(ordered), len(self.accepted), dtype=torch.bool)
        for i, group in enumerate(ordered):
            weights[i, list(group)] = 1 / len(group)
            accepted[places[group[0]]] = True
            members[i] = known[list(group)].any(0)
        return replace(self.holding(self.combined(weights)), accepted=accepted, members=members)

    def matrix(self) -> Tensor:
        """The rows as a matrix of their own [n, d] (a copy)."""
        if isinstance(self.rows, SplitRows):
            self.rows.gathers("rows that the rule changes")
        out = torch.empty(len(self), self.d, device=self.device)
        for i, row in enumerate(self.rows):
            out[i] = row if self.scale is None else row * float(self.scale[i])
        return out

    def holding(self, rows: Tensor) -> Stack:
        """Other rows [n, d] in the places of these, to be screened again."""
        return replace(self, rows=rows, scale=None, checked=False, _known={})

    def aggregate(
        self, update: Tensor, kept: Tensor | None = None, notes: Mapping[str, float] | None = None
    ) -> Aggregate:
        """The answer of a rule that kept the rows `kept` [n] (all by default)."""
        accepted = self.accepted if self.members is None else self.members.any(0)
        everyone = accepted.clone()
        if kept is not None and self.members is None:
            everyone[accepted] = kept
        elif kept is not None and self.members is not None:
            everyone = self.members[kept].any(0)
        return Aggregate(update=update, kept=everyone, rejected=~accepted, notes=dict(notes or {}))

    def nothing(self, notes: Mapping[str, float] | None = None) -> Aggregate:
        """The answer where no row entered: a zero update."""
        return self.aggregate(torch.zeros(self.d, device=self.device), torch.zeros(len(self), dtype=torch.bool), notes)


def stacked(updates: Updates | Stack, dimension: int | None = None) -> Stack:
    """The updates that have the right shape and type.

    `dimension` is the length that the server expects; without it the most common length is expected, and something that
    has one. Floating-point numbers of any type count, and arrays of whole numbers only where nobody sent floating-point
    ones; plain lists have no type. A matrix that is none is an InputError: it is the caller's, not a client's.
    """
    if isinstance(updates, Stack):
        return updates
    if not isinstance(updates, (list, tuple)):
        if isinstance(updates, Tensor) or hasattr(updates, "__array__") or hasattr(updates, "__dlpack__"):
            return _matrix(updates, dimension)
        if isinstance(updates, (str, bytes, Mapping)) or not isinstance(updates, Sequence):
            raise InputError(
                f"updates are of type {type(updates).__name__}; an array [n, d] or a list of n is expected"
            )
    vectors = [v if v is not None and v.dim() == 1 else None for v in map(as_tensor, updates)]
    if dimension is None:
        dimension = _most_common([v.numel() for v in vectors if v is not None])
    if dimension is None:
        raise InputError(f"{_none_of(updates)}; an array of numbers [n, d] or a list of n vectors [d] is expected")
    fits = [v is not None and v.numel() == dimension for v in vectors]
    typed = [fine and not isinstance(u, (list, tuple)) for u, fine in zip(updates, fits, strict=True)]
    whole = [v is not None and not v.is_floating_point() for v in vectors]
    floating = any(t and not w for t, w in zip(typed, whole, strict=True))
    accepted = torch.tensor(
        [fine and not (floating and t and w) for fine, t, w in zip(fits, typed, whole, strict=True)], dtype=torch.bool
    )
    rows = tuple(
        v.to(torch.float32) for v, fine in zip(vectors, accepted.tolist(), strict=True) if fine and v is not None
    )
    return Stack(rows=rows, accepted=accepted, d=dimension)


def screened(
    by_gram: bool = False, plain: bool = False
) -> Callable[[Callable[Concatenate[Stack, P], Aggregate]], Callable[Concatenate[Updates | Stack, P], Aggregate]]:
    """Decorator: a function of well-formed rows becomes one of whatever arrived.

    The rows are screened by their norms, by their Gram matrix if the function needs that anyway, or, if it needs
    neither, in the plainest way. If no row is left, the answer is a zero update that nobody entered.
    """

    def decorate(
        function: Callable[Concatenate[Stack, P], Aggregate],
    ) -> Callable[Concatenate[Updates | Stack, P], Aggregate]:
        @functools.wraps(function)
        def safe(updates: Updates | Stack, /, *args: P.args, **kwargs: P.kwargs) -> Aggregate:
            stack = checked(stacked(updates), by_gram, plain)
            return function(stack, *args, **kwargs) if len(stack) else stack.nothing()

        return safe

    return decorate


def checked(stack: Stack, by_gram: bool = False, plain: bool = False) -> Stack:
    """The rows of the stack whose values are finite and can be squared.

    With `plain`, norms are not kept: where all are far from the limit, float32 tells as much, and sooner.
    """
    if stack.checked:
        return stack
    if plain and _far_from_the_limit(stack):
        return replace(stack, checked=True)
    squares = stack.gram().diagonal() if by_gram else stack.norms().square()
    fine = squares <= LARGEST_SQUARE  # False for NaN
    return replace(stack if bool(fine.all()) else stack.subset(fine), checked=True)


def _far_from_the_limit(stack: Stack) -> bool:
    """Whether all rows are finite and short enough that rounding cannot matter."""
    if stack.scale is not None or stack.d == 0 or not len(stack):
        return False
    if "gram" in stack._known:
        return bool((stack._known["gram"].diagonal() < _SHORT**2).all())  # False for NaN
    if isinstance(stack.rows, Tensor):
        return bool(host((torch.linalg.vector_norm(stack.rows, dim=1) < _SHORT).all()))  # False for NaN
    if isinstance(stack.rows, SplitRows):
        return bool(host(torch.stack(stack.rows.each(_norms_of_columns)).square().sum(0).sqrt() < _SHORT).all())
    return bool(host(torch.stack([torch.linalg.vector_norm(row) for row in stack.rows]) < _SHORT).all())


def narrow(rows: Tensor | Sequence[Tensor]) -> Stack:
    """Updates that are held in bfloat16, a matrix [n, d] or n vectors, to be read in float32 piece by piece."""
    held = NarrowRows(rows)
    return Stack(rows=held, accepted=torch.ones(len(held), dtype=torch.bool), d=held.d)


def columns_held(held: Held, scale: Tensor | None = None) -> Stack:
    """Some columns of split rows, where they are, as a stack of their own."""
    return Stack(held, torch.ones(len(held), dtype=torch.bool), geometry.dimension(held), scale, checked=True)


def _weighted_columns(weights: Tensor, first: int, held: Held) -> Tensor:
    return columns_held(held).weighted(weights)


def _norms_of_columns(first: int, held: Held) -> Tensor:
    return row64(torch.stack([torch.linalg.vector_norm(row) for row in held]))


def _matrix(updates: Any, dimension: int | None) -> Stack:
    matrix = as_tensor(updates)
    if matrix is None or matrix.dim() != 2:
        raise InputError(f"stacked updates are {_kind(updates)}; an array of numbers [n, d] is expected")
    n, d = matrix.shape
    if dimension is not None and d != dimension:
        return Stack(rows=(), accepted=torch.zeros(n, dtype=torch.bool), d=dimension)
    rows = matrix.to(torch.float32)
    if d > 1 and rows.stride(1) != 1:
        rows = rows.contiguous()
    return Stack(rows=rows, accepted=torch.ones(n, dtype=torch.bool), d=d)


def _none_of(updates: Sequence[Any]) -> str:
    if not updates:
        return "there are no updates"
    return f"no update is a vector of numbers: the first is {_kind(updates[0])}"


def _kind(value: Any) -> str:
    shape = tuple(getattr(value, "shape", ()))
    return f"{getattr(value, 'dtype', type(value).__name__)} of shape {shape}"


def _most_common(values: list[int]) -> int | None:
    """The most frequent value, in a draw the one seen first; None if there is none."""
    return max(Counter(values).items(), key=lambda item: item[1])[0] if values else None
