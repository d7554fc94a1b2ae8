"""How many targets an audit asks about, as many as leave the training as it is, and how many test records it takes."""

from __future__ import annotations

from pathlib import Path

from scapegoat.data import Dataset, DataSpec
from scapegoat.data.splits import LEAST_TEST, MOST_TEST
from scapegoat.experiments import Spec
from scapegoat.experiments.staging import records_of

MOST_TARGETS = 1_000
"""More make intervals hardly narrower, and every attack slower."""
LEAST_TARGETS = 300


def fitting_targets(records: int, published_test: int, data: DataSpec, benign: int, mask: int) -> int:
    """The targets, members or not by a coin each, that fit records without fewer being trained on.

    Training keeps half of the records (or `data.train`), the mask, the server's validation and the test set what they
    ask for; what is left are non-members, and there are as many members. At least `LEAST_TARGETS`, at most
    `MOST_TARGETS`: too few records for the least are refused where the splits are drawn.

    Examples
    --------
    >>> from scapegoat.data import registry
    >>> fitting_targets(5_000, 0, registry.get("hospital"), benign=9, mask=300)
    1000
    >>> fitting_targets(3_000, 0, registry.get("hospital"), benign=9, mask=300)
    1000
    """
    least_test = 0 if published_test else data.test or max(1, int(LEAST_TEST * records))
    train = records // 2 if data.train is None else data.train
    left = records - published_test - mask - data.validation - least_test - train
    # Every client keeps a record that is nobody's target, and the model learns from others than targets as well.
    fitting = min(2 * left, 2 * (train - benign), train)
    return max(LEAST_TARGETS, min(MOST_TARGETS, fitting - fitting % 2))


def targets_for(spec: Spec, root: str | Path | None = None) -> int:
    """The targets that fit the records of a spec."""
    dataset: Dataset = records_of(spec, root)
    return fitting_targets(len(dataset), dataset.published_test, spec.data, spec.federation.benign, spec.attack.mask)


def enough_test(spec: Spec, root: str | Path | None = None) -> int | None:
    """The test records that are enough, where there are more and the user does not say how many."""
    if spec.data.test is not None:
        return None
    dataset = records_of(spec, root)
    data, targets = spec.data, spec.attack.targets
    train = len(dataset) // 2 if data.train is None else data.train
    left = len(dataset) - targets // 2 - spec.attack.mask - data.validation - train
    return MOST_TEST if (dataset.published_test or left) > MOST_TEST else None
