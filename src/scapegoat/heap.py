"""Memory that a round gives back stays with the process, for the next round to use."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

KEPT = 512 * 2**20
"""Bytes of freed memory that the process keeps, at the most."""

LARGE = 32 * 2**20
"""Larger pieces are asked of the system one by one, and given back: the most that glibc allows for this limit."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers for the two limits
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def may_keep() -> int:
    """Bytes of freed memory that the process keeps at the most; 0 where it is left as the system or the user has it."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SET_BY_USER):
        return 0
    return KEPT


@functools.cache
def keep_pages() -> bool:
    """Let glibc keep what is freed, up to `KEPT`; whether it does. Once for the whole process; no number changes.

    A round of images frees some hundred megabytes of activations and asks for them again in the next pass. By default
    glibc returns them to the system in between, which then clears every page before it hands it out again: a sixth of
    the time of a run. Who has set glibc's limits in the environment is left in peace, and so are other libraries.
    """
    if not may_keep():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_MMAP_THRESHOLD, LARGE)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
