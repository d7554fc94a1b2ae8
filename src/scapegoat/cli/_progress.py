"""Progress of a run: on a terminal a bar, elsewhere nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scapegoat.federation import RoundRecord


@contextlib.contextmanager
def round_progress(rounds: int, quiet: bool) -> Iterator[Callable[[RoundRecord, int], None] | None]:
    """A callback for `run` that shows round, test accuracy, attack accuracy and the time left; None when quiet."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("test {task.fields[test]}  attack {task.fields[attack]}  left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("run", total=rounds, test="   - ", attack="   - ")

        def show(record: RoundRecord, _rounds: int) -> None:
            fields: dict[str, Any] = {"attack": f"{record.attack_accuracy:.3f}"}
            if record.test_accuracy is not None:
                fields["test"] = f"{record.test_accuracy:.3f}"
            bar.update(task, completed=record.round + 1, **fields)

        yield show
