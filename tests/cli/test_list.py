"""`scapegoat list`: every option says what it means and what it may be."""

from __future__ import annotations

import importlib
import json
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

from scapegoat.cli import main
from scapegoat.cli.list import KINDS, allowed, rows


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["list", *arguments])
    assert not stopped.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_of_every_component_is_described_and_says_what_is_allowed(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = importlib.import_module(KINDS[kind]).registry
    for row in json.loads(listed(capsys, kind, "--json")):
        if not ours.cls(row["name"]).__module__.startswith("scapegoat."):
            continue
        assert row["summary"], row["name"]
        for option in row["options"]:
            assert option["description"], f"{kind} {row['name']}: {option['name']} says nothing of itself"
            assert option["allowed"] not in ("", "anything", "list"), f"{kind} {row['name']}: {option['name']}"


def test_the_site_lists_every_component_with_every_option() -> None:
    hook = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "options.py"))
    page = hook["on_page_markdown"](f"# Options\n\n{hook['MARK']}\n")
    for kind in (*KINDS, "sweeps"):
        for row in rows(kind):
            assert f"### {row['name']}\n" in page
            assert all(f"| `{option['name']}` | " in page for option in row["options"])


def test_one_component_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(listed(capsys, "attacks", "fedpoisonmia").split())
    assert "Algorithm 1" in text
    assert "greedy | random" in text
    assert "number > 0 and <= 1" in text


def test_options_that_all_share_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = listed(capsys, "attacks")
    assert text.count("start_round=0") == 1
    assert "All of them take:" in text


def test_what_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["list", "attacks", "nonsense"])
    assert stopped.value.code == 2
    assert "there is no 'nonsense'" in capsys.readouterr().err


def test_paragraphs_fill_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    about = listed(capsys, "attacks", "fedpoisonmia").partition("\noption")[0]
    for paragraph in about.strip().split("\n\n"):
        lines = paragraph.splitlines()[1 if paragraph.startswith("fedpoisonmia") else 0 :]
        for line, following in pairwise(lines):
            # What follows would not have fitted.
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > 80, line


def test_examples_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n>>> Classification().margins(" in listed(capsys, "tasks", "classification")


@pytest.mark.parametrize("arguments", [["atm"], ["attacks", "atm"]])
def test_a_name_of_another_kind_is_pointed_to(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["list", *arguments])
    assert stopped.value.code == 2
    assert "atm is a defense: `scapegoat list defenses atm`" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 1}, "whole number >= 1"),
        ({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}, "number > 0, or null"),
        ({"enum": ["a", "b"]}, "a | b"),
        ({"type": "integer", "maximum": 16777216}, "whole number <= 16,777,216"),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}}, "list, each whole number >= 1"),
        ({"allowed": "a defense"}, "a defense"),
        ({}, "anything"),
    ],
)
def test_what_is_allowed_is_said_as_a_person_says_it(schema: dict[str, object], said: str) -> None:
    assert allowed(schema) == said
