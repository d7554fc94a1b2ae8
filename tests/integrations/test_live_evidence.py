"""No figures are stated of a live federation in which nothing was trained, or in which the attack never ran."""

from __future__ import annotations

import pytest

from scapegoat.errors import RunError
from scapegoat.integrations.shared.evidence import require_attack, require_training
from scapegoat.integrations.shared.hostile import append_line, live_attack

SKIPPED = "krum cannot work with 3 replies: malicious: 1 needs at least 5 updates"


def lines(path, *written):
    for line in written:
        append_line(path, line)
    return path


def rounds(folder, *skipped):
    return lines(folder / "rounds.jsonl", *({"round": i + 1, "skipped": why} for i, why in enumerate(skipped)))


def given(number):
    return {"message": "task", "server_round": number, "after": number - 1, "scores": [0.0]}


def sent(number, attacking=True):
    return {"message": "train", "server_round": number, "after": 0, "attacking": attacking}


def test_a_federation_in_which_no_round_changed_the_model_is_refused_with_the_last_reason(tmp_path):
    with pytest.raises(RunError, match=r"no round of 2 changed the model.*malicious: 1 needs at least 5 updates"):
        require_training(rounds(tmp_path, "no reply could be used", SKIPPED))


@pytest.mark.parametrize("skipped", [(), (None,), (SKIPPED, None)])
def test_a_federation_that_trained_or_of_which_nothing_is_recorded_passes(tmp_path, skipped):
    require_training(rounds(tmp_path, *skipped))


@pytest.mark.parametrize("attack", ["passive", "fedpoisonmia"])
def test_a_hostile_participant_that_was_given_no_model_is_no_attack(tmp_path, attack):
    with pytest.raises(RunError, match="never given a model"):
        require_attack(tmp_path / "observations.jsonl", rounds(tmp_path, None, None), live_attack(attack))


@pytest.mark.parametrize(
    ("attack", "seen", "refused"),
    [
        ("fedpoisonmia", [given(1), given(2)], True),
        ("fedpoisonmia", [given(1), sent(1, attacking=False), given(2)], True),
        ("fedpoisonmia", [given(1), given(2), sent(2)], False),
        ({"name": "fedpoisonmia", "start_round": 2}, [given(1), sent(1, attacking=False)], False),
        ({"name": "fedpoisonmia", "start_round": 1}, [given(1), sent(1, attacking=False)], True),
        ({"name": "sleeper", "inner": "fedpoisonmia"}, [given(1), given(2)], True),
        ("passive", [given(1), given(2)], False),
    ],
)
def test_poison_that_was_never_sent_is_no_attack(tmp_path, attack, seen, refused):
    observations = lines(tmp_path / "observations.jsonl", *seen)
    recorded = rounds(tmp_path, None, None)
    if refused:
        with pytest.raises(RunError, match="was never sent"):
            require_attack(observations, recorded, live_attack(attack))
    else:
        require_attack(observations, recorded, live_attack(attack))
