"""What a live audit leaves behind tells who is a member: nobody else may read it."""

import stat
from pathlib import Path


def assert_private(directory: Path) -> None:
    """The folder is its owner's, and so is every file with scores, records or models in it."""
    telling = [p for p in directory.rglob("*") if p.name.startswith(("observations", "rounds.", "final.", "hostile."))]
    assert {p.suffix for p in telling} >= {".jsonl", ".safetensors"}
    assert {path: oct(stat.S_IMODE(path.stat().st_mode)) for path in (directory, *telling)} == {
        directory: "0o700",
        **dict.fromkeys(telling, "0o600"),
    }
