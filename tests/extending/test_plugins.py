"""Rules and attacks of a user's own, from the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scapegoat.cli import main

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
SMALL = ["--rounds", "2", "--set", "attack.targets=20", "--set", "attack.mask=20", "--set", "data.train=90"]
OWN = ["--defense", "my_package.rules:TrimmedNorm", "--attack", "my_package.attacks:Loud", "--attack", "passive"]


def scapegoat(folder: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    inherited = os.environ.get("PYTHONPATH")
    search = [str(part) for part in (path, inherited) if part]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
    command = [sys.executable, "-m", "scapegoat", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def audited(folder: Path, *arguments: str, path: Path | None = None) -> dict[str, Any]:
    done = scapegoat(folder, "audit", *SMALL, *arguments, "--json", path=path)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed by pip into a folder of its own."""
    where = tmp_path_factory.mktemp("site")
    source = shutil.copytree(PLUGIN, tmp_path_factory.mktemp("source") / "plugin")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(where)]
    subprocess.run([*pip, str(source)], check=True, capture_output=True, timeout=300)
    return where


@pytest.mark.parametrize("workers", [["--jobs", "2"], pytest.param(["--ray", "local"], marks=pytest.mark.ray)])
def test_an_installed_plugin_is_audited_by_its_path_and_the_report_names_it(
    installed: Path, tmp_path: Path, workers: list[str]
) -> None:
    found = audited(tmp_path, *OWN, *workers, path=installed)
    assert {run["defense"] for run in found["runs"]} == {"my_package.rules:TrimmedNorm"}
    assert {run["attack"] for run in found["runs"]} == {"my_package.attacks:Loud", "passive"}
    page = (tmp_path / "report.html").read_text()
    assert "my_package.rules:TrimmedNorm" in page
    assert "my_package.attacks:Loud" in page


def test_an_installed_plugin_is_known_by_its_registered_names(installed: Path, tmp_path: Path) -> None:
    listed = scapegoat(tmp_path, "list", "defenses", "--json", path=installed)
    assert "trimmed_norm" in {row["name"] for row in json.loads(listed.stdout)}
    assert audited(tmp_path, "--defense", "trimmed_norm", "--attack", "passive", path=installed)["runs"]


def test_an_edited_rule_is_another_run_and_an_unchanged_one_is_found_again(tmp_path: Path) -> None:
    shutil.copytree(PLUGIN / "my_package", tmp_path / "my_package")
    rules = tmp_path / "my_package" / "rules.py"
    one = ["--defense", "my_package.rules:TrimmedNorm", "--attack", "passive"]

    def run() -> tuple[str, float]:
        (run,) = audited(tmp_path, *one)["runs"]
        return run["spec_hash"], run["seconds"]

    first = run()
    assert run() == first  # read back: not even its seconds changed
    rules.write_text(rules.read_text().replace("self.trim : len(order) - self.trim", "0 : len(order) - self.trim"))
    assert run()[0] != first[0]
    assert len(list((tmp_path / "audit" / "runs").iterdir())) == 2


def test_a_plugin_module_registers_what_the_spec_then_names(tmp_path: Path) -> None:
    shutil.copytree(PLUGIN / "my_package", tmp_path / "my_package")
    found = audited(tmp_path, "--plugin", "my_package", "--defense", "trimmed_norm", "--attack", "loud", "--jobs", "2")
    (run,) = found["runs"]
    spec = json.loads((tmp_path / "audit" / "runs" / run["spec_hash"] / "spec.json").read_text())
    assert spec["plugins"] == ["my_package"]
    assert len(spec["defense"]["code"]) == 64


TAKEN = "from scapegoat.aggregation import Rule, register\n@register('atm')\nclass A(Rule): ...\n"


@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (
            "raise RuntimeError('out of order')",
            ["--plugin", "MINE"],
            "plugin MINE: importing MINE failed: RuntimeError",
        ),
        (TAKEN, ["--plugin", "MINE"], "registered twice, by scapegoat.aggregation.atm.ATM and by MINE.A"),
        ("", ["--plugin", "absent"], "plugin absent: cannot import absent"),
        ("X = 3", ["--defense", "MINE:X"], "MINE:X is not a defense: it must be a class derived from"),
        ("", ["--defense", "MINE:X"], "MINE has no 'X'"),
        ("", ["--attack", "absent:X"], "attack absent:X: cannot import absent"),
        ("", ["--attack", "pasive"], "'pasive' is not an attack, did you mean 'passive'?"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_one_line(
    code: str,
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = f"mine_{abs(hash(said))}"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["audit", *SMALL, *[part.replace("MINE", module) for part in arguments]])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.replace("MINE", module) in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


OURS = """
import numpy as np
from scapegoat.aggregation import Rule, register
from scapegoat.aggregation.atm import ATM
from scapegoat.data import partitions
from scapegoat.sweeping import Axis, Point, Sweep, Table


class Derived(ATM):
    pass


@register("raising")
class Raising(Rule):
    def aggregate(self, stack, context):
        raise KeyError("lost")


@partitions.register("halved")
class Halved(partitions.IID):
    pass


SWEEP = Sweep(
    "own", "Own", "",
    (Axis("defense", "Rule", (Point("derived", "derived", {"defense.name": "mine:Derived"}),)),),
    Table(("data",), ("defense",)),
    data=("hospital",),
    base={"federation.rounds": 2, "attack.targets": 20, "attack.mask": 20, "data.train": 90},
)
"""
TINY = [part for key in ("federation.rounds=2", "attack.targets=20", "attack.mask=20", "data.train=90")
        for part in ("--set", key)]  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OURS)
    return tmp_path


def test_a_rule_derived_from_ours_is_another_one_and_its_stored_spec_runs_again(mine: Path) -> None:
    done = scapegoat(mine, "run", *TINY, "--set", "defense=mine:Derived", "--out", "o", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    stored = mine / "o" / "runs" / summary["spec_hash"] / "spec.json"
    assert json.loads(stored.read_text())["defense"]["name"] == "mine:Derived"
    again = scapegoat(mine, "run", str(shutil.copy(stored, mine / "again.yaml")), "--json")
    assert json.loads(again.stdout)["spec_hash"] == summary["spec_hash"]


def test_components_of_every_kind_reach_the_worker_processes(mine: Path) -> None:
    (mine / "sweep.yaml").write_text(
        "plugins: [mine]\n"
        "base: {federation: {rounds: 2, partition: {name: halved}}, attack: {targets: 20, mask: 20},\n"
        "       data: {name: hospital, train: 90}}\n"
        "grid: {attack.name: [passive], defense: [fedavg, 'mine:Derived']}\n"
    )
    done = scapegoat(mine, "sweep", "sweep.yaml", "--jobs", "2", "--out", "o")
    assert done.returncode == 0, done.stderr
    specs = [json.loads(path.read_text()) for path in (mine / "o" / "runs").glob("*/spec.json")]
    assert len(specs) == 2
    assert all(spec["plugins"] == ["mine"] for spec in specs)
    assert {spec["federation"]["partition"]["name"] for spec in specs} == {"halved"}


def test_a_sweep_of_ones_own_is_taken_by_its_path(mine: Path) -> None:
    done = scapegoat(mine, "sweep", "mine:SWEEP", "--jobs", "1", "--out", "o")
    assert done.returncode == 0, done.stderr
    assert "derived" in done.stdout
    wrong = scapegoat(mine, "sweep", "mine:OURS_IS_NOT_HERE", "--out", "o")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_mistake_in_a_users_rule_is_one_line_that_says_where(mine: Path) -> None:
    done = scapegoat(mine, "run", *TINY, "--plugin", "mine", "--set", "defense=raising")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("the run failed in code of yours: KeyError: 'lost' (mine.py, line 16)")
    assert "Traceback" not in done.stderr
