"""Files and folders that are there whole or not at all, whoever else writes them and whenever the power fails."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# Of the owner alone: records, and who is a member. Scores tell that too.
PRIVATE, PRIVATE_FOLDER = 0o600, 0o700

# Where folders cannot be synced (network shares, Windows) the rename has to do.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR)


@contextmanager
def whole(target: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[Path]:
    """A draft to write to; it takes the target's place once it is finished, and is gone if that fails.

    Every writer has a draft of its own: of several at once, the last to finish counts. With a `mode` the content is
    never readable by more than that. What is not `durable` may be lost when the power fails.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(target)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
        yield draft
        if mode is not None:
            draft.chmod(mode)
        _settle(draft, target, durable)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def whole_folder(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """A folder to fill; it takes the target's place once it is finished, unless another one got there first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(target)
    try:
        draft.mkdir()
        yield draft
        try:
            _settle(draft, target, durable)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def settle(draft: Path, target: Path) -> None:
    """Give a finished file or folder its name, after its bytes are on the disk."""
    _settle(draft, target, durable=True)


def _settle(draft: Path, target: Path, durable: bool) -> None:
    if not durable:
        os.replace(draft, target)
        return
    if draft.is_dir():
        for path in draft.rglob("*"):
            if path.is_file():
                _sync(path)
        _sync_folder(draft)
    else:
        _sync(draft)
    os.replace(draft, target)
    _sync_folder(target.parent)


def write_text(target: Path, text: str, *, mode: int | None = None, durable: bool = True) -> None:
    """Write a text file, whole or not at all."""
    with whole(target, mode=mode, durable=durable) as draft:
        draft.write_text(text, encoding="utf-8")


def append_line(target: Path, line: str) -> None:
    """Add a line to a file of the owner's alone, in a single write, so that processes never mix their lines."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def new_private_folder(target: Path) -> None:
    """Make a folder that its owner alone can enter; nothing may be there yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(PRIVATE_FOLDER)


@cache
def passing_folder() -> Path:
    """A folder of this process and its children: nobody else's, and gone when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="scapegoat-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _draft(target: Path) -> Path:
    # The target's name may be as long as names can be.
    return target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.tmp")


def _sync(path: Path) -> None:
    # Windows syncs only what is open for writing; a file that was copied may be read-only.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
