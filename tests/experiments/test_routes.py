"""Measured routes: chosen once per machine, the same numbers for the same spec, kept by a run that goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, executors
from scapegoat.experiments.route_timing import fastest
from scapegoat.experiments.routes import _model_name, told
from scapegoat.experiments.run import Result, prepare, run
from scapegoat.experiments.spec import parse
from scapegoat.kernels.routes import FIXED, Routes
from tests.experiments.tiny import assert_same_numbers, spec

AUTOGRAD = {"passes": "autograd", "scoring": "dense", "crafting": "dense"}
BY_HAND = {"passes": "hand", "together": 2, "records": "looked_up", "weights": "looked_up", "scoring": "looked_up"}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(folder))
    return folder


def measured(attack: str = "fedpoisonmia", **options: Any) -> dict[str, Any]:
    return spec(attack, **options) | {"routes": "measured"}


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("routes-*/routes.json"))


def found_to_be(cache: Path, routes: dict[str, Any]) -> None:
    """As if a machine had found these routes to be the fastest."""
    for file in kept(cache):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"routes": routes}))


def taken(result: Result) -> dict[str, Any]:
    return {k: v for k, v in result.summary["routes"].items() if k not in ("chosen", "processor")}


def assert_same(one: Result, other: Result) -> None:
    assert one.rounds.equals(other.rounds)
    assert one.targets.equals(other.targets)
    assert one.summary | {"seconds": 0} == other.summary | {"seconds": 0}


def test_a_spec_that_does_not_ask_measures_nothing_and_keeps_its_name(cache: Path) -> None:
    plain = run(spec())
    assert not kept(cache)
    assert plain.summary["routes"]["chosen"] == "fixed"
    assert taken(plain) == {}
    assert parse(spec() | {"routes": "fixed"}).hash == parse(spec()).hash
    assert parse(measured("passive")).hash != parse(spec()).hash


def test_an_unknown_way_to_choose_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"routes.*'fixed' or 'measured'"):
        parse(spec() | {"routes": "guessed"})


def test_one_worker_and_two_take_the_same_routes_to_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    wanted = [measured(a, defense=d) for a in ("passive", "fedpoisonmia") for d in ("fedavg", "median")]
    assert executors.execute(wanted, tmp_path / "one").complete
    assert executors.execute(wanted, tmp_path / "two", jobs=2).complete
    assert_same_numbers(RunStore(tmp_path / "one"), RunStore(tmp_path / "two"))
    # Passive attacks ask for no crafting: other questions, another entry.
    assert len(kept(cache)) == 2


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_keeps_its_routes_whatever_the_cache_says_by_then(tmp_path: Path, cache: Path, stop: int) -> None:
    wanted = measured(rounds=5)
    prepare(parse(wanted))
    found_to_be(cache, AUTOGRAD)
    whole = run(wanted)
    assert taken(whole) == AUTOGRAD

    def progress(record: Any, _: int) -> None:
        if record.round == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(wanted, store=tmp_path, progress=progress)
    found_to_be(cache, BY_HAND)
    assert_same(run(wanted, store=tmp_path), whole)
    assert taken(run(wanted)) == BY_HAND


def test_a_resumed_run_times_nothing_where_the_cache_is_gone(tmp_path: Path, cache: Path) -> None:
    wanted = measured(rounds=4)
    prepare(parse(wanted))
    found_to_be(cache, AUTOGRAD)

    def progress(record: Any, _: int) -> None:
        if record.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(wanted, store=tmp_path, progress=progress)
    for file in kept(cache):
        shutil.rmtree(file.parent)
    assert taken(run(wanted, store=tmp_path)) == AUTOGRAD
    assert not kept(cache)


def test_processors_of_one_name_are_told_apart_by_their_generation(tmp_path: Path) -> None:
    milan = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\ncpu family\t: 25\nstepping\t: 1\n\nprocessor\t: 1\n"
    arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
    texts = [milan, milan.replace(": 1\nmodel name", ": 17\nmodel name"), milan.replace(": 25", ": 26")]
    texts += [milan.replace("stepping\t: 1", "stepping\t: 2"), arm, arm.replace("0xd0c", "0xd40")]
    names = []
    for i, text in enumerate(texts):
        (tmp_path / str(i)).write_text(text)
        names.append(_model_name(tmp_path / str(i)))
    assert len({*names}) == len(texts)
    assert names[0] == "AMD EPYC, cpu family 25, model 1, stepping 1"
    assert _model_name(tmp_path / "none")


def test_on_a_device_a_summary_says_that_nothing_was_measured() -> None:
    assert told("measured", FIXED, torch.device("cpu"))["chosen"] == "measured"
    assert told("measured", FIXED, torch.device("meta"))["chosen"] == "fixed"


def test_routes_agree_up_to_rounding(cache: Path) -> None:
    prepare(parse(measured()))
    margins = []
    for routes in (AUTOGRAD, BY_HAND, {}):
        found_to_be(cache, routes)
        margins.append(run(measured()).targets["score_final"].to_pylist())
    assert margins[0] == pytest.approx(margins[1], abs=1e-3)
    assert margins[0] == pytest.approx(margins[2], abs=1e-3)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"format": 3', '"format": 0'),
        lambda text: json.dumps(json.loads(text) | {"routes": {"passes": "by magic"}}),
        lambda text: json.dumps(json.loads(text) | {"routes": {"together": -1}}),
        lambda text: json.dumps(json.loads(text) | {"routes": {"detour": "dense"}}),
        lambda text: json.dumps(json.loads(text) | {"routes": ["passes"]}),
    ],
)
def test_a_damaged_entry_is_ignored_and_replaced(cache: Path, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    prepare(parse(measured()))
    (entry,) = kept(cache)
    entry.write_text(damage(entry.read_text()))
    prepare(parse(measured()))
    assert "damaged" in caplog.text
    assert set(json.loads(entry.read_text())["milliseconds"]) == {"training", "scoring", "crafting"}
    assert kept(cache) == [entry]


def test_what_cannot_be_kept_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path / "file"))
    assert prepare(parse(measured())).model.routes == FIXED
    assert "the fixed ones are taken" in caplog.text


def ticking(seconds: dict[Routes, list[float]]) -> tuple[Any, Any]:
    """A clock by which each candidate takes as long as is said, call by call (the last from then on)."""
    now = 0.0
    scripts: dict[Routes, Iterator[float]] = {routes: iter(times) for routes, times in seconds.items()}

    def call(routes: Routes) -> None:
        nonlocal now
        now += next(scripts[routes], seconds[routes][-1])

    return call, lambda: now


@pytest.mark.parametrize(
    ("fixed", "other", "best"),
    [
        ([1.0], [0.9], 1),
        ([1.0], [0.98], 0),  # less than timing can tell
        ([1.0], [3.0], 0),
        ([0.01], [9.0, 0.009], 1),  # one busy moment decides nothing
        ([0.01, 9.0], [0.011, 0.011], 0),
    ],
)
def test_the_fastest_is_taken_and_the_rule_of_thumb_stays_where_nothing_beats_it(
    fixed: list[float], other: list[float], best: int
) -> None:
    candidates = [FIXED, Routes(passes="autograd")]
    call, clock = ticking(dict(zip(candidates, (fixed, other), strict=True)))
    place, seconds = fastest(candidates, call, clock)
    assert place == best
    assert seconds == pytest.approx([min(fixed), min(other)])
