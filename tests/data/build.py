"""Small files in the formats in which the data sets are published."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np
from PIL import Image

EMOTIONS = ["angry", "disgust", "fear", "happy", "sad", "surprise", "neutral"]


def records(count, width, classes, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (count, width), dtype=np.uint8)
    y = np.arange(count) % classes
    return x, y


def rows(x, labels=None, quote=False):
    lines = [",".join(map(str, row)) for row in x.tolist()]
    if labels is not None:
        mark = '"' if quote else ""
        lines = [f"{mark}{label}{mark},{line}" for label, line in zip(labels, lines, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def pictures(count, shape, classes=10, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count) % classes


def cifar_binary(x, y):
    return b"".join(bytes([label]) + picture.tobytes() for picture, label in zip(x, y.tolist(), strict=True))


def cifar_python(x, y, protocol=2):
    batch = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": y.tolist(),
        b"data": x.reshape(len(x), -1),
        b"filenames": [b"picture_%d.png" % i for i in range(len(x))],
    }
    return pickle.dumps(batch, protocol)


def cifar_batches(folder, make, suffix, per=4):
    """Six batches of `per` pictures each; returns the pictures and labels in the order of the data set."""
    folder.mkdir(parents=True, exist_ok=True)
    xs, ys = [], []
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        x, y = pictures(per, (3, 32, 32), seed=number)
        (folder / f"{name}{suffix}").write_bytes(make(x, y))
        xs.append(x)
        ys.append(y)
    return np.concatenate(xs), np.concatenate(ys)


def encoded(picture, kind="PNG"):
    """A picture [channels, height, width] as the bytes of a file."""
    pixels = picture[0] if picture.shape[0] == 1 else picture.transpose(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def parquet(path, columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def hub_parquet(path, x, y, picture="img", label="label"):
    """As data hubs publish pictures: a structure of bytes and path, and a label."""
    cells = [{"bytes": encoded(p), "path": None} for p in x]
    return parquet(path, {picture: cells, label: y.tolist()})


def idx(values):
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def fashion(folder, packed=True, train=12, test=5):
    folder.mkdir(parents=True, exist_ok=True)
    xs, ys = [], []
    for seed, (split, count) in enumerate((("train", train), ("t10k", test))):
        x, y = pictures(count, (28, 28), seed=seed)
        for what, values in (("images-idx3", x), ("labels-idx1", y.astype(np.uint8))):
            content = gzip.compress(idx(values)) if packed else idx(values)
            (folder / f"{split}-{what}-ubyte{'.gz' if packed else ''}").write_bytes(content)
        xs.append(x)
        ys.append(y)
    return np.concatenate(xs)[:, None], np.concatenate(ys)


def stl_pictures(x):
    """Column by column."""
    return x.transpose(0, 1, 3, 2).tobytes()


def stl(folder, train=6, test=4):
    folder.mkdir(parents=True, exist_ok=True)
    xs, ys = [], []
    for seed, (split, count) in enumerate((("train", train), ("test", test))):
        x, y = pictures(count, (3, 96, 96), seed=seed)
        (folder / f"{split}_X.bin").write_bytes(stl_pictures(x))
        (folder / f"{split}_y.bin").write_bytes((y + 1).astype(np.uint8).tobytes())
        xs.append(x)
        ys.append(y)
    return np.concatenate(xs), np.concatenate(ys)


def fer_csv(x, y, usages, header="emotion,pixels,Usage"):
    lines = [header]
    for picture, label, usage in zip(x, y.tolist(), usages, strict=True):
        pixels = " ".join(map(str, picture.reshape(-1).tolist()))
        cells = {"emotion": str(label), "pixels": pixels, "usage": usage}
        lines.append(",".join(cells[name.strip().lower()] for name in header.split(",")))
    return ("\n".join(lines) + "\n").encode()


def image_folders(folder, classes, per=3, shape=(1, 8, 8), kind="PNG", seed=0):
    rng = np.random.default_rng(seed)
    made = {}
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(per):
            picture = rng.integers(0, 256, shape, dtype=np.uint8)
            (folder / name / f"{number}.{kind.lower()}").write_bytes(encoded(picture, kind))
            made[name, number] = picture
    return made
