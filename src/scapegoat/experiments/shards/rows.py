"""The updates of a round in shards, as rules see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scapegoat.experiments.shards.crew import Crew
from scapegoat.experiments.shards.shard import packed, unpacked
from scapegoat.split_rows import Held, SplitRows


class ShardedRows(SplitRows):
    """The first `count` rows that the shards hold; or, as separate vectors, those named by `rows`."""

    def __init__(
        self,
        crew: Crew,
        spans: Sequence[tuple[int, int]],
        count: int,
        tell: Callable[[str], None],
        rows: Sequence[int] | None = None,
    ) -> None:
        self.d, self.spans, self.whole = spans[-1][1], spans, rows is None
        self._crew, self._count, self._tell = crew, count, tell
        self._rows = None if rows is None else list(rows)

    def __len__(self) -> int:
        return self._count if self._rows is None else len(self._rows)

    def each(self, work: Callable[[int, Held], Any], places: Sequence[int] | None = None) -> list[Any]:
        """In every shard at once."""
        chosen = range(len(self.spans)) if places is None else places
        asked = self._crew.ask(
            lambda: [self._crew.shards[place].each.remote(work, self._rows, self._count) for place in chosen]
        )
        return [unpacked(answer) for answer in asked]

    def chain(
        self, total: Any, step: Callable[[Any, int, Any], Any], prepare: Callable[[int, Held], Any] | None = None
    ) -> Any:
        """From shard to shard."""

        def calls() -> list[Any]:
            shards = self._crew.shards[: len(self.spans)]
            if prepare is not None:
                for shard in shards:
                    shard.prepare.remote(prepare, self._rows, self._count)
            ref = self._crew.ray.put(packed(total))
            for shard in shards:
                ref = shard.step.remote(ref, step, self._rows, self._count, prepare is not None)
            return [ref]

        return unpacked(self._crew.ask(calls)[0])

    def some(self, rows: Sequence[int]) -> ShardedRows:
        """Where they are."""
        chosen = list(rows) if self._rows is None else [self._rows[row] for row in rows]
        return ShardedRows(self._crew, self.spans, self._count, self._tell, chosen)

    def gathers(self, why: str) -> None:
        """In the log, once."""
        self._tell(why)
