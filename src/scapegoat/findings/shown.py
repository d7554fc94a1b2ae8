"""What can be shown as a report: the page, tables, a data frame."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa

from scapegoat import report


class Shown:
    """Anything with a `page`. In a notebook it shows itself."""

    @property
    def page(self) -> report.Page:
        """The report as data."""
        raise NotImplementedError

    def table(self) -> str:
        """Leakage and test accuracy, attack by defense, as Markdown."""
        return report.to_markdown(self.page)

    def to_html(self) -> str:
        """The report as one HTML file."""
        return report.to_html(self.page)

    def to_frame(self) -> Any:
        """The finished runs, a row each, as a pandas data frame; without pandas, as a pyarrow table."""
        several = len(self.page.studies) > 1
        rows = [
            ({"setting": study.title} if several else {}) | row
            for study in self.page.studies
            for row in report.run_rows(study)
        ]
        table = pa.Table.from_pylist(rows)
        return table.to_pandas() if importlib.util.find_spec("pandas") is not None else table

    def save(self, path: str | Path) -> Path:
        """Write the report to a file."""
        return report.write_html(self.page, path)

    def _repr_html_(self) -> str:
        return report.to_iframe(self.page)
