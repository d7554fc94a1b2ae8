"""How much memory there is: what a file claims to need is held against it before anything is read."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from scapegoat.data.formats.safe_io import human, wrong

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def require(count: int, where: object, what: str) -> None:
    """Refuse what needs more than `count` bytes where there are fewer; `what` names it in the message."""
    room = available()
    if count > room:
        raise wrong(
            where, f"{what} take {human(count)} of memory and {human(room)} are free; use fewer or smaller ones"
        )


def available() -> int:
    """Bytes that this process can still take: free on the machine, and within the limits set on it."""
    free: int = psutil.virtual_memory().available
    return max(0, min([free, *_left_in_cgroups(), *_left_in_address_space()]))


def _left_in_cgroups() -> list[int]:
    """What the control groups of this process (a container's, a batch job's) leave; nothing where there are none."""
    left: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        group = next(line[3:] for line in _MEMBERSHIP.read_text().splitlines() if line.startswith("0::"))
        folder = _CGROUPS / group.strip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(_CGROUPS):
                break
            with contextlib.suppress(OSError, ValueError):  # no limit: "max", or no file at the top
                limit = int((level / "memory.max").read_text())
                left.append(limit - int((level / "memory.current").read_text()) + _reclaimable(level))
    return left


def _reclaimable(level: Path) -> int:
    """Cached file content counts as used, but is given up as soon as memory is asked for."""
    for line in (level / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _left_in_address_space() -> list[int]:
    try:
        import resource
    except ImportError:  # no such limits on Windows
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if soft == resource.RLIM_INFINITY else [soft - psutil.Process().memory_info().vms]
