"""What updates are taken relative to where nobody said what the clients were given: the middle of their replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord

from scapegoat.integrations.flower.replies.npy import view
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.layout import low_median
from scapegoat.integrations.shared.rounds import Reply

Opened = dict[str, NDArray]


def middle(replies: Sequence[Reply]) -> ArrayRecord | None:
    """The coordinate-wise median of the replies that have the most common names, shapes and types; None if none can
    be read.

    A median, because one reply that served as the origin could be so far away that float32 loses all others.
    """
    opened = [arrays for arrays in map(_opened, replies) if arrays is not None]
    if not opened:
        return None
    common = Counter(map(_kind, opened)).most_common(1)[0][0]
    alike = [arrays for arrays in opened if _kind(arrays) == common]
    return ArrayRecord({name: Array(_median([arrays[name] for arrays in alike])) for name in alike[0]})


def _opened(reply: Reply) -> Opened | None:
    try:
        return {name: view(array.data) for name, array in reply.arrays.items()}
    except Exception:  # it is set aside with its reason later
        return None


def _kind(arrays: Opened) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return tuple((name, array.shape, array.dtype.str) for name, array in arrays.items())


def _median(arrays: list[NDArray]) -> NDArray:
    values = np.stack(arrays)
    if values.dtype.kind != "f":
        return low_median(values)
    with np.errstate(all="ignore"):
        found: NDArray = np.nan_to_num(np.nanmedian(values.astype(np.float64), axis=0), posinf=0.0, neginf=0.0)
        return np.asarray(found, dtype=values.dtype)
