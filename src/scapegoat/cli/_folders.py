"""Folders that commands write to."""

from __future__ import annotations

import tempfile
from pathlib import Path

from scapegoat.errors import InputError


def could_be_a_folder(out: Path) -> None:
    """Refuse a folder for runs that is a file, or lies below one, before anything is computed."""
    try:
        file = next((path for path in (out, *out.parents) if path.exists() and not path.is_dir()), None)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be a folder ({error.strerror or error})") from None
    if file is not None:
        raise InputError(f"--out {out}: {file} is a file; a folder is expected")


def can_be_written(out: Path) -> None:
    """Refuse a folder for runs that could not be written, before anything is computed; leaves nothing behind."""
    could_be_a_folder(out)
    there = next(path for path in (out / "runs", out, *out.absolute().parents) if path.is_dir())
    try:
        tempfile.TemporaryDirectory(prefix=".probe-", dir=there).cleanup()
    except OSError as error:
        raise InputError(f"--out {out}: runs cannot be written there ({error.strerror or error})") from None
