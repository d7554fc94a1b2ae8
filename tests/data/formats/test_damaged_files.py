"""Files of every format with bytes changed, lost and repeated at random: read as something, or refused in one line.

SCAPEGOAT_DAMAGES=1000 damages each of them that many times.
"""

import gzip
import os

import numpy as np
import pytest

from scapegoat.data import load
from scapegoat.errors import InputError
from tests.data import build

pytestmark = pytest.mark.usefixtures("any_count")

TRIALS = int(os.environ.get("SCAPEGOAT_DAMAGES", "25"))
# Found by many more trials: rows whose text the dictionary does not have.
FOUND = {"table": [452]}


def npz(folder):
    x, y = build.records(12, 5, 3)
    np.savez(folder / "a.npz", x=x.astype(np.float32), y=y)
    return f"npz:{folder}/a.npz", [folder / "a.npz"]


def packed_npz(folder):
    x, y = build.records(12, 5, 3)
    np.savez_compressed(folder / "a.npz", x=np.asfortranarray(x.astype(np.int64)), y=np.array(["a", "bb", "c"])[y])
    return f"npz:{folder}/a.npz", [folder / "a.npz"]


def one_hot_npz(folder):
    x, y = build.records(12, 5, 3)
    np.savez(folder / "a.npz", x=x, y=np.eye(3)[y])
    return f"npz:{folder}/a.npz", [folder / "a.npz"]


def table(folder):
    columns = {"label": ["a", "b"] * 20, "u": np.arange(40), "v": np.linspace(0, 1, 40), "w": [True, False] * 20}
    return f"parquet:{folder}/a.parquet", [build.parquet(folder / "a.parquet", columns)]


def table_of_pictures(folder):
    x, y = build.pictures(8, (3, 8, 8), 4)
    return f"parquet:{folder}/a.parquet", [build.hub_parquet(folder / "a.parquet", x, y)]


def images(kind):
    def make(folder):
        build.image_folders(folder, ["a", "b"], 2, (3, 8, 8), kind)
        return f"images:{folder}", sorted(path for path in folder.rglob("*.*") if path.is_file())

    make.__name__ = f"images_{kind.lower()}"
    return make


def cifar_binary(folder):
    build.cifar_batches(folder, build.cifar_binary, ".bin")
    return "cifar10", sorted(folder.iterdir())


def cifar_python(protocol):
    def make(folder):
        build.cifar_batches(folder, lambda x, y: build.cifar_python(x, y, protocol), "", 1)
        return "cifar10", sorted(folder.iterdir())

    make.__name__ = f"cifar_python_{protocol}"
    return make


def cifar_archive(folder):
    x, y = build.pictures(2, (3, 32, 32))
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    members = {f"cifar-10-batches-bin/{name}": build.cifar_binary(x, y) for name in names}
    return "cifar10", [build.tar(folder / "cifar-10-binary.tar.gz", members)]


def unpacked_archive(folder):
    _, (path,) = records_archive(folder)
    path.write_bytes(gzip.decompress(path.read_bytes()))
    return "location30", [path]


def records_archive(folder):
    x, y = build.records(6, 446, 30)
    return "location30", [build.tar(folder / "dataset_location.tgz", {"bangkok": build.rows(x, y + 1, quote=True)})]


def records_text(folder):
    x, y = build.records(6, 446, 30)
    (folder / "bangkok").write_bytes(build.rows(x, y + 1))
    return "location30", [folder / "bangkok"]


def two_texts(folder):
    x, y = build.records(3, 6169, 100)
    (folder / "feats").write_bytes(build.rows(x))
    (folder / "labels").write_bytes("".join(f"{label}\n" for label in y + 1).encode())
    return "texas100", [folder / "feats", folder / "labels"]


def records_npz(folder):
    x, y = build.records(6, 600, 100)
    np.savez_compressed(folder / "purchase100.npz", features=x, labels=np.eye(100)[y])
    return "purchase100", [folder / "purchase100.npz"]


def idx(packed):
    def make(folder):
        build.fashion(folder, packed, 3, 2)
        return "fashion_mnist", sorted(folder.iterdir())

    make.__name__ = f"idx_{'packed' if packed else 'plain'}"
    return make


def stl(folder):
    build.stl(folder, 2, 1)
    return "stl10", sorted(folder.iterdir())


def faces(folder):
    x, y = build.pictures(6, (48, 48), 7)
    (folder / "fer2013.csv").write_bytes(build.fer_csv(x, y, ["Training"] * 4 + ["PublicTest", "PrivateTest"]))
    return "fer2013", [folder / "fer2013.csv"]


def comma_separated(folder):
    lines = [f"{i},{'abc'[i % 3]},{i / 7},{'' if i == 5 else 'x'},{i % 2}" for i in range(20)]
    (folder / "a.csv").write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return f"csv:{folder}/a.csv", [folder / "a.csv"]


def packed_comma_separated(folder):
    name, (path,) = comma_separated(folder)
    path.write_bytes(gzip.compress(path.read_bytes()))
    return name, [path]


FORMATS = [
    comma_separated,
    packed_comma_separated,
    npz,
    packed_npz,
    one_hot_npz,
    table,
    table_of_pictures,
    *(images(kind) for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")),
    cifar_binary,
    *(cifar_python(protocol) for protocol in (0, 2, 5)),
    cifar_archive,
    unpacked_archive,
    records_archive,
    records_text,
    two_texts,
    records_npz,
    *(idx(packed) for packed in (True, False)),
    stl,
    faces,
]


def damaged(content, rng):
    """One to four changes: bytes overwritten, cut out, repeated, moved, or the rest lost; headers more often."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        size = len(content)
        if not size:
            break
        ends = [
            int(rng.integers(size)),
            int(rng.integers(min(size, 256))),
            size - 1 - int(rng.integers(min(size, 256))),
        ]
        at = ends[int(rng.integers(3))]
        length = int(rng.integers(1, 9))
        match int(rng.integers(7)):
            case 0:
                content[at] ^= 1 << int(rng.integers(8))
            case 1:
                content[at : at + length] = rng.bytes(min(length, size - at))
            case 2:
                content[at : at + length] = bytes([int(rng.choice([0, 255, 127, 128]))]) * min(length, size - at)
            case 3:
                del content[at : at + length]
            case 4:
                del content[at:]
            case 5:
                content[at:at] = content[at : at + 64 * length]
            case 6:
                other = int(rng.integers(size))
                content[at : at + length] = content[other : other + length]
    return bytes(content)


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_damaged_file_is_read_or_refused_in_one_line(tmp_path, make, recwarn):
    name, files = make(tmp_path)
    options = {"missing": "zero"} if name.startswith("csv:") else {}
    assert len(load(name, root=tmp_path, **options)) > 1
    refused = []
    for trial in [*FOUND.get(make.__name__, []), *range(TRIALS)]:
        rng = np.random.default_rng([trial, *make.__name__.encode()])
        path = files[int(rng.integers(len(files)))]
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, rng))
        try:
            load(name, root=tmp_path, **options)
        except InputError as error:
            refused.append(str(error))
        except Exception as error:
            error.add_note(f"trial {trial} of {make.__name__}")
            raise
        path.write_bytes(whole)
    assert refused, "nothing was damaged"
    assert not [message for message in refused if "\n" in message]
