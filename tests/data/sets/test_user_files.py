"""A user's own data: npz:, parquet: and images:."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat.data import get, load, registry
from scapegoat.data.files import cache
from scapegoat.errors import DataError, InputError
from tests.data import build
from tests.data.sets.test_published_records import one_line


def table(count=20, width=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(3, 2, (count, width)).astype(np.float32), np.arange(count) % 3


def labelled(folder, kind, y, x=None):
    """The name of a data set with these labels."""
    x = np.arange(2.0 * len(y)).reshape(len(y), 2) if x is None else x
    if kind == "npz":
        np.savez(folder / "a.npz", x=x, y=y)
    else:
        build.parquet(folder / "a.parquet", {"f0": x[:, 0], "f1": x[:, 1], "label": y})
    return f"{kind}:{folder}/a.{kind}"


@pytest.mark.parametrize("names", [("x", "y"), ("features", "labels"), ("X", "Y")])
def test_npz_by_its_usual_names(tmp_path, names):
    x, y = table()
    np.savez(tmp_path / "mine.npz", **dict(zip(names, (x, y), strict=True)))
    data = load(f"npz:{tmp_path / 'mine.npz'}")
    assert torch.equal(data.x, torch.from_numpy(x))
    assert data.y.tolist() == y.tolist()
    assert data.classes == 3
    plain = load(f"npz:{tmp_path}/mine.npz", standardize=False)
    assert torch.equal(plain.inputs(torch.arange(3)), data.x[:3])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([10, 20, 10, 30]), [0, 1, 0, 2]),
        (np.array(["no", "yes", "no", "no"]), [0, 1, 0, 0]),
        (np.array([1.0, 2.0, 2.0, 1.0]), [0, 1, 1, 0]),
        (np.array([True, False, True, True]), [1, 0, 1, 1]),
        (np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]), [1, 0, 1, 0]),
        (np.array([[4], [5], [4], [4]]), [0, 1, 0, 0]),
    ],
)
def test_labels_of_any_kind_are_numbered_from_zero(tmp_path, labels, expected):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=labels)
    assert load(f"npz:{tmp_path}/a.npz").y.tolist() == expected


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_with_classes_labels_stay_as_they_are(tmp_path, kind):
    name = labelled(tmp_path, kind, np.array([0, 2, 4, 2]))
    data = load(name, classes=6)
    assert data.y.tolist() == [0, 2, 4, 2]
    assert data.classes == 6
    assert not [note for note in data.notes if "classes" in note]


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("labels", "options", "says"),
    [
        (np.array([0, 1, 99, 1]), {"classes": 3}, ("record 2", "99", "0 to 2")),
        (np.array([0, 1, 1, -1]), {"classes": 3}, ("record 3", "-1", "0 to 2")),
        (np.array([0, -1, 1, -1]), {}, ("record 1", "-1", "from 0")),
        (np.array(["a", "b", "a", "b"]), {"classes": 2}, ("text", "classes")),
    ],
)
def test_a_label_that_is_no_class_is_refused_with_its_record(tmp_path, kind, labels, options, says):
    name = labelled(tmp_path, kind, labels)
    with pytest.raises(DataError) as caught:
        load(name, **options)
    one_line(caught, f"a.{kind}", *says)


def test_one_hot_labels_of_another_width_than_classes_are_refused(tmp_path):
    name = labelled(tmp_path, "npz", np.eye(4))
    assert load(name, classes=4).classes == 4
    with pytest.raises(DataError) as caught:
        load(name, classes=5)
    one_line(caught, "4 classes", "is 5")


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_numbers_that_become_other_classes_are_told(tmp_path, kind):
    data = load(labelled(tmp_path, kind, np.array([1, 99, 1, 2])))
    assert data.y.tolist() == [0, 2, 0, 1]
    (said,) = [note for note in data.notes if "classes" in note]
    assert "labels 1, 2, 99 are taken as classes 0 to 2" in said
    assert "\n" not in said


def test_a_renumbering_is_told_of_records_from_the_cache_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "WORTH_KEEPING", 0)
    name = labelled(tmp_path, "npz", np.array([5, 7, 5, 7]))
    first, second = load(name).notes, load(name).notes
    assert "5, 7" in first[0]
    assert first == second
    assert list(cache.folder().iterdir())


@pytest.mark.parametrize(
    "labels", [np.array([0, 1, 2, 1]), np.array(["a", "b", "a", "b"]), np.array([True, False] * 2)]
)
def test_labels_that_keep_their_meaning_are_not_spoken_of(tmp_path, labels):
    assert not [note for note in load(labelled(tmp_path, "npz", labels)).notes if "label" in note]


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_tokens_stay_integers_and_other_integers_become_floats(tmp_path, kind):
    x = np.array([[0, 7], [3, 2**40], [1, 1], [5, 6]])
    name = labelled(tmp_path, kind, np.array([0, 1, 0, 1]), x)
    ids = load(name, tokens=True).inputs(torch.arange(4))
    assert ids.dtype == torch.int64
    assert ids.tolist() == x.tolist()
    assert load(name, standardize=False).inputs(torch.arange(4)).dtype == torch.float32


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.array([[0, 1], [2, 3], [4, -5], [6, 7]]), "2"),
        (np.array([[0.0, 1], [2, 3], [4, 5], [6, 7]]), "integers are expected"),
        (np.array([[0, 1], [2**64 - 1, 3], [4, 5], [6, 7]], dtype=np.uint64), "1"),
    ],
)
def test_values_that_are_no_tokens_are_one_line(tmp_path, kind, x, says):
    with pytest.raises(DataError) as caught:
        load(labelled(tmp_path, kind, np.array([0, 1, 0, 1]), x), tokens=True)
    one_line(caught, f"a.{kind}", "token", says)


def test_pictures_are_no_tokens(tmp_path):
    x, y = build.pictures(4, (3, 8, 8), classes=2)
    build.hub_parquet(tmp_path / "a.parquet", x, y)
    with pytest.raises(DataError) as caught:
        load(f"parquet:{tmp_path}/a.parquet", tokens=True)
    one_line(caught, "pictures", "tokens")


@pytest.mark.parametrize("shape", [(4, 7, 3), (4, 2, 3, 4, 5)])
def test_records_may_have_any_shape(tmp_path, shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    data = load(labelled(tmp_path, "npz", np.array([0, 1, 0, 1]), x))
    assert data.input_shape == shape[1:]
    assert np.array_equal(data.inputs(torch.arange(4)).numpy(), x)


@pytest.mark.parametrize(("shape", "options"), [((4, 7, 3), {}), ((4, 7), {"tokens": True})])
def test_only_records_of_features_are_standardized(tmp_path, shape, options):
    x = np.arange(np.prod(shape)).reshape(shape)
    data = load(labelled(tmp_path, "npz", np.array([0, 1, 0, 1]), x), **options)
    assert np.array_equal(data.inputs(torch.arange(4)).numpy(), x)
    assert data.notes == ()


def test_given_records_are_named_as_such_and_not_by_their_file(tmp_path):
    np.savez(tmp_path / "0123.npz", x=np.zeros((4, 2)), y=[0, 1, -1, 1])
    with pytest.raises(DataError) as caught:
        load(f"given:{tmp_path}/0123.npz")
    one_line(caught, "the given records (y): record 2")
    assert "0123" not in str(caught.value)
    np.savez(tmp_path / "0123.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    assert load(f"given:{tmp_path}/0123.npz").name == "the given records"


def test_bytes_stay_bytes_and_pictures_are_scaled(tmp_path):
    x, y = build.pictures(10, (3, 16, 16), classes=2)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    data = load(f"npz:{tmp_path}/a.npz")
    assert data.x.dtype == torch.uint8
    inputs = data.inputs(torch.arange(10))
    assert inputs.min() >= -1
    assert inputs.max() <= 1


def test_a_constant_feature_is_shifted_but_not_scaled(tmp_path):
    x, y = table(200)
    x[:, 2] = 7
    np.savez(tmp_path / "a.npz", x=x, y=y)
    inputs = load(f"npz:{tmp_path}/a.npz").inputs(torch.arange(200))
    assert inputs.mean(0).abs().max() < 1e-4
    assert torch.allclose(inputs.std(0, correction=0)[[0, 1, 3, 4]], torch.ones(4), atol=1e-4)
    assert inputs[:, 2].abs().max() < 1e-5


@settings(deadline=None, max_examples=40)
@given(
    x=st.integers(1, 6).flatmap(
        lambda w: st.lists(
            st.lists(st.floats(-1e6, 1e6, width=32), min_size=w, max_size=w),
            min_size=4,
            max_size=12,
        )
    ),
    dtype=st.sampled_from(["<f4", ">f4", "<f8", ">f8"]),
    order=st.sampled_from("CF"),
)
def test_npz_of_any_byte_order_reads_as_numpy_reads_it(tmp_path_factory, x, dtype, order):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    stored = np.asarray(x, dtype=dtype, order=order)
    np.savez(path, x=stored, y=np.arange(len(x)) % 2)
    assert np.array_equal(load(f"npz:{path}").x.numpy(), stored.astype(np.float32))


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.full((4, 2), np.nan), np.array([0, 1, 0, 1]), "record 0"),
        (np.array([[0.0], [1.0], [np.inf], [2.0]]), np.array([0, 1, 0, 1]), "record 2"),
        (np.full((4, 2), 1e300), np.array([0, 1, 0, 1]), "float32"),
        (np.zeros(4), np.array([0, 1, 0, 1]), "[records, features]"),
        (np.zeros((4, 8, 8, 3)), np.array([0, 1, 0, 1]), "channels come last"),
        (np.zeros((4, 0)), np.array([0, 1, 0, 1]), "holds nothing"),
        (np.zeros((5, 2)), np.array([0, 1, 0, 1]), "5 records but 4 labels"),
        (np.zeros((4, 2)), np.array([0, 0, 0, 0]), "two classes"),
        (np.zeros((4, 2)), np.array([0.5, 1, 0, 1]), "0.5"),
        (np.zeros((4, 2)), np.array([0.1, 0.2, 0.3, 0.4]), "whole numbers"),
        (np.zeros((9, 2)), np.arange(9), "column of classes"),
        (np.zeros((4, 2), complex), np.array([0, 1, 0, 1]), "complex"),
        (np.array([["a"]] * 4), np.array([0, 1, 0, 1]), "numbers are expected"),
        (np.zeros((0, 2)), np.zeros(0, int), "holds nothing"),
    ],
)
def test_npz_that_cannot_be_a_data_set_is_one_line(tmp_path, x, y, says):
    np.savez(tmp_path / "a.npz", x=x, y=y)
    with pytest.raises(DataError) as caught:
        load(f"npz:{tmp_path}/a.npz")
    one_line(caught, "a.npz", says)


def test_parquet_of_numbers(tmp_path):
    x, y = table(50)
    columns = {f"f{i}": x[:, i] for i in range(4)} | {"count": (x[:, 4] > 3).tolist(), "label": y}
    build.parquet(tmp_path / "a.parquet", columns)
    data = load(f"parquet:{tmp_path}/a.parquet")
    assert np.array_equal(data.x.numpy()[:, :4], x[:, :4])
    assert data.x[:, 4].tolist() == (x[:, 4] > 3).astype(float).tolist()
    assert data.y.tolist() == y.tolist()
    assert data.inputs(torch.arange(50)).mean(0).abs().max() < 1e-4
    plain = load(f"parquet:{tmp_path}/a.parquet", standardize=False)
    assert torch.equal(plain.inputs(torch.arange(50)), plain.x)


def test_parquet_label_by_name_and_text_classes(tmp_path):
    build.parquet(tmp_path / "a.parquet", {"age": [31, 42, 53, 64], "diagnosis": ["flu", "cold", "flu", "flu"]})
    data = load(f"parquet:{tmp_path}/a.parquet", label="diagnosis")
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.x.tolist() == [[31], [42], [53], [64]]


def test_parquet_folder_is_read_in_the_order_of_names(tmp_path):
    for part in (1, 0):
        build.parquet(tmp_path / f"part-{part}.parquet", {"a": [part * 10.0, part * 10 + 1.0], "label": [0, 1]})
    assert load(f"parquet:{tmp_path}").x.flatten().tolist() == [0, 1, 10, 11]


@pytest.mark.parametrize("as_structure", [True, False])
def test_parquet_of_pictures(tmp_path, as_structure):
    x, y = build.pictures(6, (3, 10, 12), classes=2)
    cells = [{"bytes": build.encoded(p), "path": "x"} if as_structure else build.encoded(p) for p in x]
    build.parquet(tmp_path / "a.parquet", {"image": cells, "label": y})
    assert np.array_equal(load(f"parquet:{tmp_path}/a.parquet").x.numpy(), x)
    assert load(f"parquet:{tmp_path}/a.parquet", size=5).input_shape == (3, 5, 5)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"a": [1, 2], "b": [0, 1]}, {}, "the columns are a, b"),
        ({"a": [1, 2], "label": [0, 1]}, {"label": "kind"}, "kind"),
        ({"a": [1, None], "label": [0, 1]}, {}, "missing"),
        ({"a": [1.0, float("nan")], "label": [0, 1]}, {}, "missing values: a 1 of 2 rows"),
        ({"a": [1.0, float("inf")], "label": [0, 1]}, {}, "row 1"),
        ({"a": ["x", "y"], "label": [0, 1]}, {"tokens": True}, "is text"),
        ({"a": [[1], [2]], "label": [0, 1]}, {}, "list"),
        ({"label": [0, 1]}, {}, "no column besides"),
        ({"a": [1, 2], "label": [0, 0]}, {}, "two classes"),
        ({"a": [1, 2, 3, 4, 5], "label": [0.1, 1.2, 2.3, 3.4, 4.5]}, {}, "whole numbers"),
        ({"image": ["a.png", "b.png"], "label": [0, 1]}, {}, "encoded pictures"),
        ({"a": [1, 2], "label": [0, 1]}, {"image": "photo"}, "photo"),
    ],
)
def test_parquet_that_cannot_be_a_data_set_is_one_line(tmp_path, columns, options, says):
    build.parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(DataError) as caught:
        load(f"parquet:{tmp_path}/a.parquet", **options)
    one_line(caught, "a.parquet", says)


@pytest.mark.parametrize(("shape", "kind"), [((1, 8, 9), "PNG"), ((3, 8, 9), "PNG"), ((3, 8, 9), "BMP")])
def test_images_a_folder_a_class(tmp_path, shape, kind):
    made = build.image_folders(tmp_path / "photos", ["dog", "cat"], 3, shape, kind)
    (tmp_path / "photos" / "cat" / "notes.txt").write_text("not a picture")
    data = load(f"images:{tmp_path}/photos")
    assert np.array_equal(data.x.numpy(), np.stack([made[key] for key in sorted(made)]))
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1]


def test_images_with_a_test_set_of_their_own(tmp_path):
    build.image_folders(tmp_path / "train", ["a", "b"], 3)
    build.image_folders(tmp_path / "test", ["a", "b"], 1)
    data = load(f"images:{tmp_path}")
    assert len(data) == 8
    assert data.published_test == 2


def test_images_of_several_sizes_need_a_size(tmp_path):
    build.image_folders(tmp_path, ["a"], 2, (3, 8, 8))
    build.image_folders(tmp_path, ["b"], 2, (3, 9, 8))
    with pytest.raises(DataError) as caught:
        load(f"images:{tmp_path}")
    one_line(caught, "0.png", "9 x 8", "one size")
    assert load(f"images:{tmp_path}", size=4).input_shape == (3, 4, 4)
    assert load(f"images:{tmp_path}", size=(4, 6), colour="gray").input_shape == (1, 4, 6)


def test_images_keep_colour_where_any_has_it(tmp_path):
    build.image_folders(tmp_path, ["a"], 2, (1, 8, 8))
    build.image_folders(tmp_path, ["b"], 2, (3, 8, 8))
    assert load(f"images:{tmp_path}").input_shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: (p / "a" / "0.png").write_bytes(b"hello"), "not a picture"),
        (lambda p: (p / "a" / "0.png").write_bytes((p / "a" / "0.png").read_bytes()[:60]), "0.png"),
        (lambda p: [f.unlink() for f in (p / "a").iterdir()], "no pictures"),
        (lambda p: (p / "a").rename(p.parent / "elsewhere"), "two classes"),
    ],
)
def test_damaged_images_are_one_line(tmp_path, spoil, says):
    folder = tmp_path / "photos"
    build.image_folders(folder, ["a", "b"], 2)
    spoil(folder)
    with pytest.raises(DataError) as caught:
        load(f"images:{folder}")
    one_line(caught, says)


def test_a_file_is_looked_for_here_then_in_the_roots(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    assert len(load("npz:a.npz", root=tmp_path)) == 4
    with pytest.raises(DataError) as caught:
        load("npz:b.npz", root=tmp_path)
    one_line(caught, "b.npz", "no such file", str(tmp_path))


@pytest.mark.parametrize("kind", ["npz", "parquet", "images"])
def test_fingerprint_follows_the_content_not_the_place(tmp_path, kind):
    def make(folder, seed):
        x, y = table(seed=seed)
        folder.mkdir()
        if kind == "npz":
            np.savez(folder / "d", x=x, y=y)
            return f"npz:{folder}/d.npz"
        if kind == "parquet":
            return f"parquet:{build.parquet(folder / 'd.parquet', {'a': x[:, 0], 'label': y})}"
        build.image_folders(folder, ["a", "b"], 2, seed=seed)
        return f"images:{folder}"

    names = [make(tmp_path / str(i), seed) for i, seed in enumerate((0, 0, 1))]
    marks = [get(name).fingerprint([]) for name in names]
    assert marks[0] == marks[1] != marks[2]
    assert get("hospital").fingerprint([]) is None


def test_fingerprint_sees_a_renamed_picture(tmp_path):
    build.image_folders(tmp_path, ["a", "b"], 2)
    before = get(f"images:{tmp_path}").fingerprint([])
    (tmp_path / "a" / "0.png").rename(tmp_path / "b" / "9.png")
    assert get(f"images:{tmp_path}").fingerprint([]) != before


def test_own_data_in_a_spec():
    spec = registry.parse({"name": "npz:some/file.npz", "train": 100})
    assert spec.canonical()["path"] == "some/file.npz"
    assert spec.canonical()["name"] == "npz"
    with pytest.raises(InputError, match="path"):
        get("npz")
    with pytest.raises(InputError, match="not a data set"):
        get("xls")
