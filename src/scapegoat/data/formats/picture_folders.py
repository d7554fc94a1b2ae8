"""Pictures in folders, a folder per class."""

from __future__ import annotations

from pathlib import Path

from scapegoat.data.formats.pictures import Picture
from scapegoat.data.formats.safe_io import wrong

_ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".tif", ".tiff"))
_LARGEST_FILE = 64 << 20


def class_folders(folder: Path) -> list[Path]:
    """The folders inside, sorted by name; hidden ones are left out."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def pictures_in(folder: Path) -> list[Picture]:
    """The pictures of one class, sorted by name; a folder without any is refused."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _ENDINGS and path.is_file() and not path.name.startswith(".")
    )
    if not files:
        raise wrong(folder, f"no pictures in it; files named {', '.join(sorted(_ENDINGS))} are read")
    for path in files:
        if path.stat().st_size > _LARGEST_FILE:
            raise wrong(path, f"has {path.stat().st_size:,} bytes; pictures of at most {_LARGEST_FILE:,} are read")
    return [(path, path.read_bytes) for path in files]
