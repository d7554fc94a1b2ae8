"""Tables that people bring: numbers, text and missing values, as CSV, Parquet or arrays."""

import csv
import gzip
import io

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scapegoat.data import get, load, registry
from scapegoat.errors import DataError, InputError
from tests.data import build
from tests.data.sets.test_published_records import one_line
from tests.reference import tables as reference

NAMES = ("carat", "cut", "depth", "grade")


def written(path, rows, names, separator=",", packed=False):
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator)
    writer.writerow(names)
    writer.writerows([["" if row[name] is None else row[name] for name in names] for row in rows])
    content = stream.getvalue().encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def diamonds(path, count=60, seed=0, lacking=0.0, **options):
    """A table as Diamonds is one: numbers and text, `x`, `y`, `z` measurements, row numbers without a name."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        carat = round(float(rng.uniform(0.2, 2)), 2)
        row = {
            "": number,
            "carat": carat,
            "cut": str(rng.choice(["Fair", "Good", "Ideal"])),
            "color": str(rng.choice(list("DEF"))),
            "price": int(4000 * carat),
            "x": round(4 * carat, 2),
            "y": round(4.1 * carat, 2),
        }
        if rng.random() < lacking:
            row[str(rng.choice(["carat", "color"]))] = None
        rows.append(row)
    return rows, written(path, rows, list(rows[0]), **options)


cells = {
    "carat": st.floats(-100, 100, width=32).map(float),
    "cut": st.sampled_from(["Fair", "Good", "Very Good", "a,b", 'say "x"']),
    "depth": st.integers(-(10**6), 10**6),
    "grade": st.sampled_from(["I", "II", "10%", "ä"]),
}
row = st.fixed_dictionaries({name: cell | st.none() for name, cell in cells.items()})


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(row, min_size=4, max_size=14), missing=st.sampled_from(["drop", "mean", "median", "zero"]))
def test_a_table_is_encoded_as_cell_by_cell(tmp_path_factory, rows, missing):
    folder = tmp_path_factory.mktemp("table")
    rows = [{**row, "label": "yes" if i % 2 else "no"} for i, row in enumerate(rows)]
    assume(all(any(row[name] is not None for row in rows) for name in NAMES))
    expected, kept = reference.features(rows, NAMES, missing)
    assume(len({i % 2 for i in kept}) == 2)
    path = written(folder / "a.csv", rows, [*NAMES, "label"])
    data = load(str(path), missing=missing)
    assert np.allclose(data.x.numpy(), np.array(expected, dtype=np.float32), rtol=1e-6)
    assert data.y.tolist() == [i % 2 for i in kept]


def test_the_format_makes_no_difference_to_what_the_model_sees(tmp_path):
    rng = np.random.default_rng(1)
    x, y = rng.normal(5, 3, (40, 3)).astype(np.float32), np.arange(40) % 4
    rows = [{"a": float(r[0]), "b": float(r[1]), "c": float(r[2]), "label": int(m)} for r, m in zip(x, y, strict=True)]
    written(tmp_path / "a.csv", rows, ["a", "b", "c", "label"])
    build.parquet(tmp_path / "a.parquet", {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y})
    np.savez(tmp_path / "a.npz", x=x, y=y)
    for options in ({}, {"standardize": False}):
        read = [load(f"{tmp_path}/a.{kind}", **options) for kind in ("csv", "parquet", "npz")]
        inputs = [data.inputs(torch.arange(40)) for data in read]
        assert torch.equal(inputs[0], inputs[1])
        assert torch.equal(inputs[0], inputs[2])
        assert len({data.notes[-1] for data in read}) == 1
    assert torch.equal(inputs[0], torch.from_numpy(x))


def test_what_was_done_is_told(tmp_path):
    _, path = diamonds(tmp_path / "a.csv", lacking=0.2)
    notes = load(str(path), label="cut", missing="median").notes
    assert [note for note in notes if note.startswith("missing values are filled in (carat ")]
    assert "text is one-hot encoded: color 4" in notes
    assert "1 column without a name left out" in notes
    assert [note for note in notes if "mean 0 and variance 1" in note]
    plain = load(str(path), label="cut", missing="zero", standardize=False)
    assert "the features are taken as they are" in plain.notes[-1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"x": [1, 2, 3, 4], "y": [0, 1, 0, 1]}, "the columns are x, y"),
        ({"class": [0, 1, 0, 1], "label": [0, 1, 0, 1], "a": [1, 2, 3, 4]}, "the columns are class, label, a"),
        ({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}, "data.label=NAME"),
    ],
)
def test_the_label_is_asked_for_and_not_guessed(tmp_path, kind, columns, says):
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    path = tmp_path / f"a.{kind}"
    written(path, rows, list(columns)) if kind == "csv" else build.parquet(path, columns)
    with pytest.raises(DataError) as caught:
        load(str(path))
    one_line(caught, f"a.{kind}", "which column has the classes?", says)
    assert len(load(str(path), label=list(columns)[-1], bins=2)) == 4


def test_a_label_by_its_usual_name_is_told(tmp_path):
    rows = [{"a": i, "Target": "ab"[i % 2]} for i in range(6)]
    data = load(str(written(tmp_path / "a.csv", rows, ["a", "Target"])))
    assert "the column Target is taken for the label" in data.notes


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (b"", {}, "names of at least two columns"),
        (b"a\n1\n", {}, "names of at least two columns"),
        (b"1,2\n3,4\n", {}, "numbers where the names"),
        (b"a,label\n", {}, "no lines below"),
        (b"a,label\n1,x\n2\n", {}, "not a table of 2 columns"),
        (b"a,label\n1,x,3\n2,y\n", {}, "not a table of 2 columns"),
        (b"a,a,label\n1,2,x\n", {}, "more than one column named a"),
        (b"a,label\n1,x\n2,y\n", {"label": "kind"}, "has no column named kind (the columns are a, label)"),
        (b"a,label\n1,x\n2,y\n", {"drop": ["b"]}, "has no column named b"),
        (b"a,label\n1,x\n2,y\n", {"drop": ["a"]}, "no column besides the label"),
        (b"a,label\n1,x\n2,y\n", {"label": "a", "drop": ["a"]}, "cannot be left out"),
        (b"a,label\n1,x\n,y\n2,\n", {}, "missing values: a 1 of 3 rows; data.missing=drop"),
        (b"a,label\n1,x\n3,y\n2,\n", {}, "label has 1 missing"),
        (b"a,label\n1,x\n3,y\n2,\n", {"missing": "mean"}, "label has 1 missing"),
        (b"a,label\n,x\n,y\n", {"missing": "mean"}, "no values at all"),
        (b"a,label\n,x\n,y\n", {"missing": "drop"}, "nothing is left"),
        (b"a,label\n1,x\ninf,y\n", {}, "row 1 of the column a is not a finite number"),
        (b"a,when,label\n1,2024-01-02,x\n2,2024-01-03,y\n", {}, "data.drop=[when]"),
        (b"a,label\n1,x\n2,x\n", {}, "two classes"),
        (b"a,label\n1,x\n2,y\n", {"tokens": True}, "npz: and parquet:"),
        (b'a,"label\n1,x\n', {}, "does not name columns"),
        (b"a,label\n\xff\xfe,x\n\xff,y\n", {}, "is not UTF-8 text"),
        (b"\xff\xfe,label\n1,x\n", {}, "a.csv"),
        (b"a,label\n1," + b"z" * 2000 + b"\n2,y\n", {}, "2,000 characters"),
    ],
)
def test_csv_that_cannot_be_a_data_set_is_one_line(tmp_path, content, options, says):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(f"csv:{tmp_path}/a.csv", **options)
    one_line(caught, "a.csv", says)


@pytest.mark.parametrize("separator", list(",;\t|"))
@pytest.mark.parametrize("packed", [False, True])
def test_any_usual_separator_plain_or_packed(tmp_path, separator, packed):
    rows, path = diamonds(tmp_path / "a.csv", separator=separator, packed=packed)
    data = load(str(path), label="cut")
    assert data.input_shape == (4 + 3,)
    assert data.x[:, 0].tolist() == pytest.approx([row["carat"] for row in rows])


def test_what_other_programs_write_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes('\ufeff"größe","label"\r\n"1","ja"\r\n"2","nein"\r\n"3","ja"\r\n'.encode())
    data = load(f"{tmp_path}/a.csv")
    assert data.x.flatten().tolist() == [1, 2, 3]
    assert data.y.tolist() == [0, 1, 0]


def test_rows_without_a_label_are_left_out_if_asked(tmp_path):
    (tmp_path / "a.csv").write_text("a,label\n1,x\n2,\n3,y\n,x\n")
    data = load(f"{tmp_path}/a.csv", missing="drop")
    assert data.x.flatten().tolist() == [1, 3]
    assert data.y.tolist() == [0, 1]
    assert "1 rows have no label and are left out" in data.notes


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_too_many_texts_are_named(tmp_path, kind):
    columns = {"name": [f"n{i}" for i in range(60)], "label": [i % 2 for i in range(60)], "a": list(range(60))}
    path = tmp_path / f"a.{kind}"
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    written(path, rows, list(columns)) if kind == "csv" else build.parquet(path, columns)
    with pytest.raises(DataError) as caught:
        load(str(path))
    one_line(caught, "name 60", "at most 50", "data.drop=[name]", "data.categories")
    assert load(str(path), drop=["name"]).input_shape == (1,)
    assert load(str(path), categories=60).input_shape == (61,)


def test_numbers_with_a_decimal_comma_are_named_as_such(tmp_path):
    rows = "".join(f"{i},5;{i};{i % 2}\n" for i in range(60))
    (tmp_path / "a.csv").write_text("weight;a;label\n" + rows)
    with pytest.raises(DataError) as caught:
        load(f"{tmp_path}/a.csv")
    one_line(caught, "the column weight", "decimal comma ('0,5')", "data.drop=[weight]")
    assert load(f"{tmp_path}/a.csv", drop=["weight"]).input_shape == (1,)


@pytest.mark.parametrize("place", ["name", "value"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_text_in_another_encoding_is_told_how_to_convert_it(tmp_path, place, encoding):
    names, value = ("größe,a,label", "x") if place == "name" else ("size,a,label", "groß")
    rows = "".join(f"{value},{i},{i % 2}\n" for i in range(60))
    (tmp_path / "a.csv").write_bytes(f"{names}\n{rows}".encode(encoding))
    with pytest.raises(DataError) as caught:
        load(f"{tmp_path}/a.csv")
    known = "WINDOWS-1252" if encoding == "cp1252" else "UTF-16"
    one_line(caught, "is not UTF-8 text", f"iconv -f {known} -t UTF-8 a.csv")
    if place == "value" and encoding == "cp1252":
        assert load(f"{tmp_path}/a.csv", drop=["size"]).input_shape == (1,)


def test_categories_of_several_files_are_those_of_all(tmp_path):
    build.parquet(tmp_path / "a.parquet", {"kind": ["b", "c"], "label": ["x", "y"]})
    build.parquet(tmp_path / "b.parquet", {"kind": ["a", None], "label": ["y", "x"]})
    data = load(f"parquet:{tmp_path}", missing="zero")
    assert data.x.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert data.y.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("first", [0, 18])
def test_ages_do_not_become_classes_unless_told(tmp_path, kind, first):
    ages = first + np.arange(200) % 40
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        np.savez(path, x=np.zeros((200, 2)), y=ages)
    elif kind == "csv":
        written(path, [{"a": 1, "label": int(age)} for age in ages], ["a", "label"])
    else:
        build.parquet(path, {"a": np.ones(200), "label": ages})
    with pytest.raises(DataError) as caught:
        load(str(path))
    one_line(caught, f"40 different numbers from {first} to {first + 39}", "data.bins=4", "data.classes=K")
    assert load(str(path), classes=first + 40).y.tolist() == ages.tolist()
    data = load(str(path), bins=4)
    assert data.classes == 4
    assert data.y.tolist() == [(age - first) // 10 for age in ages.tolist()]
    assert [note for note in data.notes if "4 ranges" in note and f"{first + 10}, {first + 20}" in note]


@settings(deadline=None, max_examples=60)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=60, unique=True), bins=st.integers(2, 8))
def test_bins_are_ranges_of_about_one_size(tmp_path_factory, values, bins):
    path = tmp_path_factory.mktemp("bins") / "a.npz"
    np.savez(path, x=np.zeros((len(values), 1)), y=np.array(values))
    y = load(str(path), bins=bins).y.numpy()
    ranks = y[np.argsort(values)]
    assert (np.diff(ranks) >= 0).all()
    counts = np.bincount(y, minlength=bins)
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize(
    ("labels", "options", "says"),
    [
        (np.array([0.5, 1.5, 2.5, 3.5]), {}, "data.bins=4"),
        (np.array([1, 1, 1, 2]), {"bins": 4}, "too few different values"),
        (np.array(["a", "b", "a", "b"]), {"bins": 2}, "labels are text"),
        (np.array([1.0, np.nan, 2, 3]), {"bins": 2}, "finite number"),
        (np.eye(4), {"bins": 2}, "finite number"),
        (np.array([0, 1, 0, 1]), {"bins": 2, "classes": 2}, "only one can hold"),
    ],
)
def test_labels_that_cannot_be_binned_are_one_line(tmp_path, labels, options, says):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=labels)
    with pytest.raises(DataError) as caught:
        load(f"npz:{tmp_path}/a.npz", **options)
    one_line(caught, says)


def test_a_path_is_told_by_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    diamonds(tmp_path / "a.csv")
    x, y = build.pictures(4, (3, 8, 8), 2)
    np.savez(tmp_path / "b.npz", x=x, y=y)
    (tmp_path / "b.npz").rename(tmp_path / "archive")
    build.hub_parquet(tmp_path / "tables" / "c.parquet", x, y)
    build.image_folders(tmp_path / "photos", ["a", "b"], 2)
    told = {name: get(name).name for name in ("a.csv", "archive", "tables", "tables/c.parquet", "photos", "./photos")}
    kinds = ["csv", "npz", "parquet", "parquet", "images", "images"]
    assert list(told.values()) == kinds
    assert get("not/there.csv").name == "csv"
    assert get("a.csv") == get("csv:a.csv")
    with pytest.raises(InputError, match="not a data set"):
        get("nothing")


def test_a_data_set_is_meant_where_a_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build.image_folders(tmp_path / "hospital", ["a", "b"], 2)
    assert get("hospital").name == "hospital"
    assert get("./hospital").name == "images"


def test_options_that_are_not_used_leave_the_hash_alone():
    spec = registry.parse({"name": "parquet:a.parquet", "label": "b"}).canonical()
    assert not {"drop", "missing", "categories", "bins"} & set(spec)
    assert registry.parse({"name": "csv:a.csv", "bins": 3}).canonical()["bins"] == 3
