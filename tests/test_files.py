"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from scapegoat import files
from scapegoat.auditing import audit_specs
from scapegoat.errors import StorageError


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


def test_lines_of_several_writers_are_whole_and_of_the_owner_alone(tmp_path: Path) -> None:
    target, umask = tmp_path / "folder" / "lines.jsonl", os.umask(0)
    try:
        files.new_private_folder(target.parent)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda k: files.append_line(target, f"{k}" * 3000), range(8)))
    finally:
        os.umask(umask)
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(target.read_text().splitlines()) == [f"{k}" * 3000 for k in range(8)]
    with pytest.raises(FileExistsError):
        files.new_private_folder(target.parent)


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


RECORDS = np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32), np.arange(900) % 3


def kept_records(out: Path | None) -> Path:
    (spec,) = audit_specs(data=RECORDS, out=out, attacks=["passive"], defenses=["fedavg"])
    return Path(spec.canonical()["data"]["path"])


def test_records_handed_over_in_python_are_kept_for_the_owner_alone(tmp_path: Path) -> None:
    kept = kept_records(tmp_path)
    assert kept.parent == tmp_path / "data"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o644)  # as an earlier version left it
    os.utime(kept, ns=(0, 0))
    assert kept_records(tmp_path) == kept
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.stat().st_mtime_ns == 0  # what was decoded from it is found again


@pytest.mark.parametrize("other", [b"", b"something else", None])
def test_a_file_that_is_there_under_the_name_of_the_records_is_not_taken_for_them(
    tmp_path: Path, other: bytes | None
) -> None:
    kept = kept_records(tmp_path)
    content = kept.read_bytes()
    kept.unlink()
    if other is None:
        os.mkfifo(kept)
    else:
        kept.write_bytes(other)
    assert kept_records(tmp_path).read_bytes() == content


def test_records_that_cannot_be_kept_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(StorageError, match=r"data/[0-9a-f]{16}\.npz: the records could not be written"):
        kept_records(tmp_path)


def test_records_without_a_folder_are_where_nobody_else_can_be_and_gone_with_the_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").write_text("of another user")
    code = """if True:
        from tests.test_files import kept_records
        kept = kept_records(None)
        folders = list(kept.parents)[:2]
        print(kept, oct(kept.stat().st_mode & 0o777), oct(folders[-1].stat().st_mode & 0o777))
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    kept, mode, folder = said.stdout.split()
    assert (mode, folder) == ("0o600", "0o700")
    assert Path(kept).parents[2] == tmp_path
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
