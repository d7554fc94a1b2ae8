"""Files made to do harm: they run nothing, write nothing, allocate nothing, and are one line each."""

import contextlib
import gzip
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line

pytestmark = pytest.mark.usefixtures("any_count")


@contextlib.contextmanager
def refused(*parts):
    """A DataError of one line, on the way to which not more than 64 MB were taken at a time."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one_line(caught, *parts)
    assert peak < 64 << 20, f"{peak:,} bytes were allocated"


class Reduce:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def cifar_with(folder, content):
    build.cifar_batches(folder, build.cifar_python, "")
    (folder / "data_batch_2").write_bytes(content)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "program",
    [
        lambda mark: Reduce(os.system, f"touch {mark}"),
        lambda mark: Reduce(eval, f"open({str(mark)!r}, 'w')"),
        lambda mark: {b"data": Reduce(open, str(mark), "w"), b"labels": [1]},
        lambda mark: Reduce(getattr, Reduce(__import__, "os"), "system"),
        lambda mark: Reduce(np.fromfile, str(mark)),
    ],
)
def test_pickle_that_would_run_code_runs_nothing(tmp_path, protocol, program):
    mark = tmp_path / "harm"
    cifar_with(tmp_path / "root", pickle.dumps(program(mark), protocol))
    with refused("data_batch_2", "asks for"):
        load("cifar10", root=tmp_path / "root")
    assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x04r\xff\xff\xff\x7f.",  # memo index of 2**31: the C unpickler allocates the table
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.",  # a bytearray of 1 TB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.",  # bytes of 1 TB
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"abc.",  # a frame of 1 TB
        b"\x80\x02]q\x00.",  # a list
        b"cos\nsystem\n(S'true'\ntR.",
        b"(ios\nsystem\nS'true'\no.",
        b"Ppersistent\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x63.",
        b".",
        b"",
        b"hello",
    ],
)
def test_hostile_pickle_program_is_one_line(tmp_path, program):
    cifar_with(tmp_path, program)
    with refused("data_batch_2"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize(
    "batch",
    [
        {b"data": np.zeros((2, 3072), np.float64), b"labels": [1, 2]},
        {b"data": np.array(["a", None], dtype=object), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, True]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": "12"},
        {b"data": [[0] * 3072] * 2, b"labels": [1, 2]},
        {b"labels": [1, 2]},
        {},
    ],
)
def test_python_batch_of_other_things_is_one_line(tmp_path, batch):
    cifar_with(tmp_path, pickle.dumps(batch, 2))
    with refused("data_batch_2"):
        load("cifar10", root=tmp_path)


def test_array_that_claims_more_than_it_has_is_one_line(tmp_path):
    content = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, 2)
    shape = pickle.dumps((2, 3072), 2)[2:-3]
    huge = pickle.dumps((1 << 30, 3072), 2)[2:-3]
    assert shape[:5] in content
    cifar_with(tmp_path, content.replace(shape[:5], huge[:8]))
    with refused("data_batch_2", "claims shape"):
        load("cifar10", root=tmp_path)


def location_tar(path, add, compress="w:gz"):
    with tarfile.open(path, compress) as archive:
        add(archive)


def member(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, io.BytesIO(content)


@pytest.mark.parametrize(
    "entry",
    [
        member("../harm", b"x"),
        member("a/../../harm", b"x"),
        member("/tmp/harm-of-scapegoat", b"x"),
        member("..\\harm", b"x"),
        member("bangkok", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("bangkok", kind=tarfile.LNKTYPE, link="../../etc/passwd"),
        member("bangkok", kind=tarfile.FIFOTYPE),
        member("bangkok", kind=tarfile.CHRTYPE),
    ],
)
def test_tar_that_points_outside_is_refused_and_unpacks_nothing(tmp_path, entry):
    folder = tmp_path / "root"
    folder.mkdir()
    location_tar(folder / "dataset_location.tgz", lambda archive: archive.addfile(*entry))
    before = sorted(tmp_path.rglob("*"))
    with refused("dataset_location.tgz"):
        load("location30", root=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_tar_whose_member_claims_too_much_is_refused(tmp_path):
    info = tarfile.TarInfo("bangkok")
    info.size = 1 << 40
    path = tmp_path / "dataset_location.tgz"
    path.write_bytes(gzip.compress(info.tobuf() + bytes(1024)))
    with refused("claims"):
        load("location30", root=tmp_path)


def test_tar_with_an_absurd_header_is_refused(tmp_path):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 50 << 20
    path = tmp_path / "dataset_location.tgz"
    path.write_bytes(gzip.compress(info.tobuf() + bytes(50 << 20), 1))
    with refused("dataset_location.tgz"):
        load("location30", root=tmp_path)


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "abc", "GNU.sparse.size": "10"},
        {"GNU.sparse.map": "0,5", "GNU.sparse.size": "zz"},
        {"GNU.sparse.size": "10", "GNU.sparse.offset": "0", "GNU.sparse.numbytes": "5"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"},
    ],
)
def test_tar_with_a_sparse_member_is_refused(tmp_path, headers):
    info, content = member("bangkok", b"0" * 10)
    info.pax_headers = headers
    location_tar(tmp_path / "dataset_location.tgz", lambda archive: archive.addfile(info, content))
    with refused("dataset_location.tgz", "sparse member"):
        load("location30", root=tmp_path)


def test_tar_with_an_old_sparse_member_is_refused_before_its_endless_map(tmp_path):
    header = bytearray(member("bangkok", kind=tarfile.GNUTYPE_SPARSE)[0].tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # the map goes on in the next block
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * ord(" ") + sum(header[156:512]))
    block = b"00000000001\0" * 42 + b"\1" + bytes(7)
    (tmp_path / "dataset_location.tgz").write_bytes(gzip.compress(bytes(header) + block * 30_000, 1))
    with refused("dataset_location.tgz", "sparse member"):
        load("location30", root=tmp_path)


def test_tar_with_a_size_that_is_no_number_is_one_line(tmp_path):
    info, content = member("bangkok", b"0" * 10)
    info.pax_headers = {"GNU.sparse.realsize": "zz"}
    location_tar(tmp_path / "dataset_location.tgz", lambda archive: archive.addfile(info, content))
    with refused("dataset_location.tgz", "damaged"):
        load("location30", root=tmp_path)


def test_gzip_bomb_in_a_tgz_is_refused(tmp_path):
    path = tmp_path / "dataset_location.tgz"
    with gzip.open(path, "wb", 1) as stream:
        info = tarfile.TarInfo("padding")
        info.size = 10 << 20
        for _ in range(8):  # members that are not wanted, but must be unpacked to get past them
            stream.write(info.tobuf())
            stream.write(bytes(10 << 20))
    with refused("unpacks to more than"):
        load("location30", root=tmp_path)


def test_endless_line_is_refused(tmp_path):
    path = tmp_path / "bangkok"
    with gzip.open(path, "wb", 1) as stream:
        for _ in range(15):
            stream.write(b"0," * (1 << 19))
    with refused("longer than"):
        load("location30", root=tmp_path)


def test_gzip_bomb_in_idx_is_refused(tmp_path):
    build.fashion(tmp_path)
    header = bytes((0, 0, 8, 1)) + struct.pack(">I", 12)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(60 << 20), 1))
    with refused("train-labels-idx1-ubyte.gz"):
        load("fashion_mnist", root=tmp_path)


def test_npz_with_objects_is_refused_and_runs_nothing(tmp_path):
    mark = tmp_path / "harm"
    array = np.array([Reduce(os.system, f"touch {mark}")] * 4, dtype=object)
    np.savez(tmp_path / "a.npz", x=array.reshape(4, 1), y=np.array([0, 1, 0, 1]))
    with refused("a.npz", "pickled Python objects"):
        load(f"npz:{tmp_path}/a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros((4, 1)), y=array)
    with refused("pickled Python objects"):
        load(f"npz:{tmp_path}/b.npz")
    assert not mark.exists()


def npy(shape, descr="<f4", content=b"", extra=""):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, {extra}}}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize(
    "array",
    [
        npy("(500000000, 1)"),
        npy("(1 << 40, 1 << 40)"),
        npy("(-1, 2)"),
        npy("(4, 9999999999999999999)"),
        npy("()", content=bytes(4)),
        npy("(4, 0)"),
        npy("(0, 2)"),
        npy("(1000000000000000, 0)"),
        npy("(1000000000000000,)", "|S0"),
        npy("(1000000000000000,)", "<U0"),
        npy("(4, 2)", content=bytes(31)),
        npy("(4, 2)", content=bytes(33)),
        npy("(4, 2)", "|O", bytes(64)),
        npy("(4,)", [("a", "<f4"), ("b", "<f4")], bytes(32)),
        npy("(4, 2)", "nonsense", bytes(32)),
        npy("(4, 2)", content=bytes(32), extra="'more': __import__('os').system('true')"),
        npy("(" * 500 + ")" * 500, content=bytes(32)),
        b"\x93NUMPY\x01\x00\xff\xff{}",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
        b"\x93NUMPY\x09\x00\x10\x00{}",
        b"hello",
        b"",
    ],
)
@pytest.mark.parametrize(("false", "other"), ["xy", "yx"])
def test_false_npy_header_is_one_line_and_allocates_nothing(tmp_path, array, false, other):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr(f"{false}.npy", array)
        stream = io.BytesIO()
        np.save(stream, np.array([0, 1, 0, 1]))
        archive.writestr(f"{other}.npy", stream.getvalue())
    with refused("a.npz"):
        load(f"npz:{tmp_path}/a.npz")


def test_zip_bomb_is_refused(tmp_path):
    count = 200 << 20
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("x.npy", "w") as member:
            member.write(npy(f"({count}, 1)", "|u1"))
            for _ in range(200):
                member.write(bytes(1 << 20))
        stream = io.BytesIO()
        np.save(stream, np.array([0, 1] * 4))
        archive.writestr("y.npy", stream.getvalue())
    with refused("a.npz", "hardly any records do"):
        load(f"npz:{tmp_path}/a.npz")


def test_too_many_records_for_a_published_set_are_refused_before_they_are_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "purchase100.npz", "w") as archive:
        archive.writestr("features.npy", npy("(200000, 600)", "|u1", bytes(1000)))
        archive.writestr("labels.npy", npy("(200000,)", "|u1", bytes(200_000)))
    with refused("features"):
        load("purchase100", root=tmp_path)


def test_parquet_of_endless_equal_rows_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.array(np.zeros(1 << 20, np.int8))
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("a", pa.int8()), ("label", pa.int8())])) as writer:
        for _ in range(12):
            writer.write_table(pa.table({"a": zeros, "label": zeros}))
    with refused("a.parquet", "hardly any records do"):
        load(f"parquet:{tmp_path}/a.parquet")


@pytest.mark.parametrize("names", [("a", "a", "label"), ("a", "label", "label"), ("image", "image", "label")])
def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path, names):
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array([0, 1, 0, 1])
    pq.write_table(pa.Table.from_arrays([values] * 3, names=names), tmp_path / "a.parquet")
    with refused("a.parquet", "more than one column named"):
        load(f"parquet:{tmp_path}/a.parquet")


def test_parquet_that_repeats_one_large_picture_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    picture = pa.DictionaryArray.from_arrays(np.zeros(5000, np.int32), pa.array([os.urandom(100_000)]))
    table = pa.table({"image": picture, "label": np.arange(5000) % 2})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False, row_group_size=5000)
    before = pa.total_allocated_bytes()
    with refused("a.parquet", "no pictures do"):
        load(f"parquet:{tmp_path}/a.parquet")
    assert pa.total_allocated_bytes() - before < 128 << 20


def test_picture_that_claims_absurd_dimensions_is_refused(tmp_path):
    build.image_folders(tmp_path, ["a", "b"], 2)
    content = bytearray((tmp_path / "a" / "0.png").read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    (tmp_path / "a" / "0.png").write_bytes(content)
    with refused("0.png"):
        load(f"images:{tmp_path}")


def test_member_name_with_line_breaks_stays_one_line(tmp_path):
    info, content = member("../a\nscapegoat: all is well\x1b[2J", b"x")
    location_tar(tmp_path / "dataset_location.tgz", lambda archive: archive.addfile(info, content))
    with pytest.raises(DataError) as caught:
        load("location30", root=tmp_path)
    one_line(caught, "outside")
    assert "\x1b" not in str(caught.value)
