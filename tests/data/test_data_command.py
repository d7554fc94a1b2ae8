"""`scapegoat data` as a person meets it: what it prints, and exit codes."""

import gzip
import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from scapegoat.cli import main
from scapegoat.cli.data import data
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.inventory import content_digest
from scapegoat.data.sets.cifar10 import CIFAR10
from scapegoat.data.sets.fashion_mnist import FashionMNIST
from scapegoat.data.sets.location30 import Location30
from tests.data import build


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["data", *map(str, arguments)])
    out, err = capsys.readouterr()
    return caught.value.code or 0, out, err


@pytest.fixture
def published(monkeypatch):
    """The records that `location` makes are what is published as Location30."""
    x, y = build.records(5010, 446, 30)
    publication = replace(Location30.publication, content=content_digest(Decoded(x, y, 30)))
    monkeypatch.setattr(Location30, "publication", publication)


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


def test_check_of_a_whole_data_set(tmp_path, capsys, published):
    location(tmp_path, 5010)
    code, out, err = run(capsys, "check", "location30", "--root", tmp_path)
    assert code == 0
    assert "location30: whole (its records and labels as published); 5,010 records of 446, 30 classes" in out
    assert err == ""


def test_check_of_part_of_a_data_set_exits_2(tmp_path, capsys):
    location(tmp_path, 29)
    code, out, err = run(capsys, "check", "--root", tmp_path)
    assert code == 2
    assert "NOT WHOLE: 29 records, published are 5,010, 29 of the 30 classes occur" in out
    assert err.count("\n") == 1


def test_check_compares_what_the_files_hold_and_not_how_they_were_packed(tmp_path, capsys, published):
    x, y = build.records(5010, 446, 30)
    whole = build.rows(x, y + 1)
    for number, members in enumerate(({"bangkok": whole}, {"another/bangkok": whole})):
        folder = tmp_path / str(number)
        build.tar(folder / "dataset_location.tgz", members)
        code, out, _ = run(capsys, "check", "location30", "--root", folder)
        assert code == 0
        assert "location30: whole (its records and labels as published)" in out


@pytest.mark.parametrize("change", ["label", "feature"])
def test_one_altered_byte_is_not_whole(tmp_path, capsys, published, change):
    x, y = build.records(5010, 446, 30)
    content = bytearray(build.rows(x, y + 1))
    at = content.index(b"\n11,") + 1 if change == "label" else len(content) - 2
    content[at] ^= 3 if change == "label" else 1
    (tmp_path / "bangkok").write_bytes(content)
    code, out, _ = run(capsys, "check", "location30", "--root", tmp_path, "--json")
    assert code == 2
    (verdict,) = json.loads(out)["data"]
    assert (verdict["state"], verdict["whole"]) == ("not whole", False)
    assert verdict["problems"] == ["its records or labels are not those that are published"]


def fashion_with(folder, name, change):
    """The published files but for one, which is another gzip of the same, or of something else."""
    build.fashion(folder)
    path = folder / name
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes())), 1, mtime=5))
    return folder


def test_another_gzip_header_is_whole_and_another_label_is_not(tmp_path, capsys, monkeypatch):
    x, y = build.fashion(tmp_path / "original")
    publication = replace(FashionMNIST.publication, records=17, test=5, content=content_digest(Decoded(x, y, 10, 5)))
    monkeypatch.setattr(FashionMNIST, "publication", publication)
    name = "train-labels-idx1-ubyte.gz"
    same = fashion_with(tmp_path / "same", name, lambda content: content)
    assert (same / name).read_bytes() != (tmp_path / "original" / name).read_bytes()
    code, out, _ = run(capsys, "check", "fashion_mnist", "--root", same)
    assert (code, "fashion_mnist: whole" in out) == (0, True)
    other = fashion_with(tmp_path / "other", name, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    code, out, _ = run(capsys, "check", "fashion_mnist", "--root", other)
    assert (code, "NOT WHOLE: its records or labels" in out) == (2, True)


def cifar_archive(folder, monkeypatch, checksums, change=bytes):
    """Six batches in an archive; returns the files in it."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {name: build.cifar_python(*build.pictures(10, (3, 32, 32), seed=n)) for n, name in enumerate(names)}
    published = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in batches.items()}
    published = {**published, "cifar-10-python.tar.gz": f"md5:{'0' * 32}"} if checksums else {}
    publication = replace(CIFAR10.publication, records=60, test=10, checksums=published)
    monkeypatch.setattr(CIFAR10, "publication", publication)
    members = {f"cifar-10-batches-py/{name}": change(content) for name, content in batches.items()}
    build.tar(folder / "cifar-10-python.tar.gz", members)


def test_an_archive_that_was_packed_again_is_whole_where_its_files_are(tmp_path, capsys, monkeypatch):
    cifar_archive(tmp_path, monkeypatch, checksums=True)
    code, out, _ = run(capsys, "check", "cifar10", "--root", tmp_path)
    assert (code, "cifar10: whole (cifar-10-python.tar.gz as published)" in out) == (0, True)
    cifar_archive(tmp_path, monkeypatch, checksums=True, change=lambda content: content + b" ")
    code, out, _ = run(capsys, "check", "cifar10", "--root", tmp_path)
    assert (code, "cifar-10-python.tar.gz differs from its published checksum" in out) == (2, True)


def test_what_has_no_published_checksum_is_never_called_whole(tmp_path, capsys, monkeypatch):
    cifar_archive(tmp_path, monkeypatch, checksums=False)
    code, out, _ = run(capsys, "check", "cifar10", "--root", tmp_path, "--json")
    (verdict,) = json.loads(out)["data"]
    assert (code, verdict["state"], verdict["whole"], verdict["problems"]) == (0, "not verified", False, [])
    _, out, _ = run(capsys, "check", "cifar10", "--root", tmp_path)
    assert "not verified" in out
    assert "whole" not in out


def test_check_reads_the_file_and_not_the_cache(tmp_path, capsys, monkeypatch, published):
    monkeypatch.setattr("scapegoat.data.files.cache.decoded", lambda *_: pytest.fail("the cache was asked"))
    location(tmp_path, 5010)
    assert run(capsys, "check", "location30", "--root", tmp_path)[0] == 0


def test_check_goes_on_after_a_broken_one(tmp_path, capsys, published):
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
    assert "not verified" in out


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


def test_import_then_check(tmp_path, capsys, published):
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
