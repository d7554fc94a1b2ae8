"""The comparison with the published package is about the cases whose numbers are kept, and says how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from results import published_packages
from scapegoat.errors import InputError
from tests.membership.test_epsilon import JAX_PRIVACY, JAX_PRIVACY_THRESHOLD

KEPT = Path(__file__).parents[2] / "results" / "evidence" / "published-packages.md"


def test_the_cases_are_those_whose_numbers_the_tests_keep() -> None:
    assert set(published_packages.GUESSES) == set(JAX_PRIVACY)
    assert set(published_packages.ERRORS) == set(JAX_PRIVACY_THRESHOLD)
    rows = [line.split(" | ") for line in KEPT.read_text().splitlines() if line.startswith("| one ")]
    theirs = {(row[0].strip("| "), row[1]): float(row[3].strip(" |")) for row in rows}
    assert len(theirs) == 2 * len(JAX_PRIVACY) + len(JAX_PRIVACY_THRESHOLD)
    for case, (general, gaussian) in JAX_PRIVACY.items():
        name = ", ".join(map(str, case))
        found = (theirs["one run", name], theirs["one run, Gaussian", name])
        assert found == pytest.approx((general, gaussian), abs=2e-6)


def test_a_package_that_is_not_there_is_said_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pip install --no-deps --target"):
        published_packages.jax_privacy(tmp_path)
