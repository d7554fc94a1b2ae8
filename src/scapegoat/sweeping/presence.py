"""Whether the data sets of a sweep are there: found out once, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scapegoat import data
from scapegoat.data.files.locate import find, missing
from scapegoat.data.files.published import PublishedData
from scapegoat.experiments.spec import Spec


def absent(specs: Iterable[Spec], root: str | Path | None) -> dict[str, str]:
    """Published data sets whose files are not there, with what to do about each.

    A user's own file is found, or missed, when the sweep is planned.
    """
    roots = data.roots(root)
    wanted = {spec.data.name: spec.data for spec in specs}
    return {
        name: str(missing(name, chosen.publication, roots))
        for name, chosen in wanted.items()
        if isinstance(chosen, PublishedData) and find(name, chosen.publication, roots) is None
    }
