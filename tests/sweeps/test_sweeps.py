"""Sweeps: what they consist of, what they come to, and what is refused."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scapegoat import sweeping
from scapegoat.errors import InputError, StorageError
from scapegoat.experiments import RunStore
from scapegoat.experiments.executors import execute
from scapegoat.experiments.executors import heartbeat as marks
from scapegoat.report.measures import BY_KEY
from scapegoat.report.sweeps import sections
from scapegoat.sweeping import costs
from scapegoat.sweeping import user_sweeps as own
from scapegoat.sweeping.status import of_plan, status
from scapegoat.sweeping.sweep import METRICS, Table
from scapegoat.sweeps import get, registry
from tests.experiments.tiny import SETTINGS, spec

NAMES = [
    "async-c08",
    "async-c10",
    "attack-cost",
    "client-count",
    "defense-cost",
    "main-c08",
    "main-c10",
    "malicious-fraction",
    "mask-selection",
    "more-defenses",
    "non-iid-degree",
    "partial-knowledge",
    "plans",
    "target-count",
]


def tiny_plan(name: str, rounds: int = 1, seeds: int = 1, extra: tuple[str, ...] = ()) -> sweeping.Grid:
    return sweeping.lay_out(get(name), data=["hospital"], rounds=rounds, seeds=seeds, overrides=[*SETTINGS, *extra])


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    assert sorted(registry) == NAMES
    assert all(sweep.title and sweep.about for sweep in registry.values())


@pytest.mark.parametrize("name", [n for n in NAMES if not n.endswith("-cost")])
def test_every_sweep_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    plan = tiny_plan(name)
    axes = {axis.name: [p.key for p in axis.points] for axis in plan.axes}
    # A part of it: the first and the last of each axis; all cells were validated by the plan.
    only = {axis: {keys[0], keys[-1]} for axis, keys in axes.items()}
    runs = plan.runs(only)
    assert execute(runs.values(), tmp_path).complete
    sweeping.write(plan, tmp_path)
    (section,) = sections(tmp_path)
    sweep = registry[name]
    if isinstance(sweep.layout, Table):
        table = section.tables[0]
        assert len(section.tables) == len(sweep.metrics)
        found = [cell.ours for row in table.cells for cell in row]
        assert len(found) == len(plan.cells)
        assert all(cell.reason == "not run" for row in table.cells for cell in row if cell.ours is None)
    else:
        figure = section.figures[0]
        found = [y for panel in figure.panels for line in panel.lines for y in line.y]
        assert [panel.title for panel in figure.panels] == ["Top-k", "FedAvg", "Trimmed-mean", "ATM"]
    assert sum(y is not None for y in found) == len(runs)


@pytest.mark.parametrize(("name", "cells"), [("attack-cost", 5), ("defense-cost", 18)])
def test_costs_are_measured_and_drawn(name: str, cells: int, tmp_path: Path) -> None:
    plan = tiny_plan(name, rounds=2)
    table, figures = costs.measure(plan, {})
    assert len(figures) == cells
    assert table.num_rows == 2 * cells
    assert min(table["seconds"].to_pylist()) > 0
    costs.save(table, tmp_path, name)
    sweeping.write(plan, tmp_path, figures)
    (section,) = sections(tmp_path)
    assert all(cell.ours is not None and cell.ours.value > 0 for row in section.tables[0].cells for cell in row)


def test_a_part_measured_later_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    plan = tiny_plan("attack-cost")
    sweeping.write(plan, tmp_path, {0: {"median": 1.0, "low": None, "high": None, "calls": 1}})
    sweeping.write(plan, tmp_path, {1: {"median": 2.0, "low": None, "high": None, "calls": 1}})
    (content,) = sweeping.saved(tmp_path)
    assert [cell.get("seconds", {}).get("median") for cell in content["cells"][:3]] == [1.0, 2.0, None]


def test_seconds_measured_later_are_kept_beside_those_of_other_cells(tmp_path: Path) -> None:
    def measured(only: dict[str, set[str]], *extra: str) -> pa.Table:
        table, _ = costs.measure(tiny_plan("attack-cost", extra=extra), only)
        costs.save(table, tmp_path, "attack-cost")
        return table

    first = measured({})
    again = measured({"attack": {"passive"}})
    other = measured({}, "federation.clients=4", "federation.batch_size=8")
    kept = costs.load(tmp_path, "attack-cost").to_pylist()
    assert kept == [
        *(row for row in first.to_pylist() if row["subject"] != "passive"),
        *again.to_pylist(),
        *other.to_pylist(),
    ]
    assert [p.name for p in (tmp_path / "costs").iterdir()] == ["attack-cost.parquet"]


def test_seconds_that_cannot_be_written_leave_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = costs.measure(tiny_plan("attack-cost"), {"attack": {"passive"}})
    path = costs.save(table, tmp_path, "attack-cost")
    before = path.read_bytes()

    def full(_: object, where: Path, **__: object) -> None:
        Path(where).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StorageError, match="No space left"):
        costs.save(table, tmp_path, "attack-cost")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_file_of_seconds_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "costs" / "attack-cost.parquet"
    path.parent.mkdir()
    path.write_bytes(b"half")
    with pytest.raises(InputError, match=r"is damaged \(.*\); remove it and measure again"):
        costs.save(costs.COLUMNS.empty_table(), tmp_path, "attack-cost")
    assert path.read_bytes() == b"half"


def test_the_median_has_an_interval_once_there_are_enough_calls() -> None:
    assert costs.median_interval([3.0, 1.0, 2.0]) == {"median": 2.0, "low": None, "high": None, "calls": 3}
    found = costs.median_interval([float(i) for i in range(1, 101)])
    # The textbook interval for n = 100: the 40th and the 61st value.
    assert (found["low"], found["median"], found["high"]) == (40.0, 50.5, 61.0)


def test_plans_are_attacked_for_six_hundred_targets_by_coin_whatever_the_attack() -> None:
    """A point that names an attack starts its options again; the targets were once lost that way."""
    cells = sweeping.lay_out(get("plans"), data=["hospital"]).cells
    assert {(c.spec.attack.targets, c.spec.evaluation.design) for c in cells} == {(600, "coin")}


def test_the_paper_s_numbers_stand_where_the_paper_prints_them() -> None:
    plan = sweeping.lay_out(get("main-c08"))
    printed = {tuple(c.at.values()): c.paper for c in plan.cells}
    assert len(printed) == 4 * 5 * 6 * 2
    assert printed["texas100", "passive", "dp", "iid"] == 0.650
    assert printed["texas100", "fedpoisonmia", "atm", "iid"] == 0.803
    assert None not in printed.values()
    assert {c.spec.model.name for c in plan.cells if c.at["data"] == "texas100"} == {"mlp"}
    assert {c.spec.model.name for c in plan.cells if c.at["data"] != "texas100"} == {"resnet20"}
    assert {c.spec.federation.rounds for c in plan.cells} == {800}
    assert plan.note == ""


def test_another_data_set_is_held_against_the_nearest_of_the_paper_and_it_says_so() -> None:
    plan = sweeping.lay_out(get("mask-selection"), data=["location30"])
    greedy = next(c for c in plan.cells if c.at["attack"] == "fedpoisonmia-greedy" and c.at["defense"] == "top_k")
    assert greedy.paper == 0.914
    assert plan.note == "Location30 is held against the paper's Texas100"


def test_sweeps_share_the_runs_that_they_have_in_common() -> None:
    main, masks = tiny_plan("main-c08").runs(), tiny_plan("mask-selection").runs()
    assert len(main.keys() & masks.keys()) == 12


def test_trim_follows_the_malicious_clients_as_far_as_the_rule_allows() -> None:
    def trims(name: str, defense: str) -> list[tuple[int, int | float]]:
        found = {
            (c.spec.federation.malicious, c.spec.defense.trim)
            for c in tiny_plan(name).cells
            if c.at["defense"] == defense
        }  # type: ignore[attr-defined]
        return sorted(found)

    # 8 of 10 clients are picked: 2b < 8.
    assert trims("malicious-fraction", "atm") == [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3)]
    assert trims("partial-knowledge", "trimmed_mean") == [(10, 10)]
    assert trims("main-c08", "atm") == [(1, 1)]


def test_seeds_are_different_runs_of_the_same_cell() -> None:
    plan = tiny_plan("mask-selection", seeds=3)
    runs = plan.runs({"defense": {"atm"}, "attack": {"fedpoisonmia-random"}})
    assert sorted((s.seed, s.federation.partition.name) for s in runs.values()) == [
        (seed, name) for seed in range(3) for name in ("iid", "label_bias")
    ]


def test_a_plan_keeps_the_larger_number_of_seeds(tmp_path: Path) -> None:
    sweeping.write(tiny_plan("mask-selection", seeds=3), tmp_path)
    sweeping.write(tiny_plan("mask-selection", seeds=1), tmp_path)
    (content,) = sweeping.saved(tmp_path)
    assert content["seeds"] == 3
    assert {len(cell["runs"]) for cell in content["cells"]} == {3}
    sweeping.write(tiny_plan("mask-selection", extra=("federation.batch_size=32",)), tmp_path)
    assert len(sweeping.saved(tmp_path)) == 2


def test_the_command_of_a_plan_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    plan = replace(tiny_plan("mask-selection"), arguments=(str(tmp_path / "steps.yaml"), "--rounds", "3"))
    assert plan.command == "scapegoat sweep steps.yaml --rounds 3 --seeds 1 --out DIR"


def test_a_plan_of_another_version_is_left_out_and_named(tmp_path: Path) -> None:
    path = sweeping.write(tiny_plan("mask-selection"), tmp_path)
    path.write_text('{"format": 0}')
    named = {}
    assert sweeping.saved(tmp_path, named.__setitem__) == []
    assert "another version" in named[path.name]
    with pytest.raises(InputError, match="another version"):
        sweeping.write(tiny_plan("mask-selection"), tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defense", "the axes of mask-selection are data, attack, defense, partition"),
        ("rule=atm", "the axes of mask-selection are"),
        ("defense=krum", "defense has no 'krum'"),
    ],
)
def test_only_what_the_sweep_has_can_be_chosen(text: str, message: str) -> None:
    plan = tiny_plan("mask-selection")
    with pytest.raises(InputError, match=message):
        sweeping.parse_only(plan.sweep, [text], plan.axes)


def test_settings_that_undo_what_the_sweep_varies_are_refused() -> None:
    with pytest.raises(InputError, match=r"come to the same run after --set .*; .*--only defense="):
        tiny_plan("main-c08", extra=("defense.name=atm",))


def test_a_setting_that_a_cell_refuses_names_the_cell() -> None:
    with pytest.raises(InputError, match=r"main-c08 \(data=hospital, attack=passive, defense=trimmed_mean"):
        tiny_plan("main-c08", extra=("federation.clients=2",))


def test_an_unknown_sweep_gets_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'mask-selection'"):
        get("mask-selecton")


class TestOwnSweep:
    def write(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    def test_a_grid_of_lists(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "title: Rates\n"
            "base: {data: {name: hospital}, federation: {rounds: 7}}\n"
            "grid:\n"
            "  attack.name: [passive, adaptive]\n"
            "  defense: [fedavg, {name: atm, trim: 2}]\n"
            "  federation.server.lr: [0.1, 0.01]\n",
        )
        plan = sweeping.lay_out(own.load(path), overrides=["federation.batch_size=8"])
        assert len(plan.cells) == 8
        assert {c.spec.federation.rounds for c in plan.cells} == {7}
        assert {c.spec.federation.batch_size for c in plan.cells} == {8}
        assert [p.key for p in plan.axes[2].points] == ["fedavg", "atm trim=2"]
        sweeping.write(plan, tmp_path)
        (section,) = sections(tmp_path)
        assert section.tables[0].columns == (("0.1",), ("0.01",))
        assert section.tables[0].rows[0] == ("passive", "fedavg")

    def test_a_figure_of_ones_own(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "grid: {attack.name: [passive, adaptive], federation.server.lr: [0.1, 0.01]}\n"
            "figure: {x: federation.server.lr, line: attack.name}\n",
        )
        sweeping.write(sweeping.lay_out(own.load(path), data=["hospital"]), tmp_path)
        (section,) = sections(tmp_path)
        assert [line.label for line in section.figures[0].panels[0].lines] == ["passive", "adaptive"]

    def test_data_sets_with_options_are_an_axis_like_any_other(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path, "grid: {data: [hospital, {name: hospital, train: 900}], attack.name: [passive, adaptive]}\n"
        )
        plan = sweeping.lay_out(own.load(path))
        assert [(c.at["data"], c.spec.data.train) for c in plan.cells if c.spec.attack.name == "passive"] == [
            ("hospital", None),
            ("hospital train=900", 900),
        ]
        assert len(plan.cells) == 4
        sweeping.write(plan, tmp_path)
        (section,) = sections(tmp_path)
        assert section.tables[0].rows == (("hospital",), ("hospital train=900",))
        assert section.tables[0].columns == (("passive",), ("adaptive",))

    @pytest.mark.parametrize("key", ["data", "data.name"])
    def test_data_sets_of_the_grid_and_of_the_command_line_exclude_each_other(self, key: str, tmp_path: Path) -> None:
        path = self.write(tmp_path, f"grid: {{{key}: [hospital]}}\n")
        with pytest.raises(InputError, match=f"--data texas100: mine has {key} in its grid; --only {key}="):
            sweeping.lay_out(own.load(path), data=["texas100"])

    def test_a_figure_for_each_data_set_of_the_grid(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "grid: {data: [hospital, location30], attack.name: [passive, adaptive], seed: [1, 2]}\n"
            "figure: {x: seed, line: attack.name, panel: data}\n"
            "metrics: [auc]\n",
        )
        sweeping.write(sweeping.lay_out(own.load(path)), tmp_path)
        (section,) = sections(tmp_path)
        assert [[p.title for p in f.panels] for f in section.figures] == [["hospital"], ["location30"]]

    def test_the_metrics_that_may_be_asked_for_are_those_that_a_report_draws(self) -> None:
        assert set(METRICS) == set(BY_KEY)

    def test_a_setting_that_would_swallow_another_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "base: {federation: 5}\ngrid: {federation.rounds: [1, 2]}\n")
        with pytest.raises(
            InputError, match=r"\(federation.rounds=1\): federation.rounds: federation is 5, which has no"
        ):
            sweeping.lay_out(own.load(path))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("grid: {seed: [1]}\nmetrics: [foo]", "metrics: 'foo' is not known"),
            ("grid: {seed: [1]}\nmetrics: accuracy_best", "metrics: 'accuracy_best' is not a list"),
            ("grid: {seed: [1]}\nmetrics: []", "metrics: .* is not a list"),
            ("grid: {seed: [1]}\ncolumns: 5", "columns: 5 is not a list of keys"),
            ("grid: {seed: [1], attack.name: [passive]}\nrows: [1, attack.name]", "rows: .* is not a list of keys"),
            ("grid: {seed: [1]}\nbase: {5: 6}", "base: a mapping"),
            ("grid: {seed: [1], data: [hospital]}\nfigure: {x: seed, line: data}", "make data the panel"),
            ("grid: {}", "grid is missing"),
            ("[1]", "a mapping"),
            ("grid: {seed: 3}", "grid.seed: a list"),
            ("grid: {seed: [1, 1]}", "twice"),
            ("grid: {seed: [1]}\nbasis: {}", "'basis' is not a known key"),
            ("grid: {seed: [1]}\nbase: 3", "base: a mapping"),
            ("grid: {seed: [1], threads: [1]}\nrows: [seed]\ncolumns: [seed]", "must name each key of the grid once"),
            ("grid: {seed: [1], threads: [1]}\nfigure: {x: seed}", "must name each key of the grid once"),
            ("grid: {seed: [1], attack.name: [passive]}\nfigure: {x: attack.name, line: seed}", "must be numbers"),
        ],
    )
    def test_what_is_not_a_sweep_is_refused_in_one_line(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            own.load(self.write(tmp_path, text))
        assert "\n" not in str(caught.value)


class TestStatus:
    def test_done_running_failed_damaged_and_left(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        wanted = [spec(seed=s) for s in range(2)]
        execute([*wanted, spec(targets=4000)], store)
        names = store.finished()
        hopeless = next(p.name.removesuffix(".part") for p in store.runs.glob("*.part"))
        (store.path(names[0]) / "summary.json").write_text("{")
        beat = marks.Heartbeat(store, "under-way", {})
        beat.beat(3, 10)
        stopped = marks.Heartbeat(store, "stopped", {})
        stopped.beat(5, 10)
        (store.part("stopped") / "progress.json").write_text(
            '{"round": 5, "rounds": 10, "pid": 0, "host": "elsewhere"}'
        )
        kinds = dict.fromkeys([*names, hopeless, "under-way", "stopped", "untouched"], "passive")
        found = status(store, kinds)
        assert found.done == (names[1],)
        assert list(found.damaged) == [names[0]]
        assert "records" in found.failed[hopeless]
        assert found.running == {"under-way": (3, 10)}
        assert found.left == ("stopped", "untouched")
        assert found.total == 6
        seconds = store.summary(names[1])["seconds"]
        assert found.seconds_left == pytest.approx(seconds * (0.7 + 0.5 + 1.0))

    def test_nothing_is_estimated_from_nothing(self, tmp_path: Path) -> None:
        assert status(RunStore(tmp_path), {"a": ""}).seconds_left is None
        assert status(RunStore(tmp_path), {}).seconds_left == 0.0

    def test_a_saved_plan_knows_its_runs(self, tmp_path: Path) -> None:
        plan = tiny_plan("mask-selection")
        sweeping.write(plan, tmp_path)
        assert list(of_plan(sweeping.saved(tmp_path)[0])) == list(plan.runs())
