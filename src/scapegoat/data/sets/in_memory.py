"""Records handed over as arrays, `sg.audit(data=(x, y))`: kept in an archive where workers can read them."""

from __future__ import annotations

from pathlib import Path

from scapegoat.data.base import Dataset, register
from scapegoat.data.sets.npz import NpzData
from scapegoat.errors import DataError


@register("given")
class InMemoryData(NpzData):
    """Arrays that Python code handed over; the options are those of `npz`.

    They are what the model is to see, so features stay as they are unless `standardize` is on.
    """

    standardize: bool = False
    """Every feature gets mean 0 and variance 1."""

    @property
    def title(self) -> str:
        """The user never named a file."""
        return "the given records"

    def read(self, roots: list[Path]) -> Dataset:
        """As from any archive; its path, which is gone after the audit, is kept out of the messages."""
        try:
            return super().read(roots)
        except DataError as error:
            raise DataError(str(error).replace(self.path, self.title)) from error
