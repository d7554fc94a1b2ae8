from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scapegoat.cli import main

Store = tuple[Path, dict[tuple[str, str, int], dict[str, Any]]]


def run(*arguments: str) -> int:
    try:
        main(["report", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_it_writes_the_page_and_prints_the_verdict(
    small: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "page.html"
    assert run(str(small[0]), "--out", str(out), "--title", "Ward 9") == 0
    assert "<h1>Ward 9</h1>" in out.read_text()
    printed = capsys.readouterr().out
    assert "With FedAvg a hostile client out of ten" in printed
    assert printed.endswith(f"Written: {out}\n")


def test_the_page_goes_to_report_html_by_default(small: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(str(small[0])) == 0
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(("form", "start"), [("markdown", "# "), ("latex", "% needs"), ("csv", "table,setting,")])
def test_tables_are_printed_or_written(
    small: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, start: str
) -> None:
    assert run(str(small[0]), "--format", form) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(start)
    assert run(str(small[0]), "--format", form, "--out", str(tmp_path / "table")) == 0
    assert (tmp_path / "table").read_text() == printed


def test_figures_are_written_beside_it(single: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(single), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f")) == 0
    count = len(list((tmp_path / "f").iterdir()))
    assert f"{count} figures in" in capsys.readouterr().out
    assert count > 0


def test_wrong_input_is_one_line_and_exit_code_2(
    small: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for arguments in (
        (str(tmp_path / "nowhere"),),
        (str(tmp_path / "file"),),
        (str(small[0]), "--out", str(tmp_path)),
        (str(small[0]), "--out", str(tmp_path / "file" / "page.html")),
        (str(small[0]), "--out", str(tmp_path / "x.html"), "--figures", str(tmp_path / "file")),
    ):
        assert run(*arguments) == 2, arguments
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert "Traceback" not in message
    assert run(str(small[0]), "--format", "docx") == 2


def test_a_report_needs_no_torch(small: Store, tmp_path: Path) -> None:
    code = f"import sys; from scapegoat import report; report.write_html(report.build({str(small[0])!r}), 'r.html'); "
    code += "assert 'torch' not in sys.modules, 'torch was imported'; import scapegoat.cli.report"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
