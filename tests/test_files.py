"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from scapegoat import files
from scapegoat.auditing import audit_specs


def test_many_writers_of_one_file_never_fail_and_leave_one_of_their_texts_whole(tmp_path: Path) -> None:
    target, texts, failures = tmp_path / "page.html", [f"{k}" * 5000 for k in range(8)], []

    def write(text: str) -> None:
        for _ in range(25):
            try:
                files.write_text(target, text, durable=False)
            except OSError as error:
                failures.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert target.read_text() in texts
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_a_write_that_fails_leaves_what_was_there_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("before")

    def write_half() -> None:
        with files.whole(target) as draft:
            draft.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert target.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_bytes_and_folder_are_on_the_disk_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    files.write_text(tmp_path / "a", "text")
    assert done == ["file", "rename", "folder"]
    done.clear()
    with files.whole_folder(tmp_path / "b") as draft:
        (draft / "one").write_text("1")
    assert done == ["file", "folder", "rename", "folder"]


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with files.whole(tmp_path / "secret", mode=files.PRIVATE) as draft:
            assert stat.S_IMODE(draft.stat().st_mode) == 0o600
            draft.write_text("secret")
        with files.whole(tmp_path / "open") as draft:
            draft.write_text("open")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o666


def test_the_longest_name_that_a_file_can_have_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("ü" * 127)
    files.write_text(target, "text")
    assert target.read_text() == "text"


def test_a_folder_that_another_writer_put_in_place_first_stays(tmp_path: Path) -> None:
    with files.whole_folder(tmp_path / "entry") as draft:
        (draft / "mine").write_text("")
        (tmp_path / "entry").mkdir()
        (tmp_path / "entry" / "theirs").write_text("")
    assert [p.name for p in (tmp_path / "entry").iterdir()] == ["theirs"]
    assert [p.name for p in tmp_path.iterdir()] == ["entry"]


def test_records_handed_over_in_python_are_kept_for_the_owner_alone(tmp_path: Path) -> None:
    import numpy as np

    records = np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32), np.arange(900) % 3
    audit_specs(data=records, out=tmp_path, attacks=["passive"], defenses=["fedavg"])
    (kept,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o644)  # as an earlier version left it
    audit_specs(data=records, out=tmp_path, attacks=["passive"], defenses=["fedavg"])
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
