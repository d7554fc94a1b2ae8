"""Tiny files that would fill the memory: refused in one line, exit code 2, with next to nothing taken."""

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.data.formats import memory
from scapegoat.errors import DataError
from tests.data import build
from tests.data.formats.test_hostile_files import cifar_with, npy
from tests.data.sets.test_published_records import one_line

MOST = 300 << 20


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """`watched(name, root)`: what `data check` did in a process of its own."""
    environment = {**os.environ, "SCAPEGOAT_CACHE": str(tmp_path_factory.mktemp("cache")), "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[3]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.data.formats.watched_reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=root,
    )

    def ask(name, root):
        worker.stdin.write(f"{name}\t{root}\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    with worker:
        yield ask
        worker.stdin.close()


def python_batch(folder, program):
    cifar_with(folder, program)
    return "cifar10"


def nested_keys(folder):
    """A dictionary whose key is a tuple of 2**60 empty tuples, each stored once."""
    return python_batch(folder, b"\x80\x02}q\x00)" + b"q\x01h\x01\x86" * 60 + b"K\x01s.")


def nested_keys_of_one_dictionary(folder):
    return python_batch(folder, b"\x80\x02()" + b"q\x01h\x01\x86" * 60 + b"K\x01d.")


def nested_members_of_a_set(folder):
    return python_batch(folder, b"\x80\x04\x8f()" + b"q\x00h\x00\x86" * 60 + b"\x90.")


def nested_type_of_an_array(folder):
    dtype = b"cnumpy\ndtype\n(" + b")" + b"q\x01h\x01\x86" * 40 + b"tR"
    array = b"cnumpy.core.numeric\n_frombuffer\n(C\x01a" + dtype + b"K\x01\x85X\x01\x00\x00\x00CtR"
    return python_batch(folder, b"\x80\x03}(C\x04data" + array + b"C\x06labels]u.")


def buffer_of_a_number(folder):
    """Python's bytes(number) is as many zeros."""
    number = b"\x8a\x05" + struct.pack("<Q", 20 << 30)[:5]
    array = b"cnumpy.core.numeric\n_frombuffer\n(" + number + b"NNNtR"
    return python_batch(folder, b"\x80\x03}(C\x04data" + array + b"C\x06labels]u.")


def endless_lists(folder):
    return python_batch(folder, gzip.compress(b"\x80\x02" + b"]" * (60 << 20), 1))


def text_encoded_again_and_again(folder):
    text = pickle.dumps("a" * (8 << 20), 2)[2:-1]
    again = b"c_codecs\nencode\n" + b"q\x02h\x02(" + text + b"q\x03tR" + b"h\x02(h\x03tR" * 1000
    return python_batch(folder, gzip.compress(b"\x80\x02" + again + b".", 1))


def padded_labels(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 100_000
    label = pa.DictionaryArray.from_arrays(np.arange(rows, dtype=np.int32) % 2, pa.array(["a" * 100_000, "b"]))
    table = pa.table({"label": label, "x": np.zeros(rows, np.int8)})
    pq.write_table(table, folder / "a.parquet", store_schema=False, compression="zstd")
    return f"parquet:{folder}/a.parquet"


def padded_text_features(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 100_000
    text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["a" * 100_000]))
    table = pa.table({"label": np.arange(rows) % 2, "x": text})
    pq.write_table(table, folder / "a.parquet", store_schema=False, compression="zstd")
    return f"parquet:{folder}/a.parquet"


def endless_lists_in_a_table(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 10_000_000
    values = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array(["a" * 60]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, count], pa.int32()), values)
    pq.write_table(pa.table({"label": [0, 1], "x": lists}), folder / "a.parquet", store_schema=False)
    return f"parquet:{folder}/a.parquet"


def repeated_picture(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    picture = pa.DictionaryArray.from_arrays(np.zeros(64, np.int32), pa.array([bytes(50 << 20)], pa.binary()))
    table = pa.table({"image": picture, "label": np.arange(64) % 2})
    pq.write_table(
        table, folder / "a.parquet", store_schema=False, compression="zstd", dictionary_pagesize_limit=1 << 30
    )
    return f"parquet:{folder}/a.parquet"


def endless_columns(folder):
    with gzip.open(folder / "fer2013.csv", "wb", 6) as stream:
        for _ in range(100):
            stream.write(b"," * 1_000_000)
    return "fer2013"


def endless_row_of_quotes(folder):
    """Line breaks within quotes: one row of 10,000,000 columns, in lines that are not long."""
    with gzip.open(folder / "fer2013.csv", "wb", 6) as stream:
        stream.write(b'emotion,pixels,Usage\n"x\n')
        for _ in range(2000):
            stream.write(b'",' + b"ab," * 5000 + b'"x\n')
    return "fer2013"


def endless_columns_of_a_table(folder):
    with gzip.open(folder / "a.csv", "wb", 6) as stream:
        for _ in range(100):
            stream.write(b"," * 1_000_000)
    return f"csv:{folder}/a.csv"


def many_columns_of_a_table(folder):
    with gzip.open(folder / "a.csv", "wb", 6) as stream:
        for _ in range(30):
            stream.write(b"," * 1_000_000 + b"\n")
    return f"csv:{folder}/a.csv"


def endless_cell_of_a_table(folder):
    with gzip.open(folder / "a.csv", "wb", 6) as stream:
        stream.write(b"a,label\n")
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
    return f"csv:{folder}/a.csv"


def table_of_nothing_but_rows(folder):
    with gzip.open(folder / "a.csv", "wb", 6) as stream:
        stream.write(b"a,label\n")
        for _ in range(100):
            stream.write(b"1,2\n" * 250_000)
    return f"csv:{folder}/a.csv"


def endless_label_lines(folder):
    x, _ = build.records(100, 6169, 100)
    (folder / "feats").write_bytes(build.rows(x))
    with gzip.open(folder / "labels", "wb", 6) as stream:
        for _ in range(100):
            stream.write(b"100\n" * 250_000)
    return "texas100"


def archive_of(path, **members):
    """An .npz of deflated members, each a header and a number of zero bytes, with every so many some noise."""
    noise = np.random.default_rng(0).bytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, (header, count, every) in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header)
                for start in range(0, count, 1 << 20):
                    part = bytearray(min(1 << 20, count - start))
                    part[: min(every, len(part))] = noise[: min(every, len(part))]
                    member.write(part)


def many_labels(folder):
    """Packed 228:1, below what nothing but zeros would give."""
    archive_of(folder / "a.npz", x=(npy("(4, 2)"), 32, 0), y=(npy(f"({1 << 26},)", "<i8"), 1 << 29, 3500))
    return f"npz:{folder}/a.npz"


def many_labels_with_records(folder):
    rows = 1 << 27
    archive_of(folder / "a.npz", x=(npy(f"({rows}, 1)", "|u1"), rows, 0), y=(npy(f"({rows},)", "|u1"), rows, 0))
    return f"npz:{folder}/a.npz"


def large_zeros(folder):
    """So much is noise that it packs 200:1 only, as 10 GB in 47 MB do."""
    rows = 2200
    archive_of(
        folder / "a.npz",
        x=(npy(f"({rows}, {1 << 18})", "|u1"), rows << 18, 2000),
        y=(npy(f"({rows},)", "|u1"), rows, rows),
    )
    return f"npz:{folder}/a.npz"


def endless_header(folder):
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 480 << 20)
    archive_of(folder / "a.npz", x=(header, 480 << 20, 1500), y=(npy("(4,)", "|u1"), 4, 0))
    return f"npz:{folder}/a.npz"


def padded_text_labels(folder):
    rows = 1000
    y = (npy(f"({rows},)", "<U100000"), rows * 400_000, 4000)
    archive_of(folder / "a.npz", x=(npy(f"({rows}, 1)", "|u1"), rows, 0), y=y)
    return f"npz:{folder}/a.npz"


def many_members_of_a_zip(folder):
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    count = 1_000_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entry) * count, 0, 0)
    (folder / "a.npz").write_bytes(entry * count + end)
    return f"npz:{folder}/a.npz"


def many_members_of_a_tar(folder):
    block = tarfile.TarInfo("a").tobuf()
    with gzip.open(folder / "cifar-10-binary.tar.gz", "wb", 1) as stream:
        for _ in range(500):
            stream.write(block * 1000)
    return "cifar10"


def many_headers_of_a_tar(folder):
    content = b"6 a=b\n" * 9000
    info = tarfile.TarInfo("a")
    info.type, info.size = tarfile.XGLTYPE, len(content)
    block = info.tobuf() + content + bytes(-len(content) % 512)
    with gzip.open(folder / "cifar-10-binary.tar.gz", "wb", 1) as stream:
        for _ in range(4000):
            stream.write(block)
    return "cifar10"


def labels_as_long_as_pictures(folder):
    build.stl(folder)
    for part in ("train_y.bin", "test_y.bin"):
        (folder / part).write_bytes(gzip.compress(b"\1" * (100 << 20), 1))
    return "stl10"


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (nested_keys, "keys that are not text"),
        (nested_keys_of_one_dictionary, "keys that are not text"),
        (nested_members_of_a_set, "operations that arrays do not need"),
        (nested_type_of_an_array, "bytes (uint8) are expected"),
        (buffer_of_a_number, "bytes (uint8) are expected"),
        (endless_lists, "more than 250,000 operations"),
        (text_encoded_again_and_again, "repeats its text"),
        (padded_labels, "a text of 100,000 characters"),
        (padded_text_features, "a text of 100,000 characters"),
        (endless_lists_in_a_table, "numbers or text are expected"),
        (repeated_picture, "no pictures do"),
        (endless_columns, "is longer than"),
        (endless_row_of_quotes, "not a whole CSV file"),
        (endless_columns_of_a_table, "line 1 is longer"),
        (many_columns_of_a_table, "at most 20,000 are read"),
        (endless_cell_of_a_table, "a line is longer"),
        (table_of_nothing_but_rows, "unpacks to more than"),
        (endless_label_lines, "has more than"),
        (many_labels, "hardly any records do"),
        (many_labels_with_records, "at most 16,777,216 are read"),
        (large_zeros, "hardly any records do"),
        (endless_header, "a header of"),
        (padded_text_labels, "text of at most 1,000 characters"),
        (many_members_of_a_zip, "lists more members"),
        (many_members_of_a_tar, "more than 1,000 members"),
        (many_headers_of_a_tar, "damaged"),
        (labels_as_long_as_pictures, "unpacks to more than"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_tiny_file_takes_little_memory_and_one_line(tmp_path, watched, bomb, reason):
    name = bomb(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 50 << 20
    answer = watched(name, tmp_path)
    assert answer["code"] == 2, answer
    assert answer["err"].count("\n") == 1
    assert reason in answer["err"], answer["err"]
    assert answer["grown"] < MOST, f"{answer['grown']:,} bytes"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("npz:{}/a.npz", "a.npz"),
        ("parquet:{}/a.parquet", "a.parquet"),
        ("parquet:{}", "a.parquet"),
        ("csv:{}/a.csv", "a.csv"),
        ("images:{}/pictures", "pictures"),
        ("location30", "bangkok"),
        ("location30", "location30.npz"),
        ("texas100", "dataset_texas.tgz"),
        ("cifar10", "cifar-10-python.tar.gz"),
        ("stl10", "stl10_binary.tar.gz"),
        ("fer2013", "fer2013.csv"),
    ],
)
def test_what_is_no_regular_file_is_not_opened(tmp_path, watched, make, name, file):
    make(tmp_path / file)
    answer = watched(name.format(tmp_path), tmp_path)
    assert (answer["code"], answer["err"].count("\n")) == (2, 1), answer
    assert "is not a regular file" in answer["err"]


def test_pipe_among_pictures_is_passed_over(tmp_path, watched):
    build.image_folders(tmp_path, ["a", "b"], 4)
    os.mkfifo(tmp_path / "a" / "pipe.png")
    assert watched(f"images:{tmp_path}", tmp_path)["code"] == 0


def test_folder_is_no_archive(tmp_path):
    with pytest.raises(DataError) as caught:
        load(f"npz:{tmp_path}")
    one_line(caught, "is not a regular file")


def honest_npz(folder, order="C"):
    np.savez(folder / "a.npz", x=np.ones((1000, 2000), order=order), y=np.arange(1000) % 4)
    return f"npz:{folder}/a.npz"


def honest_fortran_npz(folder):
    return honest_npz(folder, "F")


def honest_labels(folder):
    np.savez(folder / "a.npz", x=np.ones((500_000, 1), np.uint8), y=np.arange(500_000) % 4)
    return f"npz:{folder}/a.npz"


def honest_parquet(folder):
    build.parquet(
        folder / "a.parquet", {"label": np.arange(500_000) % 4, "x": np.random.default_rng(0).random(500_000)}
    )
    return f"parquet:{folder}/a.parquet"


def honest_pictures(folder):
    build.image_folders(folder, ["a", "b"], 2, (3, 1024, 1024))
    return f"images:{folder}"


@pytest.mark.parametrize(
    "make", [honest_npz, honest_fortran_npz, honest_labels, honest_parquet, honest_pictures], ids=lambda f: f.__name__
)
def test_what_needs_more_memory_than_there_is_is_refused_before_it_is_read(tmp_path, monkeypatch, make):
    name = make(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 3 << 20)
    with pytest.raises(DataError) as caught:
        load(name)
    one_line(caught, "of memory", "3.1 MB are free")
    monkeypatch.setattr(memory, "available", lambda: 128 << 20)
    assert len(load(name)) > 3


def test_memory_is_that_of_the_machine_the_control_group_and_the_process(tmp_path, monkeypatch):
    groups = tmp_path / "cgroup"
    (groups / "jobs" / "mine").mkdir(parents=True)
    (groups / "jobs" / "mine" / "memory.max").write_text("max\n")
    (groups / "jobs" / "memory.max").write_text("50000000\n")
    (groups / "jobs" / "memory.current").write_text("30000000\n")
    (groups / "jobs" / "memory.stat").write_text("anon 1\ninactive_file 4000000\n")
    membership = tmp_path / "membership"
    membership.write_text("1:name=systemd:/\n0::/jobs/mine\n")
    machine = memory.available()
    assert machine > 100_000_000
    monkeypatch.setattr(memory, "_CGROUPS", groups)
    monkeypatch.setattr(memory, "_MEMBERSHIP", membership)
    assert memory.available() == 24_000_000
    monkeypatch.setattr(memory, "_left_in_address_space", lambda: [1_000_000])
    assert memory.available() == 1_000_000
    monkeypatch.setattr(memory, "_left_in_address_space", lambda: [-5])
    assert memory.available() == 0
