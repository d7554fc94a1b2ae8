from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scapegoat import report
from tests.report import synthetic

Summaries = dict[tuple[str, str, int], dict[str, Any]]


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summaries]:
    """A store of 30 cells x 400 rounds, and the summaries in it. Read it, never write it."""
    directory = tmp_path_factory.mktemp("audit")
    return directory, synthetic.write_store(directory)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summaries]:
    """A small store with three seeds a cell."""
    directory = tmp_path_factory.mktemp("seeded")
    found = synthetic.write_store(
        directory, ("passive", "adaptive", "fedpoisonmia"), ("fedavg", "atm", "memory_atm"), (0, 1, 2), rounds=60
    )
    return directory, found


@pytest.fixture(scope="session")
def page(audit: tuple[Path, Summaries]) -> report.Page:
    return report.build(audit[0], created="2026-01-02")


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Summaries]:
    """A store of four short runs that a test may change."""
    found = synthetic.write_store(tmp_path, ("passive", "fedpoisonmia"), ("fedavg", "atm"), rounds=30)
    return tmp_path, found


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A store of one short run."""
    synthetic.write_run(tmp_path / "single", synthetic.make_spec("passive", "fedavg", rounds=30))
    return tmp_path / "single"
