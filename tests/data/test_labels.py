"""A user's own labels: what they are taken for, and what is said of those that could be two things."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scapegoat.data.label_values import Text
from scapegoat.data.labels import own_labels
from scapegoat.errors import DataError

RNG = np.random.default_rng(0)
AGES = RNG.permutation(400) % 100


def refused(labels: Any, **options: Any) -> str:
    with pytest.raises(DataError) as error:
        own_labels(labels, "a.npz", **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def as_text(values: list[str]) -> Text:
    names, codes = np.unique(values, return_inverse=True)
    return Text(codes, tuple(names.tolist()))


@pytest.mark.parametrize("kind", [np.int64, np.float32])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_minus_one_and_one_are_two_classes_in_a_column_too(kind: type, shape: tuple[int, ...]) -> None:
    read = own_labels(np.array([-1, 1, 1, -1, 1], kind).reshape(shape), "a.npz")
    assert read.y.tolist() == [0, 1, 1, 0, 1]
    assert read.classes == 2
    assert read.notes == ("the labels -1 and 1 are taken as classes 0 and 1",)


def test_rows_of_minus_one_and_one_are_several_labels_or_one_hot() -> None:
    sets = RNG.integers(0, 2, (50, 3))
    read = own_labels(2 * sets - 1, "a.npz")
    assert read.kind == "sets"
    assert read.y.tolist() == sets.tolist()
    classes = AGES % 3
    read = own_labels(2 * np.eye(3)[classes] - 1, "a.npz")
    assert read.kind == "classes"
    assert read.y.tolist() == classes.tolist()


def test_numbers_below_zero_are_told_the_task_that_takes_them() -> None:
    said = refused(np.arange(40) % 9 - 4)
    assert "record 0 has the label -4" in said
    assert "task=regression" in said
    assert "data.bins=4" in said


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("options", [{}, {"kind": "classes"}, {"kind": "numbers"}, {"bins": 4}])
def test_a_target_that_is_no_number_is_named_by_its_record(bad: float, columns: int, options: dict[str, Any]) -> None:
    targets = RNG.normal(size=(60, columns))
    targets[17] = bad
    assert "record 17 has a label that is not a finite number" in refused(targets, **options)


@pytest.mark.parametrize("text", [np.array, as_text], ids=["array", "column"])
@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([], "100 of 100 different ones are numbers, as ages or amounts are: store them as numbers"),
        (["unknown", "n.a."], "remove the records with 'n.a.', 'unknown', and task=regression takes them as numbers"),
    ],
)
def test_ages_as_text_do_not_become_classes_unless_told(text: Any, others: list[str], says: str) -> None:
    values = [*(str(age) for age in AGES), *others]
    said = refused(text(values))
    assert says in said
    assert "task=classification takes every text as a class" in said
    assert own_labels(text(values), "a.npz", kind="classes").classes == 100 + len(others)


def test_amounts_with_a_decimal_comma_are_numbers_as_text() -> None:
    assert "write them with a decimal point" in refused(np.array([f"{age},5" for age in AGES]))


def test_digits_and_codes_that_are_text_stay_classes() -> None:
    assert own_labels(np.array([str(age % 10) for age in AGES]), "a.npz").classes == 10
    assert own_labels(np.array([f"E{age % 60}" for age in AGES]), "a.npz").classes == 60


def test_rows_of_probabilities_are_refused_unless_they_are_to_be_numbers() -> None:
    shares = RNG.dirichlet([1, 1, 1], 80)
    for labels in (shares, shares.astype(np.float32), 0.9 * np.eye(3)[AGES % 3] + 0.1 / 3):
        said = refused(labels)
        assert "probabilities of 3 classes" in said
        assert "labels.argmax(1)" in said
        assert own_labels(labels, "a.npz", kind="numbers").kind == "numbers"
    assert own_labels(shares + 0.1, "a.npz").kind == "numbers"
