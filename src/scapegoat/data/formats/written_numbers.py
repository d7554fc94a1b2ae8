"""Numbers that came as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scapegoat.data.formats.safe_io import wrong
from scapegoat.data.label_values import MOST_NUMBERED

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(\.\d{3})*,\d+([eE][-+]?\d+)?\s*")
_NAMED = 3


def is_number(text: str) -> bool:
    """Whether the text is a number as programs write it: 12, -0.5, 1e-3."""
    return _NUMBER.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Whether the text is a number with a decimal comma: 0,5 or 1.234,56."""
    return _DECIMAL_COMMA.fullmatch(text) is not None


def refuse_numbers(names: Sequence[str | bytes], where: object) -> None:
    """Refuse labels that are text of which most are numbers, where they are more than are taken for classes."""
    if len(names) <= MOST_NUMBERED:
        return
    texts = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names]
    others = [text for text in texts if not (is_number(text) or has_decimal_comma(text))]
    if 2 * len(others) >= len(texts):
        return
    fix = "store them as numbers"
    if others:
        more = ", ..." if len(others) > _NAMED else ""
        fix = f"remove the records with {', '.join(repr(text[:30]) for text in others[:_NAMED])}{more}"
    elif any(map(has_decimal_comma, texts)):
        fix = "write them with a decimal point"
    raise wrong(
        where,
        f"the labels are text, and {len(texts) - len(others):,} of {len(texts):,} different ones are numbers, as ages "
        f"or amounts are: {fix}, and task=regression takes them as numbers, data.bins=4 makes four ranges of them; "
        "task=classification takes every text as a class",
    )
