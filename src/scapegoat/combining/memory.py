"""What a rule remembers of each client: tensors by client id in the rule's state, of the clients last seen only."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Annotated, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from scapegoat.combining.contract import AggregationContext
from scapegoat.combining.rule import Rule, check_own_rows
from scapegoat.combining.stack import Stack
from scapegoat.errors import InputError
from scapegoat.kernels.sketches import Sketch

T = TypeVar("T")

NARROWEST = 16

Remember = Annotated[
    int, Field(ge=1, description="The most clients that are remembered; the least recently seen leave.")
]
"""How many clients a rule remembers: those last seen."""

Width = Annotated[int, Field(ge=NARROWEST, le=1 << 24)] | None
"""Numbers that are kept of a remembered vector; none: all of them."""

ROWS = 64
"""Clients per tensor of a sketched memory: the state of many clients is few tensors, and grows without a copy."""

_FREE = -1


class WithMemory(Rule):
    """A rule that knows clients again: it must see each client's own updates."""

    def follows(self, stages: Sequence[Rule]) -> None:
        """A memory of clients needs their own updates."""
        check_own_rows(self, "", stages)


class Memory:
    """A rule's state, client by client. All of it is tensors in `state`, so it is saved with the checkpoint.

    An entry is called `<what>/<client id>`; `seen/<client id>` is the round of the client's last update, counted by the
    memory itself. Once a round is over, only the `remember` clients last seen are kept (of those seen alike, the
    smallest ids), so that nodes which come back under new names do not fill the server.
    """

    def __init__(self, state: MutableMapping[str, Tensor], remember: int) -> None:
        self.state, self.remember = state, remember

    def shown(self, stack: Stack) -> Stack:
        """The rows as they are remembered."""
        return stack

    def get(self, what: str, client: int, unknown: T) -> Tensor | T:
        """What is known of the client, `unknown` if nothing is."""
        return self.state.get(f"{what}/{client}", unknown)

    def put(self, what: str, client: int, value: Tensor) -> None:
        """Remember this of the client, in the place of what was known."""
        self.state[f"{what}/{client}"] = value

    def close_round(self, clients: Iterable[int]) -> int:
        """These clients were seen; forget those that no longer fit, and say how many are remembered."""
        seen = {key: int(value) for key, value in self.state.items() if key.startswith("seen/")}
        now = 1 + max(seen.values(), default=-1)
        seen |= {f"seen/{client}": now for client in clients}
        order = sorted(seen, key=lambda key: (-seen[key], int(key.removeprefix("seen/"))))
        for key in order[: self.remember]:
            self.state[key] = torch.tensor(seen[key], dtype=torch.int64)
        gone = {key.removeprefix("seen/") for key in order[self.remember :]}
        for key in [key for key in self.state if key.rpartition("/")[2] in gone]:
            del self.state[key]
        return len(order) - len(gone)


class SketchedMemory(Memory):
    """The same of sketches instead of whole vectors, for any number of clients of any model.

    Clients are rows of tables of `ROWS` rows each: `<what>/<table>`, and `client/<table>` for whose rows they are. A
    row whose client was forgotten is free for the next newcomer. `sketch` holds the seed, drawn in the first round from
    the rule's own randomness and unknown to clients, the updates' length and the sketches' width.
    """

    def __init__(self, state: MutableMapping[str, Tensor], remember: int, sketch: Sketch) -> None:
        super().__init__(state, remember)
        self.sketch = sketch
        self._tables = sum(key.startswith("client/") for key in state)
        ids, seen = self._column("client"), self._column("seen")
        known = np.flatnonzero(seen != _FREE)
        self._rows: dict[int, int] = dict(zip(ids[known].tolist(), known.tolist(), strict=True))
        self._free = np.flatnonzero(seen == _FREE)[::-1].tolist()

    def shown(self, stack: Stack) -> Stack:
        """The sketches of the rows, with the rows' scales."""
        return replace(stack, rows=self.sketch(stack.rows), d=self.sketch.width, _known={})

    def get(self, what: str, client: int, unknown: T) -> Tensor | T:
        """What is known of the client, `unknown` if nothing is."""
        row = self._rows.get(_signed(client))
        table = None if row is None else self.state.get(f"{what}/{row // ROWS}")
        return unknown if row is None or table is None else table[row % ROWS]

    def put(self, what: str, client: int, value: Tensor) -> None:
        """Remember this of the client, in the place of what was known."""
        row = self._row(_signed(client))
        key = f"{what}/{row // ROWS}"
        if key not in self.state:
            self.state[key] = torch.zeros(ROWS, *value.shape, dtype=value.dtype, device=value.device)
        self.state[key][row % ROWS] = value

    def close_round(self, clients: Iterable[int]) -> int:
        """These clients were seen; forget those that no longer fit, and say how many are remembered."""
        now = 1 + int(self._column("seen").max(initial=-1))
        for client in clients:
            self.put("seen", client, torch.tensor(now, dtype=torch.int64))
        ids, seen = self._column("client"), self._column("seen")
        known = np.flatnonzero(seen != _FREE)
        last_first = known[np.lexsort((ids[known], -seen[known]))]
        columns = {key.partition("/")[0] for key in self.state if "/" in key}
        for row in last_first[self.remember :].tolist():
            for what in columns:
                self.state[f"{what}/{row // ROWS}"][row % ROWS] = _FREE if what == "seen" else 0
        return min(len(known), self.remember)

    def _column(self, what: str) -> NDArray[np.int64]:
        """One number of every row."""
        tables = [self.state[f"{what}/{table}"] for table in range(self._tables)]
        column: NDArray[np.int64] = torch.cat(tables).numpy() if tables else np.empty(0, dtype=np.int64)
        return column

    def _row(self, client: int) -> int:
        """The client's row: a free one for a newcomer, in a new table where none is left."""
        if client not in self._rows:
            if not self._free:
                rows = torch.full((ROWS,), _FREE, dtype=torch.int64)
                self.state[f"seen/{self._tables}"] = rows
                self.state[f"client/{self._tables}"] = torch.zeros_like(rows)
                self._free = [self._tables * ROWS + place for place in reversed(range(ROWS))]
                self._tables += 1
            row = self._rows[client] = self._free.pop()
            self.state[f"client/{row // ROWS}"][row % ROWS] = client
        return self._rows[client]


def memory_of(context: AggregationContext, remember: int, width: int | None, d: int) -> Memory:
    """The memory in the context's state: of whole vectors, or of sketches where those are shorter."""
    if width is None or width >= d:
        return Memory(context.state, remember)
    if "sketch" not in context.state:
        source = context.generator
        seed = 0 if source is None else int(torch.randint(1 << 62, (), generator=source))
        context.state["sketch"] = torch.tensor([seed, d, width], dtype=torch.int64)
    seed, known_d, known_width = context.state["sketch"].tolist()
    if (known_d, known_width) != (d, width):
        raise InputError(
            f"the rule remembers clients with {known_d} parameters in sketches of {known_width}, the updates have {d} "
            f"and sketches are to be {width}; start with an empty state"
        )
    return SketchedMemory(context.state, remember, Sketch(d, width, seed))


def known_direction(memory: Memory, client: int, stack: Stack, rule: str, what: str = "direction") -> Tensor:
    """The vector that is remembered of a client, zeros of a new one; an InputError if it belongs to another model."""
    direction = memory.get(what, client, None)
    if direction is None:
        return torch.zeros(stack.d, device=stack.device)
    if direction.shape != (stack.d,):
        raise InputError(
            f"{rule} remembers client {client} with {direction.numel()} parameters, the updates have {stack.d}; "
            f"start with an empty state"
        )
    return direction


def _signed(client: int) -> int:
    """The id as a signed 64-bit number: Flower's are unsigned ones."""
    return (client + (1 << 63)) % (1 << 64) - (1 << 63)
