"""What `scapegoat run` prints of a run: no rate that cannot be resolved, and epsilon wherever there is one."""

from __future__ import annotations

from typing import Any

import pytest

from scapegoat.cli import main
from scapegoat.cli.run import _lines
from tests.experiments.tiny import SETTINGS

FEW = ["attack.name=passive", "attack.targets=40", "federation.rounds=3", "evaluation.design=coin"]
TINY = [part for setting in [*FEW, *SETTINGS] for part in ("--set", setting)]


def printed(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["run", *TINY, *more])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_run_says_what_epsilon_it_shows_and_what_it_accounts_for(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = "federation.protect=[{name: dp_sgd, clip: 1.0, noise: 1.0}]"
    found = printed(capsys, "--set", noisy)
    assert "epsilon, at least" in found
    assert "epsilon accounted, per record" in found
    assert "if noise is Gaussian" in found
    assert "a bug" not in found
    assert "epsilon accounted" not in printed(capsys)


def test_a_rate_that_the_non_members_cannot_show_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in printed(capsys).splitlines() if line.startswith("TPR at 1% FPR")]
    assert "not resolvable with" in line


def test_runs_of_earlier_versions_are_printed_without_what_they_lack() -> None:
    names = ("accuracy_best", "accuracy_final", "auc", "tpr_at_fpr_01")
    membership: dict[str, Any] = dict.fromkeys(names, 0.5) | {f"{name}_ci": [0.4, 0.6] for name in names}
    summary = {
        "membership": {**membership, "best_round": 1, "targets": 300, "members": 150},
        "aggregation": {"malicious_kept_rate": 1.0, "malicious_rounds": 2, "scapegoat_rate": 0.0},
        "test_accuracy": 0.5,
        "train_accuracy": 0.5,
        "seconds": 1.0,
    }
    found = dict(_lines(summary))
    assert found["TPR at 1% FPR"] == "0.500  [0.400, 0.600]"
    assert not any("epsilon" in label or "worst" in label for label in found)


@pytest.mark.parametrize(("delta", "bug"), [(1e-5, True), (1e-3, False)])
def test_a_run_that_shows_more_than_it_accounts_for_says_that_this_is_a_bug(delta: float, bug: bool) -> None:
    names = ("accuracy_best", "accuracy_final", "auc", "tpr_at_fpr_01")
    membership: dict[str, Any] = dict.fromkeys(names, 0.5) | {f"{name}_ci": [0.4, 0.6] for name in names}
    bounds = {"any_mechanism": 1.5, "gaussian_noise": 2.5, "gaussian_noise_by_auc": 3.5}
    more = {"best_round": 1, "targets": 300, "members": 150, "epsilon_lower": 1.5, "epsilon_bounds": bounds}
    summary = {
        "membership": membership | more,
        "aggregation": {"malicious_kept_rate": 1.0, "malicious_rounds": 2, "scapegoat_rate": 0.0},
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": delta},
        "test_accuracy": 0.5,
        "train_accuracy": 0.5,
        "seconds": 1.0,
    }
    found = dict(_lines(summary))
    assert found["  if noise is Gaussian"] == "2.50, 3.50 if targets do not sway each other"
    assert found["epsilon accounted, per record"].startswith("1.00")
    assert ("a bug in the noise or in its accounting" in found["epsilon accounted, per record"]) == bug
