"""One damaged or malicious file is one run's problem: no command of a store ends in a traceback over it.

SCAPEGOAT_MUTATIONS=1300 tries more than the suite does.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import unicodedata
from pathlib import Path

import pytest

from results.__main__ import main as results
from scapegoat.cli import main
from tests.cli import hostile

MUTATIONS = int(os.environ.get("SCAPEGOAT_MUTATIONS", "40"))


def call(*arguments: object) -> tuple[int | None, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            command, *rest = (str(argument) for argument in arguments)
            if command == "results":
                return results(rest), said.getvalue()
            main([command, *rest])
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int | None) else 1, said.getvalue()
    raise AssertionError("a command always exits")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "store"
    hostile.build(folder)
    return folder


def commands(store: Path, scratch: Path, turn: int) -> list[list[object]]:
    form = ("markdown", "latex", "csv")[turn % 3]
    return [
        ["report", store, "--out", scratch / "report.html"],
        ["report", store, "--format", form],
        ["sweep", "--status", "--out", store],
        ["results", "collect", store, "--out", scratch / "results.parquet"],
        ["audit", *hostile.AUDIT, "--out", store, "--report", scratch / "audit.html", "--jobs", 1],
    ]


def test_the_commands_are_content_with_the_store_as_it_was(store: Path, tmp_path: Path) -> None:
    for command in commands(store, tmp_path, 0):
        code, said = call(*command)
        assert code == 0, (command, said)


def test_no_damage_to_a_file_ends_in_a_traceback_or_reaches_the_terminal(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nothing here has to survive a power failure
    for seed in range(MUTATIONS):
        damaged = hostile.copy(store, tmp_path / "store")
        what = hostile.damage(damaged, random.Random(seed))
        for command in commands(damaged, tmp_path, seed):
            try:
                code, said = call(*command)
            except Exception as error:
                raise AssertionError(f"{seed}: {what}: {command[0]}") from error
            assert code in (0, 1, 2), (seed, what, said)
            sent = {c for c in said if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t"}
            assert not sent, (seed, what, command, sent)
