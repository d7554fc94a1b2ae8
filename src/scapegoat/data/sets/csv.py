"""A user's own table as text: `csv:PATH`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from scapegoat.data.base import register
from scapegoat.data.files.cache import Decoded
from scapegoat.data.files.user_tables import UserTable
from scapegoat.data.formats.columns import from_arrow
from scapegoat.data.formats.comma_separated import read_csv, refuse_other_encodings, unnamed
from scapegoat.data.formats.safe_io import wrong


@register("csv")
class CsvData(UserTable):
    """A table whose first line names its columns, separated by commas, semicolons, tabs or bars; plain or gzip.

    `label` says which column has the classes. Numbers are features as they are, text is one-hot encoded (at most
    `categories` different ones per column), missing values are refused unless `missing` says what to do, and columns in
    `drop` or without a name are left out. Every feature gets mean 0 and variance 1 unless `standardize` is off.
    """

    folders: ClassVar[bool] = False

    @property
    def pictures(self) -> bool:
        """Never."""
        return False

    def decode(self, path: Path) -> Decoded:
        """The rows in the order of the file."""
        if self.tokens:
            raise wrong(path, "tokens are read from npz: and parquet: files; a table as text has numbers and text")
        table, _ = read_csv(path)
        nameless = [name for name in table.column_names if unnamed(name)]
        label, names = self.chosen([name for name in table.column_names if name not in nameless], path)
        refuse_other_encodings(table, (label, *names), path)
        columns = [from_arrow(name, table.column(name), path) for name in (label, *names)]
        del table
        made = self.assembled(columns[0], columns[1:], path)
        if not nameless:
            return made
        note = f"{len(nameless)} column{'s' if len(nameless) > 1 else ''} without a name left out"
        return replace(made, notes=(*made.notes, note))
