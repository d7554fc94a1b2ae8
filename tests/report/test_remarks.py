"""What the report says of the data and of models that have learnt nothing."""

import numpy as np
import pytest

from scapegoat.report.remarks import remarks


def test_what_was_done_to_the_data_is_said_once():
    runs = [{"data_notes": ["text is one-hot encoded: cut 3"]}] * 3 + [{"data_notes": ["other"]}, {}]
    assert remarks(runs) == ("Data: text is one-hot encoded: cut 3.", "Data: other.")


def test_models_no_better_than_the_most_frequent_class_are_counted():
    runs = [{"test_accuracy": a, "test_majority": 0.4} for a in (0.39, 0.4, 0.41)]
    (said,) = remarks(runs)
    assert said.startswith("In 2 of 3 runs")
    assert "(0.400)" in said
    assert remarks(runs[2:]) == ()


def test_an_accuracy_in_single_precision_is_not_better_by_its_rounding():
    exact = 912 / 1000
    (said,) = remarks([{"test_accuracy": float(np.float32(exact)), "test_majority": exact}])
    assert float(np.float32(exact)) > exact
    assert said.startswith("In 1 of 1 runs")


@pytest.mark.parametrize("notes", [None, 5, "text", {"a": 1}, [1, None, ["x"]]])
def test_a_damaged_summary_says_nothing(notes):
    assert remarks([{"data_notes": notes, "test_accuracy": "0.1", "test_majority": True}]) == ()


def test_endless_notes_are_cut():
    assert len(remarks([{"data_notes": [f"note {i}" for i in range(500)] + ["x" * 10_000]}])) == 12


@pytest.mark.parametrize(("initial", "told"), [(0.63, True), (0.52, False), (0.4, False), (None, False), ("x", False)])
def test_a_model_that_tells_members_apart_before_any_training_is_told(initial, told):
    said = remarks([{"membership": {"initial_auc": initial}}, {"membership": {}}, {}])
    assert bool(said) == told
    assert not told or "began with tells members from others with an AUC of 0.63 already" in said[0]
