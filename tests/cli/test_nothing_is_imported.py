"""Files in the current folder run only where a spec that is computed names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.tiny import SETTINGS

TINY = [part for setting in SETTINGS if "model" not in setting for part in ("--set", setting)]
NET = "from torch import nn\n\n\ndef make(input_shape, classes):\n    return nn.Linear(input_shape[0], classes)\n"
TELLTALE = "import pathlib\npathlib.Path({name!r} + '.ran').touch()\nraise RuntimeError('not the real one')\n"
MINE = """
base: {data: {name: hospital}, model: {name: import, factory: 'net_of_mine:make'}, federation: {rounds: 1}}
grid: {attack.name: [passive, gradient_ascent]}
"""


def scapegoat(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -P: as the installed command, which does not search the current folder for modules.
    command = [sys.executable, "-P", "-m", "scapegoat", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_status_and_report_import_nothing_that_a_stored_spec_names(tmp_path: Path) -> None:
    (tmp_path / "net_of_mine.py").write_text(NET)
    (tmp_path / "mine.yaml").write_text(MINE)
    computed = scapegoat(tmp_path, "sweep", "mine.yaml", "--out", "out", "--jobs", "1", *TINY)
    assert computed.returncode == 0, computed.stderr
    (tmp_path / "net_of_mine.py").write_text(TELLTALE.format(name="net_of_mine"))
    for arguments in (
        ["sweep", "--status", "--out", "out"],
        ["sweep", "mine.yaml", "--status", "--out", "out", *TINY],
        ["report", "out"],
    ):
        done = scapegoat(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
        assert "done 2 " in done.stdout or arguments[0] == "report"
    assert not list(tmp_path.glob("*.ran"))
    elsewhere = scapegoat(tmp_path, "sweep", "mine.yaml", "--status", "--out", "elsewhere", *TINY)
    assert (elsewhere.returncode, len(elsewhere.stderr.splitlines())) == (2, 1)
    assert not list(tmp_path.glob("*.ran"))


@pytest.mark.ray
def test_ray_workers_do_not_run_files_named_like_ours_or_our_libraries(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for name in ("scapegoat", "pyarrow", "pydantic", "safetensors"):
        (tmp_path / f"{name}.py").write_text(TELLTALE.format(name=name))
    done = scapegoat(
        tmp_path, "sweep", "mask-selection", "--data", "hospital", "--rounds", "1", "--only", "defense=atm",
        "--ray", "local", "--jobs", "2", "--out", "out", *TINY,
    )  # fmt: skip
    assert not list(tmp_path.glob("*.ran"))
    assert done.returncode == 0, done.stderr
