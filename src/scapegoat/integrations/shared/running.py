"""What the audits of every framework do around their processes: a fresh folder, an orderly stop, a run in the store."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scapegoat.errors import InputError
from scapegoat.experiments.store import RunStore
from scapegoat.files import new_private_folder
from scapegoat.integrations.shared.hostile import read_lines
from scapegoat.integrations.shared.outcome import LiveRun, spec_hash

# Told when the server has finished a round: how many there have been.
Progress = Callable[[int], None]


def fresh_folder(out: Path, spec: Mapping[str, Any]) -> Path:
    """An empty folder for what the processes write, beside the runs. Nobody else can enter it: it holds scores."""
    directory = (out / "live" / spec_hash(spec)[:16]).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    try:
        new_private_folder(directory)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror})") from None
    return directory


def kept(out: Path, run: LiveRun) -> LiveRun:
    """Put a run into the store, in the place of an earlier one of its name."""
    store = RunStore(out)
    store.remove(run.summary["spec_hash"])  # live runs are not repeatable to the bit: the newest one counts
    store.write(run.summary["spec_hash"], run.spec, run.rounds, run.targets, run.summary)
    return run


def watching(rounds: Path, progress: Progress | None) -> Callable[[], None] | None:
    """What tells the progress, from the lines that the server has written."""
    if progress is None:
        return None
    return lambda: progress(len(read_lines(rounds)))


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The modules in a folder can be imported."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends the audit as Ctrl-C does, so that the processes are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def settings(texts: list[str], option: str) -> dict[str, Any]:
    """`key=value` texts, the values as TOML."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} {text!r}: write key=value")
        try:
            found[key.strip()] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value
    return found
