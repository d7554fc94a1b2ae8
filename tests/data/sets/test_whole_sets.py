"""Part of a published data set is not taken for all of it."""

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.data.files import cache
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line, same


def test_text_cut_between_two_lines_is_refused_with_what_to_do(tmp_path):
    x, y = build.records(60, 446, 30)
    (tmp_path / "bangkok").write_bytes(build.rows(x, y + 1))
    with pytest.raises(DataError) as caught:
        load("location30", root=tmp_path)
    one_line(caught, str(tmp_path / "bangkok"), "60 records, published are 5,010", "npz:PATH")


def test_all_records_are_read(tmp_path):
    x, y = build.records(5010, 446, 30)
    (tmp_path / "bangkok").write_bytes(build.rows(x, y + 1))
    same(load("location30", root=tmp_path), x, y)


def test_records_in_the_wrong_split_are_refused(tmp_path, publish):
    publish("fashion_mnist", 17, test=4)
    build.fashion(tmp_path, train=12, test=5)
    with pytest.raises(DataError, match="5 test records, published are 4"):
        load("fashion_mnist", root=tmp_path)


def test_part_that_an_older_version_kept_decoded_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "WORTH_KEEPING", 0)
    build.cifar_batches(tmp_path, build.cifar_binary, ".bin")
    for _ in range(2):
        with pytest.raises(DataError, match="24 records, published are 60,000"):
            load("cifar10", root=tmp_path)


def test_a_subset_on_purpose_is_data_of_ones_own(tmp_path):
    x, y = build.records(60, 446, 30)
    np.savez(tmp_path / "part.npz", x=x, y=y)
    same(load(f"npz:{tmp_path}/part.npz"), x, y)
