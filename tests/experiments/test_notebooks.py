"""What Python users see in a notebook: a line of progress, and input errors in one line."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import scapegoat as sg
from scapegoat.errors import InputError
from tests.experiments.tiny import DATA, spec


class ZMQInteractiveShell:
    """The shell of a notebook's kernel, by its name."""


class TerminalInteractiveShell:
    """IPython in a terminal."""


def small_audit(**options):
    return sg.audit(
        data=DATA, model={"name": "mlp", "hidden": [16]}, attacks=["passive"], defenses=["fedavg", "median"],
        clients=4, rounds=2, attack_options={"targets": 40, "mask": 20}, jobs=1, **options,
    )  # fmt: skip


def inside(monkeypatch, shell):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell))


def test_an_audit_in_a_notebook_counts_its_runs_on_one_line(monkeypatch, capsys):
    inside(monkeypatch, ZMQInteractiveShell)
    small_audit()
    out = capsys.readouterr().out
    assert "\r2 of 2 runs done" in out
    assert "\n" not in out
    assert out.endswith("\r")


def test_a_run_in_a_notebook_counts_its_rounds(monkeypatch, capsys):
    inside(monkeypatch, ZMQInteractiveShell)
    sg.run(spec(rounds=2))
    out = capsys.readouterr().out
    assert out.startswith("\rround 1 of 2")
    assert out.endswith("\r")


@pytest.mark.parametrize("shell", [TerminalInteractiveShell, lambda: None])
def test_elsewhere_python_code_prints_nothing(monkeypatch, capsys, shell):
    inside(monkeypatch, shell)
    small_audit()
    assert capsys.readouterr().out == ""


def test_who_watches_the_runs_gets_no_line_beside_it(monkeypatch, capsys):
    inside(monkeypatch, ZMQInteractiveShell)
    seen = []
    small_audit(on_event=seen.append)
    assert "runs done" not in capsys.readouterr().out
    assert [event.kind for event in seen].count("finished") == 2


def test_a_notebook_shows_an_input_error_without_our_frames():
    with pytest.raises(InputError) as caught:
        sg.audit(data="hospitl")
    (line,) = caught.value._render_traceback_()
    assert line.startswith("OptionError: data.name: 'hospitl' is not a data set, did you mean 'hospital'?")
