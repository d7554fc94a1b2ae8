"""`scapegoat data` as a person meets it: what it prints, and exit codes."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from scapegoat.cli import main
from scapegoat.cli.data import data
from tests.data import build


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["data", *map(str, arguments)])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


def location(folder, count=60):
    folder.mkdir(parents=True, exist_ok=True)
    x, y = build.records(count, 446, 30)
    (folder / "bangkok").write_bytes(build.rows(x, y + 1))
    return folder / "bangkok"


def test_where_shows_roots_and_what_was_found(tmp_path, capsys):
    path = location(tmp_path / "location30")
    code, out, _ = run(capsys, "where", "--root", tmp_path)
    assert code == 0
    assert str(path) in out
    assert "data  (not there)" in out
    assert "hospital       generated" in out
    assert "texas100       missing: texas100.npz" in out


def test_where_as_json(tmp_path, capsys):
    path = location(tmp_path / "location30")
    _, out, _ = run(capsys, "where", "--root", tmp_path, "--json")
    about = json.loads(out)
    status = {entry["name"]: entry["status"] for entry in about["data"]}
    assert about["roots"] == [str(tmp_path), "data"]
    assert status["location30"] == "found"
    assert status["hospital"] == "generated"
    assert status["cifar10"] == "missing"
    assert next(e for e in about["data"] if e["name"] == "location30")["files"] == [str(path)]


def test_check_of_a_whole_data_set(tmp_path, capsys):
    location(tmp_path, 5010)
    code, out, err = run(capsys, "check", "location30", "--root", tmp_path)
    assert code == 0
    assert "location30: whole; 5,010 records of 446, 30 classes" in out
    assert err == ""


def test_check_of_part_of_a_data_set_exits_2(tmp_path, capsys):
    location(tmp_path, 29)
    code, out, err = run(capsys, "check", "--root", tmp_path)
    assert code == 2
    assert "NOT WHOLE: 29 records, published are 5,010, 29 of the 30 classes occur" in out
    assert err.count("\n") == 1


def test_check_compares_checksums(tmp_path, capsys):
    x, y = build.records(5010, 446, 30)
    build.tar(tmp_path / "dataset_location.tgz", {"bangkok": build.rows(x, y + 1)})
    code, out, _ = run(capsys, "check", "location30", "--root", tmp_path, "--json")
    assert code == 2
    (verdict,) = json.loads(out)["data"]
    assert verdict["checksums"] == {"dataset_location.tgz": "differs"}
    assert verdict["problems"] == ["dataset_location.tgz differs from its published checksum"]


def test_check_reads_the_file_and_not_the_cache(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("scapegoat.data.cache.decoded", lambda *_: pytest.fail("the cache was asked"))
    location(tmp_path, 5010)
    assert run(capsys, "check", "location30", "--root", tmp_path)[0] == 0


def test_check_goes_on_after_a_broken_one(tmp_path, capsys):
    location(tmp_path, 5010)
    (tmp_path / "purchase100.npz").write_bytes(b"hello")
    code, out, err = run(capsys, "check", "--root", tmp_path)
    assert code == 2
    assert "location30: whole" in out
    assert "purchase100.npz" in err


def test_check_of_own_data(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=np.zeros((6, 2)), y=[0, 1, 2] * 2)
    code, out, _ = run(capsys, "check", f"npz:{tmp_path}/a.npz")
    assert code == 0
    assert "6 records of 2, 3 classes" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "texas100"),
        ("check", "nonsense"),
        ("check", "npz:nowhere.npz"),
        ("import", "location30", "nowhere.tgz"),
        ("import", "hospital", "."),
        ("import", "nonsense", "."),
        ("fetch", "cifar10"),
        ("fetch", "nonsense"),
        ("fetch", "location30", "--url", "file:///etc/passwd"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("scapegoat: ")


def test_import_then_check(tmp_path, capsys):
    path = location(tmp_path / "downloads", 5010)
    code, out, _ = run(capsys, "import", "location30", path, "--root", tmp_path / "root")
    assert code == 0
    assert f"copied to {tmp_path / 'root' / 'location30' / 'bangkok'}" in out
    assert run(capsys, "check", "--root", tmp_path / "root")[0] == 0


def test_import_of_part_of_a_data_set_exits_2_and_copies_nothing(tmp_path, capsys):
    path = location(tmp_path / "downloads", 2000)
    code, out, err = run(capsys, "import", "location30", path, "--root", tmp_path / "root")
    assert (code, out) == (2, "")
    assert "2,000 records, published are 5,010" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "root").exists()


def test_help_names_the_four_commands():
    result = CliRunner().invoke(data, ["--help"])
    assert result.exit_code == 0
    for command in ("where", "check", "import", "fetch"):
        assert command in result.output


def test_the_command_does_not_load_torch_before_it_is_needed():
    code = "import sys; import scapegoat.cli.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
