"""Processes that an audit starts, and those that they start: known by a mark in their environment; and free ports."""

from __future__ import annotations

import contextlib
import os
import socket

import psutil

LOOPBACK = "127.0.0.1"
MARK = "SCAPEGOAT_FEDERATION"
"""The environment variable whose value tells one federation's processes from all others, grandchildren included."""


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that carry the mark, this one aside."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.environ().get(MARK) == mark and process.pid != os.getpid()
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
