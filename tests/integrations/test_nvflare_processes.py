"""FLARE's processes: what a message says of a job that failed."""

from __future__ import annotations

import pytest

from scapegoat.integrations.nvflare.processes import raised

TRACEBACK = """2026-01-01 10:00:00,000 - INFO - start task run()
2026-01-01 10:00:00,100 - ERROR - Traceback (most recent call last):
  File "client.py", line 22, in main
    raise RuntimeError("an Error: not at the beginning of a line")
torch.cuda.OutOfMemoryError: out of memory
During handling of the above exception, another exception occurred:
{last}
2026-01-01 10:00:00,200 - ERROR - ask to abort job: reason: 'client.py' is aborted
"""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("RuntimeError: no data on this site", " (RuntimeError: no data on this site)"),
        ("KeyboardInterrupt", " (KeyboardInterrupt)"),
        ("my_package.errors.NoRecordsError: ward \x1b[31m7", " (my_package.errors.NoRecordsError: ward [31m7)"),
        ("", " (torch.cuda.OutOfMemoryError: out of memory)"),
    ],
)
def test_a_failed_job_is_told_by_the_last_exception_of_its_log(tmp_path, last, said):
    log = tmp_path / "simulator.log"
    log.write_text(TRACEBACK.format(last=last))
    assert raised(tmp_path / "none.log", log) == said


def test_a_log_without_an_exception_adds_nothing(tmp_path):
    (tmp_path / "site-1.log").write_text("2026-01-01 - ERROR - lost the server\n")
    assert raised(tmp_path / "site-1.log") == ""
