"""Texas100, Purchase100 and Location30: every form in which they are in circulation, and files that are not them."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data import load
from scapegoat.data.records import binary_rows
from scapegoat.errors import DataError
from tests.data import build

pytestmark = pytest.mark.usefixtures("any_count")


def same(data, x, y):
    assert np.array_equal(data.x.numpy(), x)
    assert np.array_equal(data.y.numpy(), y)


def outcome(call, *arguments):
    """What the call returns, or the message of its DataError; any other exception is a failure."""
    try:
        return call(*arguments)
    except DataError as error:
        return str(error)


def one_line(caught, *parts):
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(("name", "width"), [("texas100", 6169), ("texas100", 6170), ("purchase100", 600)])
@pytest.mark.parametrize("form", ["one-hot", "integers", "from one", "float64", "compressed", "fortran"])
def test_npz(tmp_path, name, width, form):
    x, y = build.records(200, width, 100)
    stored = x.astype({"float64": np.float64, "compressed": np.int64}.get(form, np.float32))
    labels = y + 1 if form == "from one" else y if form == "integers" else np.eye(100, dtype=np.float32)[y]
    save = np.savez_compressed if form == "compressed" else np.savez
    save(tmp_path / f"{name}.npz", features=np.asfortranarray(stored) if form == "fortran" else stored, labels=labels)
    data = load(name, root=tmp_path)
    same(data, x, y)
    assert data.classes == 100


@pytest.mark.parametrize("order", [("feats", "labels"), ("labels", "feats")])
def test_texas100_tgz(tmp_path, order):
    x, y = build.records(150, 6169, 100)
    content = {"feats": build.rows(x), "labels": "".join(f"{v + 1}\n" for v in y).encode()}
    members = {f"texas/100/{name}": content[name] for name in order} | {"texas/100/feats_names": b"a\nb\n"}
    build.tar(tmp_path / "texas100" / "dataset_texas.tgz", members)
    same(load("texas100", root=tmp_path), x, y)


def test_texas100_unpacked(tmp_path):
    x, y = build.records(120, 6169, 100)
    folder = tmp_path / "texas100" / "texas" / "100"
    folder.mkdir(parents=True)
    (folder / "feats").write_bytes(build.rows(x))
    (folder / "labels").write_bytes("".join(f"{v + 1}\n" for v in y).encode())
    same(load("texas100", root=tmp_path), x, y)


@pytest.mark.parametrize("packed", [True, False])
def test_purchase100_csv(tmp_path, packed):
    x, y = build.records(130, 600, 100)
    content = build.rows(x, y + 1)
    if packed:
        build.tar(tmp_path / "dataset_purchase.tgz", {"dataset_purchase": content})
    else:
        (tmp_path / "dataset_purchase").write_bytes(content)
    same(load("purchase100", root=tmp_path), x, y)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("quote", [True, False])
def test_location30(tmp_path, packed, quote):
    x, y = build.records(90, 446, 30)
    content = build.rows(x, y + 1, quote)
    if packed:
        build.tar(tmp_path / "location30" / "dataset_location.tgz", {"bangkok": content})
    else:
        (tmp_path / "bangkok").write_bytes(content.replace(b"\n", b"\r\n"))
    data = load("location30", root=tmp_path)
    same(data, x, y)
    assert data.input_shape == (446,)


@settings(deadline=None, max_examples=60)
@given(
    x=st.integers(1, 20).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=8)
    ),
    spelling=st.sampled_from(["{}", "{}.0", '"{}"', " {}"]),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
)
def test_rows_of_any_spelling_read_as_python_does(x, spelling, ending, last):
    text = ending.join(",".join(spelling.format(v) for v in row) for row in x) + (ending if last else "")
    read, _ = binary_rows(io.BytesIO(text.encode()), "file", (len(x[0]),), 1000, labelled=False)
    assert read.tolist() == x


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rows_or_one_line(content):
    result = outcome(binary_rows, io.BytesIO(content), "file", (3,), 1000, True)
    if isinstance(result, str):
        assert "\n" not in result
    else:
        assert result[0].shape == (len(result[1]), 3)


def location(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: c[: len(c) // 2 - 7], "cut short"),
        (lambda c: c.replace(b"1,", b"7,", 40), "7"),
        (lambda c: b"hello\n" + c, "hello"),
        (lambda c: b'"31",' + c.split(b",", 1)[1], "31"),
        (lambda c: b'"0",' + c.split(b",", 1)[1], "1 to 30"),
        (lambda c: b"\n".join(line[:-2] for line in c.splitlines()), "446"),
        (lambda c: b"", "no records"),
        (lambda c: b"\x00" * 100_000, "line 1"),
        (lambda c: c.replace(b"\n", b""), "not comma-separated"),
        (lambda c: c[:900] + b"\n" + c[900:], "446"),
    ],
)
def test_damaged_csv_is_one_line(tmp_path, spoil, says):
    x, y = build.records(60, 446, 30)
    path = location(tmp_path / "bangkok", spoil(build.rows(x, y + 1, quote=True)))
    with pytest.raises(DataError) as caught:
        load("location30", root=tmp_path)
    one_line(caught, str(path), says)


def test_truncated_tgz_is_one_line(tmp_path):
    x, y = build.records(400, 446, 30)
    path = build.tar(tmp_path / "dataset_location.tgz", {"bangkok": build.rows(x, y + 1)})
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError) as caught:
        load("location30", root=tmp_path)
    one_line(caught, str(path), "cut short")


def test_another_data_set_under_this_name_is_refused(tmp_path):
    x, y = build.records(60, 600, 100)
    np.savez(tmp_path / "texas100.npz", features=x, labels=y)
    with pytest.raises(DataError) as caught:
        load("texas100", root=tmp_path)
    one_line(caught, "(60, 600)", "6169 or 6170")


def test_archive_without_the_file_says_what_is_wanted(tmp_path):
    build.tar(tmp_path / "dataset_location.tgz", {"london": b"1,0\n"})
    with pytest.raises(DataError, match="does not hold bangkok"):
        load("location30", root=tmp_path)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"features": "x"}, "labels"),
        ({"labels": "y"}, "features"),
        ({"features": "x", "labels": "short"}, "60 records but 59 labels"),
        ({"features": "nan", "labels": "y"}, "only 0 and 1"),
        ({"features": "counts", "labels": "y"}, "only 0 and 1"),
        ({"features": "flat", "labels": "y"}, "shape"),
        ({"features": "x", "labels": "two-hot"}, "single 1"),
        ({"features": "x", "labels": "too many"}, "0 to 99"),
        ({"features": "x", "labels": "halves"}, "whole numbers"),
        ({"features": "x", "labels": "text"}, "integers"),
    ],
)
def test_wrong_npz_is_one_line(tmp_path, arrays, says):
    x, y = build.records(60, 600, 100)
    spoilt = np.where(x == 1, np.nan, 0.0)
    two_hot = np.eye(100)[y]
    two_hot[7, :2] = 1
    content = {
        "x": x,
        "y": y,
        "short": y[:-1],
        "nan": spoilt,
        "counts": x * 3,
        "flat": x.reshape(-1),
        "two-hot": two_hot,
        "too many": y + 200,
        "halves": y + 0.5,
        "text": y.astype(str),
    }
    np.savez(tmp_path / "purchase100.npz", **{name: content[what] for name, what in arrays.items()})
    with pytest.raises(DataError) as caught:
        load("purchase100", root=tmp_path)
    one_line(caught, "purchase100.npz", says)


def test_truncated_npz_is_one_line(tmp_path):
    x, y = build.records(60, 600, 100)
    path = tmp_path / "purchase100.npz"
    np.savez_compressed(path, features=x, labels=y)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError) as caught:
        load("purchase100", root=tmp_path)
    one_line(caught, str(path), "cut short")


def test_flipped_byte_in_npz_is_one_line(tmp_path):
    x, y = build.records(60, 600, 100)
    path = tmp_path / "purchase100.npz"
    np.savez(path, features=x, labels=y)
    content = bytearray(path.read_bytes())
    content[20_000] ^= 1
    path.write_bytes(content)
    assert zipfile.is_zipfile(path)
    with pytest.raises(DataError) as caught:
        load("purchase100", root=tmp_path)
    one_line(caught, "CRC")
