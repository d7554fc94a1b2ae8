from pathlib import Path

import numpy as np
import pytest

from scapegoat.data import load, registry, roots
from scapegoat.data.files.published import PublishedData
from scapegoat.data.files.user_files import UserFiles
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line


def put(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    x, y = build.records(count, 446, 30)
    (folder / "bangkok").write_bytes(build.rows(x, y + 1))


def test_roots_in_order(monkeypatch, tmp_path):
    assert roots() == [Path("data")]
    monkeypatch.setenv("SCAPEGOAT_DATA", f"{tmp_path}/a:{tmp_path}/b")
    assert roots("mine") == [Path("mine"), tmp_path / "a", tmp_path / "b", Path("data")]
    assert roots(tmp_path / "a") == [tmp_path / "a", tmp_path / "b", Path("data")]
    monkeypatch.setenv("SCAPEGOAT_DATA", "~/sets")
    assert roots()[0] == Path.home() / "sets"


def test_the_argument_wins_then_the_variable_then_here(any_count, monkeypatch, tmp_path):
    put(Path("data/location30"), 30)
    assert len(load("location30")) == 30
    put(tmp_path / "variable", 60)
    monkeypatch.setenv("SCAPEGOAT_DATA", str(tmp_path / "variable"))
    assert len(load("location30")) == 60
    put(tmp_path / "argument" / "location30", 90)
    assert len(load("location30", root=tmp_path / "argument")) == 90


def test_a_folder_of_its_name_wins_over_the_root_itself(any_count, tmp_path):
    put(tmp_path, 30)
    put(tmp_path / "location30", 60)
    assert len(load("location30", root=tmp_path)) == 60


@pytest.mark.parametrize("name", [n for n, cls in registry.classes() if issubclass(cls, PublishedData)])
def test_a_missing_data_set_says_what_where_and_whence(name, tmp_path):
    with pytest.raises(DataError) as caught:
        load(name, root=tmp_path)
    one_line(caught, name, str(tmp_path / name), "https://")
    publication = registry.cls(name).publication
    for layout in publication.layouts:
        assert layout.wanted() in str(caught.value)


def test_a_partly_missing_data_set_says_what_is_missing(tmp_path):
    build.fashion(tmp_path / "fashion_mnist")
    (tmp_path / "fashion_mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as caught:
        load("fashion_mnist", root=tmp_path)
    one_line(caught, "incomplete", "t10k-labels-idx1-ubyte.gz missing")


def test_every_data_set_of_the_design_is_there():
    published = {"texas100", "cifar10", "stl10", "fer2013", "location30", "purchase100", "fashion_mnist"}
    assert set(registry.names()) == {"hospital", *published, "npz", "parquet", "csv", "images", "given"}


def test_publications_are_consistent():
    for _, cls in registry.classes():
        if not issubclass(cls, PublishedData):
            assert cls.__name__ == "Hospital" or issubclass(cls, UserFiles)
            continue
        published = cls.publication
        assert published.test < published.records
        assert all(np.prod(shape) > 0 for shape in published.shapes)
        for checksum in published.checksums.values():
            algorithm, _, digits = checksum.partition(":")
            assert len(digits) == {"md5": 32, "sha256": 64}[algorithm]
