"""The server's view of a run: more scores, the same federation, and the same numbers after a stop."""

from __future__ import annotations

from typing import Any

import pytest

from scapegoat.experiments import parse
from scapegoat.experiments.run import run
from tests.experiments.test_run import assert_same_run

SEEN = ("update_cosine", "fedmia", "update_regression")


def viewed(small: dict[str, Any], **evaluation: Any) -> dict[str, Any]:
    return {**small, "evaluation": {"every": 4, "server_view": True, **evaluation}}


@pytest.mark.parametrize("evaluation", [{}, {"design": "coin"}])
def test_the_server_only_watches(small, evaluation) -> None:
    plain = run({**small, "evaluation": {"every": 4, **evaluation}})
    seen = run(viewed(small, **evaluation))
    assert seen.spec.hash != plain.spec.hash
    assert seen.rounds.equals(plain.rounds)
    assert seen.targets.drop_columns([f"score_{name}" for name in SEEN]).equals(plain.targets)
    scores = seen.summary["membership"]["scores"]
    assert {name for name, found in scores.items() if found["seat"] == "server"} == set(SEEN)
    for name, found in plain.summary["membership"]["scores"].items():
        assert scores[name] == found


@pytest.mark.parametrize("federation", [{}, {"schedule": {"name": "async", "tau_max": 2, "buffer": 4}}])
def test_a_stopped_run_ends_with_the_same_view(small, tmp_path, federation) -> None:
    spec = viewed({**small, "federation": {**small["federation"], **federation}}, design="coin")

    def stop(record, _rounds):
        if record.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, store=tmp_path, progress=stop)
    assert_same_run(run(spec), run(spec, store=tmp_path))


def test_a_view_that_is_off_is_not_in_the_hash(small) -> None:
    assert parse(viewed(small, server_view=False)).hash == parse(small).hash
    assert parse(viewed(small)).hash != parse(small).hash


def test_a_server_knows_the_share_of_a_record_only_under_plain_steps(small) -> None:
    def scores(**local: Any) -> set[str]:
        federation = {**small["federation"], "rounds": 2, "local": local}
        return set(run(viewed({**small, "federation": federation})).summary["membership"]["scores"])

    assert "update_regression" in scores(name="epochs")
    assert "update_regression" not in scores(name="epochs", optimizer="adam", lr=0.01)
