"""Folders that commands write to."""

from __future__ import annotations

from pathlib import Path

from scapegoat.errors import InputError


def could_be_a_folder(out: Path) -> None:
    """Refuse a folder for runs that is a file, or lies below one, before anything is computed."""
    file = next((path for path in (out, *out.parents) if path.exists() and not path.is_dir()), None)
    if file is not None:
        raise InputError(f"--out {out}: {file} is a file; a folder is wanted")
