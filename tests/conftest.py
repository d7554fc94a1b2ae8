import os

import pytest
from hypothesis import settings

# A failure in CI must be one that the next run shows again; at home, every run looks somewhere else.
# No deadlines anywhere: a busy machine is no defect.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("home", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "home")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = len(terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("NOT TESTED", red=True, bold=True)
        terminalreporter.line(f"{skipped} tests were skipped; the summary says why. In CI that is a failure.")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
