import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.data.files import cache
from scapegoat.data.files.cache import Decoded, decoded
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import same


@pytest.fixture
def keep_all(monkeypatch):
    monkeypatch.setattr(cache, "WORTH_KEEPING", 0)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(b"content")
    return path


def made(seed=0, count=40):
    rng = np.random.default_rng(seed)
    return Decoded(rng.integers(0, 256, (count, 3, 4), dtype=np.uint8), rng.integers(0, 5, count), 5, 7)


class Counting:
    def __init__(self, result):
        self.calls = 0
        self.result = result

    def __call__(self):
        self.calls += 1
        return self.result


def equal(a, b):
    return np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) and (a.classes, a.test) == (b.classes, b.test)


def entries():
    return sorted(Path(os.environ["SCAPEGOAT_CACHE"]).iterdir())


def test_a_source_is_decoded_once_and_then_mapped(keep_all, source):
    decode = Counting(made())
    for _ in range(3):
        result = decoded("set", "recipe", [source], decode)
        assert equal(result, decode.result)
        assert isinstance(result.x, np.memmap)
    assert decode.calls == 1


def test_small_results_are_not_kept(source):
    decode = Counting(made())
    decoded("set", "recipe", [source], decode)
    decoded("set", "recipe", [source], decode)
    assert decode.calls == 2
    assert entries() == []


@pytest.mark.parametrize("change", ["content", "time", "recipe"])
def test_another_source_or_recipe_is_decoded_anew(keep_all, source, change):
    decode = Counting(made())
    decoded("set", "recipe", [source], decode)
    if change == "content":
        state = source.stat()
        source.write_bytes(b"CONTENT")
        os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    elif change == "time":
        os.utime(source, ns=(1, 1))
    decoded("set", "other" if change == "recipe" else "recipe", [source], decode)
    assert decode.calls == 2


def test_a_folder_is_known_by_its_names_and_contents(keep_all, tmp_path):
    build.image_folders(tmp_path / "p", ["a", "b"], 2)
    decode = Counting(made())
    decoded("set", "recipe", [tmp_path / "p"], decode)
    (tmp_path / "p" / "a" / "0.png").rename(tmp_path / "p" / "b" / "9.png")
    decoded("set", "recipe", [tmp_path / "p"], decode)
    assert decode.calls == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: (e / "x.npy").write_bytes((e / "x.npy").read_bytes()[:-5]),
        lambda e: (e / "x.npy").write_bytes(b""),
        lambda e: (e / "x.npy").unlink(),
        lambda e: (e / "y.npy").write_bytes(b"\x93NUMPY" + bytes(50)),
        lambda e: (e / "entry.json").write_text("{"),
        lambda e: (e / "entry.json").write_text("[]"),
        lambda e: (e / "entry.json").write_text("{}"),
        lambda e: (e / "entry.json").unlink(),
        lambda e: (e / "entry.json").write_text(json.dumps({"checksums": {}, "classes": None, "test": 0})),
        lambda e: flip(e / "x.npy"),
    ],
)
def test_a_damaged_entry_is_rebuilt(keep_all, source, spoil, caplog):
    decode = Counting(made())
    decoded("set", "recipe", [source], decode)
    (entry,) = entries()
    spoil(entry)
    assert equal(decoded("set", "recipe", [source], decode), decode.result)
    assert decode.calls == 2
    assert "damaged" in caplog.text
    assert equal(decoded("set", "recipe", [source], decode), decode.result)
    assert decode.calls == 2
    assert [e.name for e in entries()] == [entry.name]


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def test_a_failed_decoding_leaves_nothing(keep_all, source):
    def fail():
        raise DataError("no")

    with pytest.raises(DataError):
        decoded("set", "recipe", [source], fail)
    assert entries() == []


def test_a_cache_that_cannot_be_written_is_done_without(keep_all, source, monkeypatch, caplog):
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(source / "below-a-file"))
    assert equal(decoded("set", "recipe", [source], Counting(made())), made())
    assert "decoded each time" in caplog.text


def _work(barrier, source, seen):
    cache.WORTH_KEEPING = 0
    barrier.wait()
    for _ in range(20):
        result = decoded("set", "recipe", [source], lambda: made(count=2000))
        seen.put(int(result.x.astype(np.int64).sum()))


def test_several_processes_at_once_see_whole_entries(source):
    context = multiprocessing.get_context("fork")
    barrier, seen = context.Barrier(3), context.Queue()
    workers = [context.Process(target=_work, args=(barrier, source, seen)) for _ in range(3)]
    for worker in workers:
        worker.start()
    sums = {seen.get(timeout=60) for _ in range(60)}
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sums == {int(made(count=2000).x.astype(np.int64).sum())}
    assert len(entries()) == 1


def test_what_is_changed_in_memory_never_reaches_the_entry(keep_all, any_count, tmp_path):
    x, y = build.cifar_batches(tmp_path, build.cifar_binary, ".bin")
    load("cifar10", root=tmp_path).x.zero_()
    same(load("cifar10", root=tmp_path), x, y)


def test_a_changed_file_is_another_data_set(keep_all, any_count, tmp_path):
    build.cifar_batches(tmp_path, build.cifar_binary, ".bin")
    load("cifar10", root=tmp_path)
    x, y = build.cifar_batches(tmp_path, lambda a, b: build.cifar_binary(255 - a, b), ".bin")
    same(load("cifar10", root=tmp_path), 255 - x, y)


def test_options_that_shape_the_records_are_part_of_the_entry(keep_all, tmp_path):
    build.image_folders(tmp_path, ["a", "b"], 2)
    assert load(f"images:{tmp_path}", size=4).input_shape == (1, 4, 4)
    assert load(f"images:{tmp_path}", size=5).input_shape == (1, 5, 5)
    assert load(f"images:{tmp_path}", size=5, train=2).input_shape == (1, 5, 5)
    assert len(entries()) == 2
