"""Freed memory stays with the process, unless the user has decided otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REUSE = """
import resource, torch
from scapegoat.heap import keep_pages
kept = keep_pages()
def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        pieces = [torch.ones(2**20) for _ in range(20)]  # 4 MiB each: above glibc's own limit for keeping
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
page_faults()
print(kept, page_faults())
"""


def _ask(**environment: str) -> tuple[str, int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    answer = subprocess.run([sys.executable, "-c", REUSE], env=clean | environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    kept, faults = answer.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's limits")
def test_pages_that_a_round_gave_back_are_used_again() -> None:
    kept, faults = _ask()
    if kept == "True":  # another C library has no such limits, and is left as it is
        assert faults < 20 * 20 * 1024 / 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's limits")
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_limits_that_the_user_has_set_are_left_alone(name: str) -> None:
    assert _ask(**{name: "131072"})[0] == "False"
