"""Text that somebody else wrote, made fit for a terminal."""

from __future__ import annotations

import unicodedata

# Control characters, formatting that turns text around, halves of characters, and line ends that are not "\n".
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: object, *, lines: bool = False) -> str:
    """The text with everything escaped that a terminal would obey instead of show; `lines` keeps tabs and line ends.

    A name or a reason that is read from a file can hold the sequences that recolour a terminal, move its cursor or set
    its title: they are shown as `\\x1b`, never sent.
    """
    written = str(text)
    if written.isascii() and written.isprintable():
        return written
    kept = "\n\t" if lines else ""
    return "".join(
        c if c in kept or unicodedata.category(c) not in _UNFIT else c.encode("unicode_escape").decode("ascii")
        for c in written
    )
