import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.data.files.import_files import import_files
from scapegoat.data.sets.location30 import Location30
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line, same


def location(path, count=60, seed=0):
    x, y = build.records(count, 446, 30, seed)
    build.tar(path, {"bangkok": build.rows(x, y + 1)})
    return x, y


def everything(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


@pytest.fixture(autouse=True)
def few(publish):
    publish("location30", 60)
    publish("fashion_mnist", 17, test=5)
    publish("fer2013", 14, test=7)
    publish("stl10", 20, test=8)


def test_a_file_is_copied_to_where_it_is_looked_for(tmp_path):
    x, y = location(tmp_path / "downloads" / "dataset_location.tgz")
    copied, verdict = import_files("location30", [tmp_path / "downloads" / "dataset_location.tgz"], tmp_path / "root")
    assert copied == [tmp_path / "root" / "location30" / "dataset_location.tgz"]
    assert everything(tmp_path / "root") == ["location30", "location30/dataset_location.tgz"]
    assert (verdict.problems, verdict.state) == ([], "not verified")
    same(load("location30", root=tmp_path / "root"), x, y)


@pytest.mark.parametrize(
    ("given", "name"),
    [("download(1).tgz", "dataset_location.tgz"), ("my.csv", "bangkok.csv"), ("my.npz", "location30.npz")],
)
def test_a_file_of_another_name_is_told_by_its_ending(tmp_path, given, name):
    x, y = build.records(60, 446, 30)
    if given.endswith(".tgz"):
        build.tar(tmp_path / given, {"bangkok": build.rows(x, y + 1)})
    elif given.endswith(".csv"):
        (tmp_path / given).write_bytes(build.rows(x, y + 1))
    else:
        np.savez(tmp_path / given, features=x, labels=y)
    copied, _ = import_files("location30", [tmp_path / given], tmp_path / "root")
    assert copied == [tmp_path / "root" / "location30" / name]
    same(load("location30", root=tmp_path / "root"), x, y)


def test_a_file_of_another_name_must_have_the_checksum_of_what_it_is_taken_for(tmp_path, monkeypatch):
    publication = replace(Location30.publication, checksums={"dataset_location.tgz": f"sha256:{'0' * 64}"})
    monkeypatch.setattr(Location30, "publication", publication)
    location(tmp_path / "download(1).tgz")
    with pytest.raises(DataError) as caught:
        import_files("location30", [tmp_path / "download(1).tgz"], tmp_path / "root")
    one_line(caught, "download(1).tgz", "dataset_location.tgz differs from its published checksum")
    assert not (tmp_path / "root").exists()


def test_part_of_a_data_set_is_not_copied(tmp_path):
    location(tmp_path / "dataset_location.tgz", count=29)
    with pytest.raises(DataError) as caught:
        import_files("location30", [tmp_path / "dataset_location.tgz"], tmp_path / "root")
    one_line(caught, "29 records, published are 60", "29 of the 30 classes occur")
    assert not (tmp_path / "root").exists()


def test_without_a_root_the_variable_then_here(tmp_path, monkeypatch):
    location(tmp_path / "dataset_location.tgz")
    copied, _ = import_files("location30", [tmp_path / "dataset_location.tgz"])
    assert copied == [Path("data/location30/dataset_location.tgz")]
    monkeypatch.setenv("SCAPEGOAT_DATA", str(tmp_path / "sets"))
    copied, _ = import_files("location30", [tmp_path / "dataset_location.tgz"])
    assert copied == [tmp_path / "sets" / "location30" / "dataset_location.tgz"]


@pytest.mark.parametrize("as_folder", [True, False])
def test_several_files_together(tmp_path, as_folder):
    x, y = build.fashion(tmp_path / "downloads")
    files = [tmp_path / "downloads"] if as_folder else sorted((tmp_path / "downloads").iterdir())
    copied, _ = import_files("fashion_mnist", files, tmp_path / "root")
    assert len(copied) == 4
    same(load("fashion_mnist", root=tmp_path / "root"), x, y)


def test_part_of_several_files_says_what_else_is_wanted(tmp_path):
    build.fashion(tmp_path)
    with pytest.raises(DataError) as caught:
        import_files("fashion_mnist", [tmp_path / "train-images-idx3-ubyte.gz"], tmp_path / "root")
    one_line(caught, "t10k-labels-idx1-ubyte.gz", "at once")
    assert not (tmp_path / "root").exists()


def test_a_damaged_part_is_replaced_alone(tmp_path):
    build.fashion(tmp_path / "good")
    import_files("fashion_mnist", [tmp_path / "good"], tmp_path / "root")
    part = tmp_path / "root" / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"
    part.write_bytes(b"damaged")
    import_files("fashion_mnist", [tmp_path / "good" / "t10k-images-idx3-ubyte.gz"], tmp_path / "root")
    assert len(load("fashion_mnist", root=tmp_path / "root")) == 17


def test_folders_of_pictures(tmp_path):
    for split in ("train", "test"):
        build.image_folders(tmp_path / "fer" / split, build.EMOTIONS, 1, (1, 48, 48))
    import_files("fer2013", [tmp_path / "fer"], tmp_path / "root")
    assert len(load("fer2013", root=tmp_path / "root")) == 14
    with pytest.raises(DataError, match="is there already"):
        import_files("fer2013", [tmp_path / "fer" / "train", tmp_path / "fer" / "test"], tmp_path / "root")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-500]), "cut short"),
        (lambda p: p.write_bytes(b"hello"), "damaged"),
        (lambda p: p.unlink(), "no such file"),
        (lambda p: build.tar(p, {"../bangkok": b"1"}), "outside"),
    ],
)
def test_what_cannot_be_read_is_not_copied(tmp_path, spoil, says):
    path = tmp_path / "dataset_location.tgz"
    location(path, 300)
    spoil(path)
    with pytest.raises(DataError) as caught:
        import_files("location30", [path], tmp_path / "root")
    one_line(caught, str(path), says)
    assert not (tmp_path / "root").exists()


def test_a_file_of_another_data_set_is_not_copied(tmp_path):
    x, y = build.records(60, 600, 100)
    np.savez(tmp_path / "a.npz", features=x, labels=y)
    with pytest.raises(DataError, match="6169 or 6170"):
        import_files("texas100", [tmp_path / "a.npz"], tmp_path / "root")
    with pytest.raises(DataError, match=r"is no file of stl10, which consists of train_X\.bin"):
        import_files("stl10", [tmp_path / "a.npz"], tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_an_interrupted_copy_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    x, y = location(tmp_path / "dataset_location.tgz")
    import_files("location30", [tmp_path / "dataset_location.tgz"], tmp_path / "root")
    location(tmp_path / "dataset_location.tgz", seed=1)

    def fail(source, destination):
        Path(destination).write_bytes(Path(source).read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fail)
    with pytest.raises(DataError) as caught:
        import_files("location30", [tmp_path / "dataset_location.tgz"], tmp_path / "root")
    one_line(caught, "No space left")
    assert everything(tmp_path / "root") == ["location30", "location30/dataset_location.tgz"]
    same(load("location30", root=tmp_path / "root"), x, y)


def test_a_file_that_is_there_already_may_be_named(tmp_path):
    path = tmp_path / "root" / "location30" / "dataset_location.tgz"
    location(path)
    before = path.read_bytes()
    import_files("location30", [path], tmp_path / "root")
    assert path.read_bytes() == before
    assert tarfile.is_tarfile(path)


@pytest.mark.parametrize(("name", "says"), [("hospital", "generated"), ("npz:a.npz", "no import")])
def test_what_needs_no_import_says_so(tmp_path, name, says):
    with pytest.raises(DataError, match=says):
        import_files(name, [tmp_path], tmp_path / "root")


def test_hidden_files_beside_are_left_out(tmp_path):
    build.stl(tmp_path / "stl", train=12, test=8)
    (tmp_path / "stl" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "stl" / "readme.txt").write_text("x")
    copied, _ = import_files("stl10", [tmp_path / "stl"], tmp_path / "root")
    assert sorted(p.name for p in copied) == ["test_X.bin", "test_y.bin", "train_X.bin", "train_y.bin"]
    assert os.listdir(tmp_path / "root") == ["stl10"]
