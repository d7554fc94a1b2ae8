"""CIFAR-10, STL-10, FER2013 and Fashion-MNIST: every form in which they are published, and damaged files."""

import gzip
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data import load
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line, outcome, same

pytestmark = pytest.mark.usefixtures("any_count")

USAGES = ["Training", "PrivateTest", "PublicTest", "Training", "Training", "PublicTest", "PrivateTest", "Training"]


@pytest.mark.parametrize("folder", ["", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_binary_batches(tmp_path, folder):
    x, y = build.cifar_batches(tmp_path / folder, build.cifar_binary, ".bin")
    data = load("cifar10", root=tmp_path)
    same(data, x, y)
    assert data.published_test == 4


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_cifar10_python_batches_of_every_protocol(tmp_path, protocol):
    x, y = build.cifar_batches(tmp_path / "cifar10", lambda a, b: build.cifar_python(a, b, protocol), "")
    same(load("cifar10", root=tmp_path), x, y)


@pytest.mark.parametrize(
    ("archive", "make", "suffix"),
    [
        ("cifar-10-binary.tar.gz", build.cifar_binary, ".bin"),
        ("cifar-10-python.tar.gz", build.cifar_python, ""),
    ],
)
def test_cifar10_archives(tmp_path, archive, make, suffix):
    x, y = build.cifar_batches(tmp_path / "raw", make, suffix)
    members = {f"cifar-10-batches/{p.name}": p.read_bytes() for p in sorted((tmp_path / "raw").iterdir(), reverse=True)}
    build.tar(tmp_path / "root" / archive, members)
    same(load("cifar10", root=tmp_path / "root"), x, y)


@pytest.mark.parametrize("picture", ["img", "image"])
@pytest.mark.parametrize(
    "names", [("train.parquet", "test.parquet"), ("plain_text/train-{}.parquet", "test-{}.parquet")]
)
def test_cifar10_parquet(tmp_path, picture, names):
    x, y = build.pictures(9, (3, 32, 32))
    folder = tmp_path / "cifar10"
    train = [folder / names[0].format(f"0000{i}-of-00002") for i in range(2)]
    if train[0] == train[1]:
        build.hub_parquet(train[0], x[:6], y[:6], picture)
    else:
        build.hub_parquet(train[0], x[:3], y[:3], picture)
        build.hub_parquet(train[1], x[3:6], y[3:6], picture)
    build.hub_parquet(folder / names[1].format("00000-of-00001"), x[6:], y[6:], picture)
    data = load("cifar10", root=tmp_path)
    same(data, x, y)
    assert data.published_test == 3


def test_pictures_reach_the_model_centred(tmp_path):
    build.cifar_batches(tmp_path, build.cifar_binary, ".bin", per=20)
    inputs = load("cifar10", root=tmp_path).inputs(torch.arange(60))
    assert inputs.dtype == torch.float32
    assert inputs.shape == (60, 3, 32, 32)
    assert inputs.abs().max() < 2.5
    assert inputs.mean().abs() < 0.2


def test_stl10_pictures_are_stored_column_by_column(tmp_path):
    x, y = build.stl(tmp_path / "stl10")
    data = load("stl10", root=tmp_path)
    same(data, x, y)
    assert data.published_test == 4


def test_stl10_archive_without_unpacking_the_unlabelled_part(tmp_path):
    x, y = build.stl(tmp_path / "raw")
    members = {f"stl10_binary/{p.name}": p.read_bytes() for p in sorted((tmp_path / "raw").iterdir())}
    path = build.tar(tmp_path / "stl10_binary.tar.gz", {**members, "stl10_binary/unlabeled_X.bin": bytes(5_000_000)})
    path.write_bytes(path.read_bytes()[:-1000])
    same(load("stl10", root=tmp_path), x, y)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["fashion_mnist", "fashion_mnist/FashionMNIST/raw"])
def test_fashion_mnist(tmp_path, packed, folder):
    x, y = build.fashion(tmp_path / folder, packed)
    data = load("fashion_mnist", root=tmp_path)
    same(data, x, y)
    assert data.published_test == 5


@pytest.mark.parametrize(
    ("file", "header"), [("fer2013.csv", "emotion,pixels,Usage"), ("icml_face_data.csv", "emotion, Usage, pixels")]
)
def test_fer2013_csv_with_its_three_usages(tmp_path, file, header):
    x, y = build.pictures(8, (1, 48, 48), classes=7)
    (tmp_path / file).write_bytes(build.fer_csv(x, y, USAGES, header))
    order = [i for usage in ("Training", "PublicTest", "PrivateTest") for i in range(8) if USAGES[i] == usage]
    data = load("fer2013", root=tmp_path)
    same(data, x[order], y[order])
    assert data.published_test == 4


def test_fer2013_folders(tmp_path):
    train = build.image_folders(tmp_path / "fer2013" / "train", build.EMOTIONS, 2, (1, 48, 48))
    test = build.image_folders(tmp_path / "fer2013" / "test", build.EMOTIONS, 1, (1, 48, 48), seed=1)
    data = load("fer2013", root=tmp_path)
    assert data.published_test == 7
    for made, rows in ((train, data.x[:14]), (test, data.x[14:])):
        assert np.array_equal(rows.numpy(), np.stack([made[key] for key in sorted(made)]))
    assert data.y[:14].tolist() == [i for name in sorted(build.EMOTIONS) for i in [build.EMOTIONS.index(name)] * 2]


def spoilt(path, spoil):
    path.write_bytes(spoil(path.read_bytes()))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: c[:-1], "3,073"),
        (lambda c: b"", "3,073"),
        (lambda c: b"\x0a" + c[1:], "0 to 9"),
        (lambda c: c[: len(c) // 2], "cut short"),
    ],
)
def test_damaged_cifar10_batch_is_one_line(tmp_path, spoil, says):
    build.cifar_batches(tmp_path, build.cifar_binary, ".bin")
    spoilt(tmp_path / "data_batch_3.bin", spoil)
    with pytest.raises(DataError) as caught:
        load("cifar10", root=tmp_path)
    one_line(caught, "data_batch_3", says)


@settings(deadline=None, max_examples=80)
@given(cut=st.integers(0, 12_000), flip=st.integers(0, 12_000), bit=st.integers(0, 7))
def test_damaged_python_batch_never_escapes(cut, flip, bit):
    from scapegoat.data.sets.cifar10 import _python_batch

    content = bytearray(build.cifar_python(*build.pictures(4, (3, 32, 32))))
    content[flip % len(content)] ^= 1 << bit
    result = outcome(_python_batch, bytes(content[: max(1, len(content) - cut)]), "file")
    if isinstance(result, str):
        assert "\n" not in result
    else:
        assert result[0].shape == (len(result[1]), 3, 32, 32)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (lambda x, y: {"img": [{"bytes": build.encoded(p)} for p in x]}, "label"),
        (lambda x, y: {"label": y.tolist()}, "img or image"),
        (lambda x, y: {"img": [{"bytes": build.encoded(p)} for p in x], "label": (y + 7).tolist()}, "0 to 9"),
        (lambda x, y: {"img": [{"bytes": build.encoded(p[:, :31])} for p in x], "label": y.tolist()}, "31 x 32"),
        (lambda x, y: {"img": [{"bytes": build.encoded(p)[:200]} for p in x], "label": y.tolist()}, "row 0"),
        (lambda x, y: {"img": [{"bytes": b"GIF89a"} for p in x], "label": y.tolist()}, "row 0"),
        (lambda x, y: {"img": [{"bytes": None, "path": "a"} for p in x], "label": y.tolist()}, "img"),
        (lambda x, y: {"img": [{"path": "a.png"} for p in x], "label": y.tolist()}, "bytes"),
        (lambda x, y: {"img": [build.encoded(p) for p in x], "label": [None, *y.tolist()[1:]]}, "missing"),
        (lambda x, y: {"img": [build.encoded(p) for p in x], "label": ["cat"] * len(y)}, "is text"),
    ],
)
def test_wrong_cifar10_parquet_is_one_line(tmp_path, columns, says):
    x, y = build.pictures(4, (3, 32, 32))
    build.hub_parquet(tmp_path / "test.parquet", x, y)
    build.parquet(tmp_path / "train.parquet", columns(x, y))
    with pytest.raises(DataError) as caught:
        load("cifar10", root=tmp_path)
    one_line(caught, "train.parquet", says)


@pytest.mark.parametrize("spoil", [lambda c: c[:-20], lambda c: c[:200], lambda c: b"", lambda c: b"PAR1" + bytes(99)])
def test_damaged_parquet_is_one_line(tmp_path, spoil):
    x, y = build.pictures(4, (3, 32, 32))
    for split in ("train", "test"):
        build.hub_parquet(tmp_path / f"{split}.parquet", x, y)
    spoilt(tmp_path / "train.parquet", spoil)
    with pytest.raises(DataError) as caught:
        load("cifar10", root=tmp_path)
    one_line(caught, "train.parquet", "not a whole Parquet file")


@pytest.mark.parametrize(
    ("file", "spoil", "says"),
    [
        ("train_X.bin", lambda c: c[:-1], "27,648"),
        ("train_X.bin", lambda c: c[:27_648], "1 pictures but 6 labels"),
        ("train_y.bin", lambda c: b"\x00" + c[1:], "1 to 10"),
        ("test_y.bin", lambda c: b"\x0b" + c[1:], "1 to 10"),
        ("test_y.bin", lambda c: c[:-1], "4 pictures but 3 labels"),
    ],
)
def test_damaged_stl10_is_one_line(tmp_path, file, spoil, says):
    build.stl(tmp_path)
    spoilt(tmp_path / file, spoil)
    with pytest.raises(DataError) as caught:
        load("stl10", root=tmp_path)
    one_line(caught, says)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("file", "spoil", "says"),
    [
        ("train-images-idx3", lambda c: c[:-1], "cut short"),
        ("train-images-idx3", lambda c: c + b"\x00", "goes on"),
        ("train-images-idx3", lambda c: c[:3] + b"\x01" + c[4:], "00000803"),
        ("train-images-idx3", lambda c: b"\x00\x00\x0d\x03" + c[4:], "00000803"),
        ("train-images-idx3", lambda c: c[:4] + struct.pack(">III", 2_000_000_000, 28, 28) + c[16:], "claims"),
        ("train-images-idx3", lambda c: c[:4] + struct.pack(">III", 60_000, 28, 28) + c[16:], "cut short"),
        ("train-images-idx3", lambda c: c[:4] + struct.pack(">III", 3, 56, 56) + c[16:], "claims"),
        ("train-images-idx3", lambda c: c[:2], "cut short"),
        ("train-labels-idx1", lambda c: c[:-1] + b"\x0a", "0 to 9"),
        ("train-labels-idx1", lambda c: c[:7] + b"\x0b" + c[8:-1], "12 pictures but 11 labels"),
        ("t10k-images-idx3", lambda c: b"", "cut short"),
    ],
)
def test_damaged_fashion_mnist_is_one_line(tmp_path, packed, file, spoil, says):
    build.fashion(tmp_path, packed)
    path = tmp_path / f"{file}-ubyte{'.gz' if packed else ''}"
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    path.write_bytes(gzip.compress(spoil(content)) if packed else spoil(content))
    with pytest.raises(DataError) as caught:
        load("fashion_mnist", root=tmp_path)
    one_line(caught, says)


def test_truncated_gzip_is_one_line(tmp_path):
    build.fashion(tmp_path)
    spoilt(tmp_path / "train-images-idx3-ubyte.gz", lambda c: c[:-100])
    with pytest.raises(DataError) as caught:
        load("fashion_mnist", root=tmp_path)
    one_line(caught, "train-images-idx3-ubyte.gz", "cut short")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: c[:-300], "line 9"),
        (lambda c: c.replace(b"PrivateTest", b"Validation"), "Validation"),
        (lambda c: c.replace(b"emotion,", b"feeling,", 1), "emotion,pixels,Usage"),
        (lambda c: c.replace(b"\n0,", b"\n7,", 1), "0 to 6"),
        (lambda c: c.replace(b"\n0,", b"\n0,256 ", 1), "pixels"),
        (lambda c: c.replace(b" 17 ", b" 300 "), "300"),
        (lambda c: c.replace(b" 17 ", b" -17 "), "not numbers"),
        (lambda c: c.splitlines(True)[0], "no faces"),
        (lambda c: b"\xff\xfe" + c, "fer2013.csv"),
        (lambda c: b"", "emotion,pixels,Usage"),
        (lambda c: c + b'3,"12 13', "fer2013.csv"),
    ],
)
def test_damaged_fer2013_csv_is_one_line(tmp_path, spoil, says):
    x, y = build.pictures(8, (1, 48, 48), classes=7)
    (tmp_path / "fer2013.csv").write_bytes(spoil(build.fer_csv(x, y, USAGES)))
    with pytest.raises(DataError) as caught:
        load("fer2013", root=tmp_path)
    one_line(caught, says)


def test_fer2013_folder_with_an_unknown_emotion_is_refused(tmp_path):
    for split in ("train", "test"):
        build.image_folders(tmp_path / split, ["happy", "bored"], 1, (1, 48, 48))
    with pytest.raises(DataError, match="bored: is not an emotion"):
        load("fer2013", root=tmp_path)
