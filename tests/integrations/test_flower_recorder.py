"""What is written down about live rounds, and how it becomes a run in the store."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from scapegoat import report as reports
from scapegoat.attacks import Samples
from scapegoat.cli._live import show
from scapegoat.errors import RunError
from scapegoat.experiments import RunStore
from scapegoat.federation.record import Truth
from scapegoat.integrations.flower import AngularTrimmedMean
from scapegoat.integrations.flower.live.recorder import run_recorded
from scapegoat.integrations.flower.replies.records import arrays_of
from scapegoat.integrations.shared.hostile import append_line, keep_model, read_lines
from scapegoat.integrations.shared.outcome import Secrets, assemble
from scapegoat.integrations.shared.rounds import observers
from tests.integrations.flower_fakes import FakeGrid, answering, record

NODES = (31, 7, 2**63 + 1, 12)


def nodes(**odd):
    def step(node):
        return lambda arrays: {"w": arrays["w"] - np.float32(0.1) * np.arange(1, 5, dtype=np.float32) * (node % 5 + 1)}

    return {node: odd.get(f"n{node}", answering(step(node))) for node in NODES}


def served(strategy, grid, path, rounds=2):
    app = ServerApp()
    app.main()(
        lambda grid, context: strategy.start(grid, record({"w": np.zeros(4, np.float32)}), num_rounds=rounds) and None
    )
    run_recorded(app, grid, None, path, "arrays")
    return read_lines(path)


def test_counts_that_flower_averaged_are_no_reason_to_reject_a_reply(tmp_path):
    """After a round of FedAvg a count of int64 goes out as float64, and a module sends int64 again."""

    def trained(arrays):
        return {"w": arrays["w"] + np.float32(1), "norm.num_batches_tracked": np.asarray(3, np.int64)}

    app = ServerApp()
    start = record({"w": np.zeros(4, np.float32), "norm.num_batches_tracked": np.asarray(0, np.int64)})
    strategy = FedAvg(fraction_evaluate=0.0)
    app.main()(lambda grid, context: strategy.start(grid, start, num_rounds=3) and None)
    grid = FakeGrid({node: answering(trained) for node in NODES})
    run_recorded(app, grid, None, tmp_path / "rounds.jsonl", "arrays")
    assert grid.sent[-1].content["arrays"]["norm.num_batches_tracked"].numpy().dtype == np.float64
    for line in read_lines(tmp_path / "rounds.jsonl"):
        assert line["set_aside"] == {}
        assert line["nodes"] == sorted(NODES)
        assert line["norm"] == pytest.approx([2.0] * 4)
        assert line["mean_angle"] == pytest.approx([0.0] * 4, abs=1e-3)


def test_our_strategies_say_whom_they_kept(tmp_path):
    lines = served(AngularTrimmedMean(trim=1, fraction_evaluate=0.0), FakeGrid(nodes()), tmp_path / "rounds.jsonl")
    assert [line["round"] for line in lines] == [1, 2]
    for line in lines:
        assert line["nodes"] == sorted(NODES)
        assert sum(line["kept"]) == 2
        assert line["norm"] == pytest.approx([0.1 * 30**0.5 * (node % 5 + 1) for node in sorted(NODES)], rel=1e-5)
        assert line["mean_angle"] == pytest.approx([0.0] * 4, abs=1e-3)
        assert line["skipped"] is None
    assert observers == []


def test_of_other_strategies_the_rounds_are_known_and_not_their_choice(tmp_path):
    nan = answering(lambda arrays: {"w": arrays["w"] * np.float32(np.nan)})
    # Flower leaves a NaN in the mean, so that its sender comes in the last round only.
    seldom = lambda message: (nan if message.content["config"]["server-round"] == 3 else nodes()[7])(message)  # noqa: E731
    aside = answering(lambda arrays: {"w": arrays["w"] + np.array([2, -1, 0, 0], np.float32)})
    grid = FakeGrid(nodes(n7=seldom, n12=aside))
    lines = served(FedAvg(fraction_evaluate=0.0), grid, tmp_path / "rounds.jsonl", rounds=3)
    assert len(lines) == 3
    for line in lines:
        assert line["kept"] is None
        others = len(line["nodes"]) - 1
        right_angles = [others if node == 12 else 1 for node in line["nodes"]]
        assert line["mean_angle"] == pytest.approx([np.pi / 2 * n / others for n in right_angles], abs=1e-3)
    assert [line["nodes"] for line in lines] == [sorted(NODES)] * 2 + [sorted(set(NODES) - {7})]
    assert [list(line["set_aside"]) for line in lines] == [[], [], ["7"]]
    assert "NaN" in lines[2]["set_aside"]["7"]


def test_nothing_is_written_where_the_folder_is_not_there(tmp_path):
    strategy = AngularTrimmedMean(fraction_evaluate=0.0)
    served(strategy, FakeGrid(nodes()), tmp_path / "elsewhere" / "rounds.jsonl")
    assert len(strategy.history) == 2
    assert not (tmp_path / "elsewhere").exists()


def secrets() -> Secrets:
    generator = torch.Generator().manual_seed(0)
    targets = Samples(torch.randn(8, 3, generator=generator), torch.randint(2, (8,), generator=generator))
    told = Truth(
        record=np.arange(100, 108),
        label=targets.y.numpy(),
        wrong_label=1 - targets.y.numpy(),
        member=np.arange(8) < 4,
        client=[0, 1, 0, 1, None, None, None, None],
    )
    return Secrets(targets=targets, told=told, model=lambda: nn.Linear(3, 2), test=targets)


def observed(directory, after, message="evaluate", **more):
    line = {"node": 9, "message": message, "server_round": after, "after": after, "scores": [1.0, -1.0] * 4, **more}
    append_line(directory / "hostile" / "observations.jsonl", line)
    keep_model(directory / "hostile" / "observations.safetensors", arrays_of(ArrayRecord(nn.Linear(3, 2).state_dict())))


def server_line(number, **more):
    line = {
        "round": number,
        "nodes": [5, 9],
        "kept": [True, False],
        "set_aside": {"77": "NaN"},
        "failed": {},
        "silent": [],
        "skipped": None,
        "norm": [1.0, 2.0],
        "mean_angle": [0.5, 0.5],
        "loss": {"5": 0.25, "9": 99.0},
        "notes": {"trim": 1.0},
    }
    return line | more


def assembled(directory, **keywords):
    names = {"attack": "passive", "defense": "atm", "data": "d", "model": "m", "seed": 0}
    spec = {"data": {"name": "d"}, "attack": {"name": "passive"}, "defense": {"name": "atm"}, "live": {"flower": "1"}}
    arguments = {
        "clients": {5: 0, 9: 1},
        "hostile": {1},
        "names": names,
        "seconds": 1.0,
        "framework": "flwr",
    } | keywords
    return assemble(directory, spec, secrets(), **arguments)


def test_observations_and_rounds_become_a_run_that_the_report_reads(tmp_path):
    observed(tmp_path, 1, "train", notes={"alpha": 2.0}, masks=[3, 4])
    observed(tmp_path, 3)
    for number in (1, 2, 3):
        append_line(tmp_path / "rounds.jsonl", server_line(number, kept=None if number == 2 else [True, False]))
    run = assembled(tmp_path)
    rows = run.rounds.to_pylist()
    assert [row["attack_accuracy"] for row in rows] == [0.5, None, 0.5]
    assert rows[0]["clients"] == [0, 1, 2]
    assert rows[0]["malicious"] == [False, True, False]
    assert rows[0]["kept"] == [True, False, False]
    assert rows[0]["rejected"] == [False, False, True]
    assert rows[0]["loss"] == 0.25
    assert rows[0]["masks"] == [3, 4]
    assert rows[1]["kept"] == [True, True, False]
    assert dict(rows[1]["defense_notes"])["kept_unknown"] == 1.0
    assert run.summary["membership"]["best_round"] == 0
    assert run.summary["live"]["observed_rounds"] == 2
    assert run.summary["aggregation"]["malicious_rounds"] == 3
    assert run.summary["aggregation"]["malicious_kept_rate"] == 0.0  # of the two rounds that tell
    assert run.summary["aggregation"]["rejected"] == 3
    assert run.targets["client"].to_pylist() == [0, 1, 0, 1, None, None, None, None]
    store = RunStore(tmp_path / "out")
    store.write(run.summary["spec_hash"], run.spec, run.rounds, run.targets, run.summary)
    assert store.problem(run.summary["spec_hash"]) is None
    assert json.loads(json.dumps(run.summary)) == run.summary
    page = reports.build(tmp_path / "out")
    assert page.studies[0].matrix.attacks == ("passive",)
    reports.write_html(page, tmp_path / "report.html")


def test_a_live_run_has_every_score_the_guards_and_why_there_is_no_epsilon(tmp_path):
    for number in (1, 2):
        observed(tmp_path, number)
    run = assembled(tmp_path)
    membership, validity = run.summary["membership"], run.summary["validity"]
    assert set(membership["scores"]) == {"final_margin", "mean_margin", "trajectory"}
    assert membership["worst_score"]["name"] in membership["scores"]
    assert membership["epsilon_lower"] is None
    assert "coins" in membership["epsilon_lower_reason"]
    assert membership["epsilon_ceiling"] > 0
    assert {"blind_auc", "permutation_p", "valid", "reasons"} <= set(validity)
    assert {"score_mean_margin", "score_trajectory"} <= set(run.targets.column_names)
    tossed = assemble(
        tmp_path, run.spec, replace(secrets(), coins=True), clients={}, hostile=set(), names={}, seconds=1.0,
        framework="flwr",
    )  # fmt: skip
    assert tossed.summary["membership"]["epsilon_lower"] >= 0


@pytest.mark.parametrize(("drift", "status"), [(0.0, "undertrained"), (1.5, "invalid")])
def test_non_members_of_another_year_make_the_verdict_invalid(tmp_path, drift, status):
    """What a user calls non-members differs from the members before any training: no figure speaks of leakage."""
    count, generator = 200, torch.Generator().manual_seed(0)
    member = np.arange(count) < count // 2
    x = torch.randn(count, 3, generator=generator) + drift * torch.from_numpy(~member)[:, None]
    targets = Samples(x, torch.randint(2, (count,), generator=generator))
    told = Truth(
        record=np.arange(count), label=targets.y.numpy(), wrong_label=1 - targets.y.numpy(), member=member,
        client=[None] * count,
    )  # fmt: skip
    for number in (1, 2):
        observed(tmp_path, number, scores=torch.randn(count, generator=generator).tolist())
    known = Secrets(targets=targets, told=told, model=lambda: nn.Linear(3, 2), test=targets)
    names = {"attack": "passive", "defense": "fedavg", "data": "d", "model": "m", "seed": 0}
    spec = {"data": {"name": "d"}, "attack": {"name": "passive"}, "defense": {"name": "fedavg"}}
    run = assemble(
        tmp_path, spec, known, clients={}, hostile=set(), names=names, seconds=1.0, framework="flwr"
    )  # fmt: skip
    assert run.summary["validity"]["valid"] is (drift == 0)
    verdict = reports.build([run]).studies[0].verdict
    assert verdict.status == status
    if drift:
        assert "members differ from non-members before any training" in verdict.headline.lower()


def test_an_attacker_that_saw_nothing_is_a_failed_run(tmp_path):
    append_line(tmp_path / "rounds.jsonl", server_line(1))
    with pytest.raises(RunError, match="never shown"):
        assembled(tmp_path)


def test_the_attackers_own_view_is_enough(tmp_path):
    """A SuperLink on another machine writes no rounds here."""
    observed(tmp_path, 2)
    run = assembled(tmp_path)
    assert run.summary["rounds"] == 2
    assert run.summary["aggregation"]["malicious_rounds"] == 0
    assert run.summary["aggregation"]["malicious_kept_rate"] is None
    assert run.summary["aggregation"]["scapegoat_rate"] is None


def test_whom_another_strategy_kept_is_unknown_in_summary_terminal_and_report(tmp_path, capsys):
    observed(tmp_path, 2)
    for number in (1, 2):
        append_line(tmp_path / "rounds.jsonl", server_line(number, kept=None))
    run = assembled(tmp_path)
    rates = {
        name: run.summary["aggregation"][f"{name}_rate"] for name in ("malicious_kept", "honest_kept", "scapegoat")
    }
    assert rates == {"malicious_kept": None, "honest_kept": None, "scapegoat": None}
    assert run.summary["aggregation"]["malicious_rounds"] == 2
    show([run.summary], tmp_path, None)
    assert capsys.readouterr().out.count("unknown") == 2
    RunStore(tmp_path / "out").write(run.summary["spec_hash"], run.spec, run.rounds, run.targets, run.summary)
    assert RunStore(tmp_path / "out").problem(run.summary["spec_hash"]) is None
    page = reports.build(tmp_path / "out")
    assert "malicious_kept_rate" not in page.studies[0].matrix.cells["passive", "atm"].runs[0].aggregation
    assert '"malicious_kept_rate":' not in reports.to_html(page)


def test_rounds_without_company_to_hide_among_are_counted_and_told(tmp_path, capsys):
    observed(tmp_path, 1, "train", notes={"unbounded": 1.0})
    observed(tmp_path, 2, "train", notes={"alpha": 1.0})
    run = assembled(tmp_path)
    assert run.summary["live"]["unbounded_rounds"] == 1
    show([run.summary], tmp_path, None)
    assert "no poison was sent in 1 of 2 rounds" in capsys.readouterr().out
