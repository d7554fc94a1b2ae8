"""A folder of runs, read back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from scapegoat import report
from scapegoat.findings.shown import Shown
from scapegoat.report.sweeps import sections


@dataclass(frozen=True, repr=False)
class Findings(Shown):
    """The runs of a folder, and the tables and figures of the sweeps that were started in it.

    Examples
    --------
    >>> Findings(Path("audit"), title="Our wards").title
    'Our wards'
    """

    folder: Path
    """Where the runs are."""
    title: str = ""
    """Heading of the page."""
    _page: list[report.Page] = field(default_factory=list, repr=False)

    @property
    def page(self) -> report.Page:
        """The report as data, from what the folder held when it was first asked for."""
        if not self._page:
            drawn = sections(self.folder) if (self.folder / "sweeps").is_dir() else ()
            command = shlex.join(["scapegoat", "report", str(self.folder)])
            self._page.append(report.build(self.folder, title=self.title, command=command, sections=drawn))
        return self._page[0]

    @property
    def verdicts(self) -> tuple[report.Verdict, ...]:
        """The answer in plain words, one per setting."""
        return tuple(study.verdict for study in self.page.studies)

    def __repr__(self) -> str:
        cells = [cell for study in self.page.studies for cell in study.matrix.cells.values()]
        runs = sum(bool(run.measures) for cell in cells for run in cell.runs)
        settings = len(self.page.studies)
        return f"Findings({str(self.folder)!r}: {runs} runs of {settings} setting{'' if settings == 1 else 's'})"


def load(folder: str | Path, title: str = "") -> Findings:
    """What `audit`, `run --out` or `sweep` left in a folder.

    Parameters
    ----------
    folder: the folder; InputError where it holds no runs.
    title: heading of the page.

    Returns
    -------
    Its runs as `page`, `table()`, `to_frame()`, `verdicts` and, with `save("report.html")`, as a file. A damaged run is
    named in the page and stops nothing.

    Examples
    --------
    >>> import tempfile
    >>> import scapegoat as sg
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sg.run(small, store=folder)
    ...     sg.load(folder).verdicts[0].status
    'undertrained'
    """
    found = Findings(Path(folder), title)
    found.page  # noqa: B018  what is wrong with the folder is said here, not at first use
    return found
