"""Our bounds on epsilon beside those of the published package, for the cases whose numbers the tests keep.

    pip install --no-deps --target published jax_privacy==2.0.0
    python -m results.published_packages published

The package goes into a folder of its own, never into the environment, and without what it depends on: of it one
module is read, which needs NumPy, SciPy and dp-accounting (in the extra `dp`) but not JAX. The scores of the other two
packages cannot be had so: the Privacy Meter that pip installs (1.0.1, of 2023) has no RMIA, and the `privacy_guard`
there is another project. Their numbers in `tests/membership/test_scores.py` come from the repositories, at the commits
named there.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from scapegoat.errors import InputError
from scapegoat.membership import epsilon, guessing

DELTA = 1e-5
SIGNIFICANCE = 0.05
GUESSES = (
    (300, 300, 300),
    (1000, 1000, 1000),
    (300, 30, 27),
    (1000, 100, 90),
    (1000, 1000, 650),
    (1000, 1000, 880),
    (300, 300, 240),
    (200, 20, 20),
)
"""Targets, guesses, correct guesses."""
ERRORS = (
    (500, 50, 500, 5),
    (500, 0, 500, 0),
    (150, 30, 150, 1),
    (480, 240, 520, 3),
    (1000, 700, 1000, 2),
    (200, 100, 200, 100),
)
"""Members, missed ones, non-members, false alarms, at one threshold that is fixed."""


def jax_privacy(folder: Path) -> ModuleType:
    """The package's module of bounds, read by itself: the package would import JAX."""
    path = folder / "jax_privacy" / "auditing.py"
    found = importlib.util.spec_from_file_location("jax_privacy_auditing", path) if path.exists() else None
    if found is None or found.loader is None:
        raise InputError(f"{path}: is not there; pip install --no-deps --target {folder} jax_privacy==2.0.0")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # its dataclasses look themselves up
    found.loader.exec_module(module)
    return module


def compared(theirs: ModuleType) -> Iterator[tuple[str, tuple[int, ...], float, float]]:
    """Bound, case, our number and theirs."""
    for case in GUESSES:
        ours = guessing.epsilon_of_guesses(*case, DELTA, SIGNIFICANCE)
        yield "one run", case, ours, theirs._epsilon_one_run(0.0, *case, SIGNIFICANCE, DELTA)
    for case in GUESSES:
        ours = guessing.gaussian_epsilon_of_guesses(*case, DELTA, SIGNIFICANCE)
        # A Gaussian mechanism with epsilon 0 does not exist.
        yield "one run, Gaussian", case, ours, theirs._epsilon_one_run_fdp(1e-9, *case, SIGNIFICANCE, DELTA)
    for counts in ERRORS:
        members, missed, others, alarms = counts
        inside, outside = np.arange(members) >= missed, np.arange(others) < alarms
        member = np.arange(members + others) < members
        ours = epsilon.clopper_pearson(np.r_[inside, outside] * 1.0, member, DELTA, 1 - SIGNIFICANCE, threshold=0.5)
        auditor = theirs.CanaryScoreAuditor(inside * 1.0, outside * 1.0)
        fixed = theirs.Explicit(0.5)
        bound = auditor.epsilon_clopper_pearson(SIGNIFICANCE, DELTA, one_sided=False, threshold_strategy=fixed)
        yield "one threshold", counts, ours, bound


def main() -> None:
    """Print both, and the largest difference."""
    parser = argparse.ArgumentParser(description="Our bounds on epsilon beside those of jax_privacy.")
    parser.add_argument("folder", type=Path, help="where the package was installed to")
    options = parser.parse_args()
    print("| bound | case | ours | jax_privacy |", "| --- | --- | --- | --- |", sep="\n")
    largest = 0.0
    for bound, case, ours, theirs in compared(jax_privacy(options.folder)):
        print(f"| {bound} | {', '.join(map(str, case))} | {ours:.6f} | {theirs:.6f} |")
        largest = max(largest, abs(ours - theirs))
    print(f"\nThe largest difference is {largest:.1e}.")


if __name__ == "__main__":
    main()
