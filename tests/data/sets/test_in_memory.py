"""Arrays handed over to an audit: of any shape, with labels of any kind, and what is said of those that will not do."""

import numpy as np
import pytest
import torch
from torch import nn

import scapegoat as sg
from scapegoat.errors import InputError

CLASSES, LENGTH, VOCABULARY = 3, 20, 50
SMALL = ["federation.batch_size=16", "attack.targets=40", "attack.mask=30", "data.validation=20"]


class Recurrent(nn.Module):
    """Sequences in, logits out."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def reader():
    return nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Flatten(), nn.Linear(8 * LENGTH, CLASSES))


def labels(count=400):
    return np.random.default_rng(0).integers(0, CLASSES, count)


def tokens(count=400):
    return np.random.default_rng(1).integers(0, VOCABULARY, (count, LENGTH))


def audited(data, model=None, more=(), attacks=("passive",), defenses=("fedavg",)):
    return sg.audit(
        model=model, data=data, attacks=attacks, defenses=defenses, rounds=2, overrides=[*SMALL, *more], jobs=1
    )


def refusal(*arguments, **options):
    with pytest.raises(InputError) as error:
        audited(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_tokens_go_to_an_embedding_through_training_attacks_and_rules_that_probe():
    found = audited(
        (tokens(), labels()),
        reader(),
        ["data.tokens=true"],
        ["fedpoisonmia", "agrevader", "gradient_ascent"],
        ["fedavg", "atm", "fltrust", "deepsight"],
    )
    assert len(found.results) == 12
    assert not found.failures
    assert all(np.isfinite(result.summary["test_accuracy"]) for result in found.results)


def test_tokens_give_the_same_numbers_as_floats_that_the_model_turns_into_tokens():
    class Rounding(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x.long())

    torch.manual_seed(0)
    model = reader()
    scores = [
        audited((tokens(), labels()), given, more, ["fedpoisonmia"]).results[0].targets["score_final"].to_numpy()
        for given, more in ((model, ["data.tokens=true"]), (Rounding(model), []))
    ]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-6)


def test_an_embedding_that_is_given_floats_is_refused_with_the_option_that_helps():
    assert "data.tokens=true" in refusal((tokens(), labels()), reader())


def test_sequences_go_to_a_recurrent_model():
    x = np.random.default_rng(0).normal(size=(400, 6, 4)).astype(np.float32)
    found = audited((x, labels()), Recurrent(), attacks=["fedpoisonmia"])
    assert len(found.results) == 1


def test_one_hot_labels_are_the_same_as_their_numbers():
    x = np.random.default_rng(0).normal(size=(400, 10))
    models = ["model.name=mlp", "model.hidden=[8]"]
    plain, one_hot = (
        audited((x, y), more=models).results[0].summary["test_accuracy"] for y in (labels(), np.eye(CLASSES)[labels()])
    )
    assert plain == one_hot


def test_with_classes_a_label_beyond_is_refused():
    y = labels()
    y[17] = 99
    said = refusal((np.zeros((400, 4)), y), more=["data.classes=3"])
    assert "the given records (y): record 17 has the label 99" in said


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((np.zeros((60, 4)), np.arange(60) % 3), "60 records (the given records)"),
        ((np.full((400, 4), np.nan), labels()), "the given records (x): record 0"),
        ((np.zeros((400, 4)), labels() + 0.5), "the given records (y): a label is"),
        ((np.zeros((400, 8, 8, 3)), labels()), "the given records (x): is of shape"),
        ((np.zeros((400, 4)), np.ones((400, 3))), "row 0 of the one-hot labels"),
        ((np.zeros((50, 4)), np.eye(3)), "3 labels"),
        ((np.zeros((50, 4)), 3), "1 labels"),
        ({"x": np.zeros((400, 4)), "y": labels()}, "data=(x, y)"),
    ],
)
def test_what_is_wrong_with_given_records_is_one_line_without_a_path(data, says):
    said = refusal(data)
    assert says in said
    assert ".npz" not in said


@pytest.mark.parametrize("place", [0, LENGTH - 1])
def test_a_token_beyond_the_vocabulary_is_found_before_the_run(place):
    x = tokens()
    x[123, place] = VOCABULARY
    said = refusal((x, labels()), reader(), more=["data.tokens=true"])
    assert f"record 123 of the given records has the token {VOCABULARY}" in said
    assert f"a vocabulary of at least {VOCABULARY + 1} is expected" in said


def test_each_place_of_a_record_may_have_a_vocabulary_of_its_own():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Embedding(VOCABULARY, 4), nn.Embedding(3, 4)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.head(torch.cat([self.first(x[:, 0]), self.second(x[:, 1])], 1))

    x = np.stack([tokens()[:, 0], np.arange(400) % 3], 1)
    assert audited((x, labels()), Mixed(), ["data.tokens=true"]).results
    x[7, 1] = 3
    assert "record 7" in refusal((x, labels()), Mixed(), more=["data.tokens=true"])


def test_arrays_are_what_the_model_sees_unless_told_otherwise():
    x = np.random.default_rng(0).normal(3, 2, size=(400, 10))
    models = ["model.name=mlp", "model.hidden=[8]"]
    plain = audited((x, labels()), more=models).results[0]
    assert "the features are taken as they are" in plain.summary["data_notes"][0]
    scaled = audited((x, labels()), more=[*models, "data.standardize=true"]).results[0]
    assert "mean 0 and variance 1" in scaled.summary["data_notes"][0]
    assert plain.spec.hash != scaled.spec.hash
