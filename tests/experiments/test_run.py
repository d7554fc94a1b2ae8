import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import scapegoat as sg
from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.run import run
from scapegoat.experiments.summary import membership_summary
from scapegoat.membership.assessment import score_figures

DEFENSES = ["fedavg", "memory_atm"]


def without_time(summary):
    return {k: v for k, v in summary.items() if k != "seconds"}


def assert_same_run(one, other):
    assert without_time(one.summary) == without_time(other.summary)
    assert one.rounds.equals(other.rounds)
    assert one.targets.equals(other.targets)


def test_the_same_spec_gives_the_same_numbers(small):
    assert_same_run(run(small), run(small))


def test_a_result_shows_itself_in_a_line(small):
    shown = repr(run(small))
    assert shown.startswith("Result(fedpoisonmia against atm on hospital, 12 rounds: AUC ")

    assert "accuracy" in shown
    assert len(shown) < 150


@pytest.mark.parametrize(("test", "warned"), [(None, True), (100, False)])
def test_many_pictures_to_test_are_told_with_what_limits_them(small, tmp_path, caplog, test, warned):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.normal(size=(6000, 1, 2, 2)), y=np.arange(6000) % 2)
    data = {"name": f"npz:{tmp_path}/a.npz", "test": test, "train": 600}
    federation = {**small["federation"], "rounds": 1}
    found = run({**small, "data": data, "federation": federation})
    said = [line for line in caplog.messages if "data.test=2000 makes it faster" in line]
    assert len(said) == warned
    assert bool(set(said) & set(found.summary["data_notes"])) == warned


def test_another_seed_gives_other_numbers(small):
    assert not run(small).targets.equals(run({**small, "seed": 1}).targets)


def test_other_threads_and_the_global_random_stream_do_not_matter(small):
    torch.manual_seed(1)
    torch.set_num_threads(2)
    first = run(small)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    assert_same_run(first, run(small))


@pytest.mark.parametrize("defense", DEFENSES)
@pytest.mark.parametrize(
    "federation",
    [
        {},
        {"schedule": {"name": "async", "tau_max": 3}},
        {"schedule": {"name": "async", "tau_max": 2, "buffer": 4}},
        {"local": {"name": "epochs", "epochs": 1}},
        {"server": {"optimizer": "momentum", "lr": 0.1}},
    ],
)
def test_a_run_stopped_at_any_round_ends_with_the_same_numbers(small, tmp_path, defense, federation):
    spec = {**small, "defense": defense, "federation": {**small["federation"], **federation}}
    undisturbed = run(spec)

    def stop_after(rounds):
        def progress(record, _rounds):
            if record.round == rounds:
                raise KeyboardInterrupt

        return progress

    for rounds in (2, 3, 7):
        with pytest.raises(KeyboardInterrupt):
            run(spec, store=tmp_path, progress=stop_after(rounds))
    resumed = run(spec, store=tmp_path)
    assert_same_run(undisturbed, resumed)
    assert not list(tmp_path.glob("runs/*.part"))


SLOW_RUN = """
import json, sys, time
from scapegoat.experiments.run import run
spec, out = json.loads(sys.argv[1]), sys.argv[2]
def progress(record, rounds):
    print(record.round, flush=True)
    time.sleep(0.05)

run(spec, store=out, checkpoint_seconds=0.0, progress=progress)
"""


def test_a_run_killed_outright_is_resumed_with_the_same_numbers(small, tmp_path):
    small["federation"]["rounds"] = 30
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, json.dumps(small), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for line in child.stdout:
        if int(line) >= 14:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert RunStore(tmp_path).finished() == []
    first_round = []
    resumed = run(small, store=tmp_path, progress=lambda record, rounds: first_round.append(record.round))
    assert first_round[0] >= 14
    assert_same_run(run(small), resumed)


def test_a_damaged_checkpoint_costs_the_run_under_way_and_nothing_else(small, tmp_path):
    store = RunStore(tmp_path)
    name = parse(small).hash
    store.part(name).mkdir(parents=True)
    (store.part(name) / "checkpoint.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}garbage")
    assert_same_run(run(small, store=store), run(small))


def test_a_finished_run_is_read_back_not_computed_again(small, tmp_path):
    first = run(small, store=tmp_path)
    started = time.time()
    again = run(small, store=tmp_path, progress=lambda *_: pytest.fail("computed again"))
    assert again.summary == first.summary
    assert again.rounds.equals(first.rounds)
    assert time.time() - started < 60


def test_a_stored_run_has_the_promised_files_and_columns(small, tmp_path):
    result = run(small, store=tmp_path)
    folder = tmp_path / "runs" / result.summary["spec_hash"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "rounds.parquet",
        "spec.json",
        "summary.json",
        "targets.parquet",
    ]
    rounds = pq.read_table(folder / "rounds.parquet").to_pylist()
    assert [r["round"] for r in rounds] == list(range(12))
    assert [r["round"] for r in rounds if r["test_accuracy"] is not None] == [3, 7, 11]
    for row in rounds:
        aligned = {len(row[k]) for k in ("clients", "malicious", "kept", "rejected", "mean_angle", "norm")}
        assert aligned == {5}
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("accuracy_best", "accuracy_final", "precision", "recall", "auc"):
        low, high = summary["membership"][f"{key}_ci"]
        assert 0 <= low <= summary["membership"][key] <= high <= 1
    assert {"malicious_kept_rate", "scapegoat_rate", "rejected"} <= set(summary["aggregation"])


@pytest.mark.parametrize(("others", "resolved"), [(32, ()), (150, ("01",)), (1000, ("01", "001"))])
def test_the_rates_of_the_final_margin_are_those_of_its_score(others, resolved):
    rng = np.random.default_rng(0)
    member = np.arange(2 * others) < others
    margins = rng.normal(size=(6, len(member))) + member
    found = membership_summary(margins, member)
    of_score = score_figures(margins[-1].astype(np.float64), member)
    rates = {key: value for key, value in of_score.items() if key.startswith("tpr")}
    assert {key: found[key] for key in rates} == rates
    for rate in ("01", "001"):
        for key in (f"tpr_at_fpr_{rate}", f"tpr_at_fpr_{rate}_mean"):
            assert (found[key] is not None) == (rate in resolved)
            assert (f"{key}_reason" in found) == (rate not in resolved)


def test_the_summary_follows_from_the_stored_tables(small):
    result = run(small)
    rounds, targets = result.rounds.to_pylist(), result.targets.to_pylist()
    membership = result.summary["membership"]
    assert membership["accuracy_best"] == max(r["attack_accuracy"] for r in rounds)
    assert rounds[membership["best_round"]]["attack_accuracy"] == membership["accuracy_best"]
    final = np.mean([t["called_final"] == t["member"] for t in targets])
    assert membership["accuracy_final"] == pytest.approx(final)
    hostile = [r for r in rounds if any(r["malicious"])]
    kept = [k for r in hostile for k, m in zip(r["kept"], r["malicious"], strict=True) if m]
    assert result.summary["aggregation"]["malicious_kept_rate"] == pytest.approx(np.mean(kept))
    scapegoat = [
        any(k and m for k, m in zip(r["kept"], r["malicious"], strict=True))
        and any(not k and not m for k, m in zip(r["kept"], r["malicious"], strict=True))
        for r in hostile
    ]
    assert result.summary["aggregation"]["scapegoat_rate"] == pytest.approx(np.mean(scapegoat))


def test_a_users_changed_file_is_another_run(small, tmp_path):
    rng = np.random.default_rng(0)

    def write(shift):
        x = rng.normal(size=(600, 10)).astype(np.float32) + shift
        np.savez(tmp_path / "own.npz", x=x, y=rng.integers(0, 3, 600))

    spec = {**small, "data": {"name": f"npz:{tmp_path / 'own.npz'}", "validation": 20}}
    write(0)
    first = run(spec).summary["spec_hash"]
    write(1)
    assert run(spec).summary["spec_hash"] != first


def test_run_without_an_attacker_measures_what_watching_tells(small):
    small["federation"]["malicious"] = 0
    summary = run({**small, "attack": {"name": "passive", "targets": 40, "mask": 30}, "defense": "fedavg"}).summary
    assert summary["aggregation"]["malicious_rounds"] == 0


def test_too_many_targets_for_the_data_is_refused(small):
    with pytest.raises(InputError, match="leave"):
        run({**small, "attack": {"name": "passive", "targets": 900, "mask": 30}})


def test_the_package_offers_run_at_the_top():
    assert sg.run is run
