"""Whether a leakage figure may be believed: what the records alone tell, what chance shows, what can be resolved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scapegoat.errors import InputError
from scapegoat.membership.metrics import Estimate, auc
from scapegoat.membership.scoring import Floats, midranks

FOLDS = 5
DIMENSIONS = 64
"""Records with more columns are also seen through so many random projections."""
COLUMNS = 16
"""And through so many of their columns, those that differ most between the groups of the training folds."""
WIDEST = 16384
"""More columns than this are thinned out evenly."""


@dataclass(frozen=True)
class Blind:
    """What a classifier that never saw the model makes of the records: its AUC should be that of guessing."""

    auc: Estimate

    @property
    def valid(self) -> bool:
        """Whether the interval reaches down to 1/2: nobody then tells members by the records alone.

        An interval wholly below 1/2 is no finding: folds that are trained on each other's complement err together.
        """
        return self.auc.low <= 0.5


def blind_baseline(records: np.ndarray, labels: np.ndarray, member: np.ndarray, seed: int = 0) -> Blind:
    """How well members are told from the records and labels alone (Das et al. 2024, arXiv 2406.16201).

    Logistic regression and boosted shallow trees are cross-validated; a target's score is the mean of its ranks in its
    fold. Where that works, members differ from non-members before any training, and no figure of the run means
    anything.

    Parameters
    ----------
    records: [targets, ...], of any shape per record. What is not finite counts as 0.
    labels: [targets], numbers or names of classes.
    member: [targets] of true and false.
    seed: draws folds and projections.

    Returns
    -------
    The AUC with its interval; 0.5 in [0, 1] with fewer than two members or non-members.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> member = np.arange(200) % 2 == 0
    >>> blind_baseline(rng.normal(size=(200, 5)), np.zeros(200), member).valid
    True
    >>> blind_baseline(rng.normal(size=(200, 5)) + member[:, None], np.zeros(200), member).valid
    False
    """
    from sklearn.model_selection import StratifiedKFold

    truth = np.asarray(member).astype(bool)
    rows = np.asarray(records)
    if len(rows) != len(truth) or np.shape(labels) != truth.shape:
        raise InputError(
            f"records, labels and member must be of the same targets: {len(rows)}, {np.shape(labels)}, {truth.shape}"
        )
    fewest = int(min(truth.sum(), (~truth).sum()))
    if fewest < 2:
        return Blind(Estimate(0.5, 0.0, 1.0))
    rng = np.random.default_rng(seed)
    flat = _standardised(rows)
    common = np.concatenate([_projected(flat, rng), _one_hot(np.asarray(labels))], axis=1)
    score = np.zeros(len(truth))
    folds = StratifiedKFold(min(FOLDS, fewest), shuffle=True, random_state=seed)
    for train, test in folds.split(common, truth):
        telling = _telling_columns(flat, train, truth[train])
        seen = np.concatenate([common, flat[:, telling]], axis=1)
        for predicted in _predictions(seen[train], truth[train], seen[test], seed):
            score[test] += (midranks(predicted) - 0.5) / len(test)
    return Blind(auc(score, truth, seed))


def permutation_p(
    scores: np.ndarray,
    member: np.ndarray,
    statistic: Callable[[np.ndarray, np.ndarray], float] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> float:
    """Probability that chance alone shows at least as much: membership is dealt out again many times.

    Parameters
    ----------
    scores: [targets], or [scores, targets]: then the largest statistic of all scores is compared with the largest of
        each deal, which pays for having tried several.
    member: [targets] of true and false.
    statistic: of scores [targets] and member [targets], larger for more leakage. None: the AUC.
    permutations: deals.
    seed: of the deals.

    Returns
    -------
    (1 + deals at least as large) / (1 + deals): valid whatever the number of deals. 1 with one group only.

    Examples
    --------
    >>> member = np.arange(40) % 2 == 0
    >>> permutation_p(member * 1.0, member), permutation_p(np.zeros(40), member)
    (0.001, 1.0)
    """
    rows, truth = np.atleast_2d(np.asarray(scores, dtype=np.float64)), np.asarray(member).astype(bool)
    if rows.shape[-1] != len(truth) or rows.ndim > 2:
        raise InputError(f"scores are of {rows.shape[-1]} targets, member of {len(truth)}; they must be the same")
    if truth.all() or not truth.any():
        return 1.0
    rng = np.random.default_rng(seed)
    deals = np.stack([truth, *(rng.permutation(truth) for _ in range(permutations))])
    if statistic is None:
        # The AUC rises with the sum of the members' ranks.
        values = (deals @ midranks(rows).T).max(1)
    else:
        values = np.array([max(statistic(row, deal) for row in rows) for deal in deals])
    return float((1 + (values[1:] >= values[0] - 1e-9).sum()) / len(values))


def resolvable(fpr: float, others: int) -> bool:
    """Whether so many non-members can show a false positive rate: at least one of them must be let through.

    Examples
    --------
    >>> resolvable(0.01, 150), resolvable(0.001, 150)
    (True, False)
    """
    return fpr * others >= 1 - 1e-9


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and spread 1, float32; what is not finite is 0. Of very many columns, evenly spaced ones."""
    flat = rows.reshape(len(rows), -1)
    flat = flat[:, :: -(-flat.shape[1] // WIDEST) or 1]
    found = np.where(np.isfinite(flat), flat, 0).clip(-1e12, 1e12).astype(np.float32)
    found -= found.mean(0)
    spread = found.std(0)
    found /= np.where(spread > 0, spread, 1.0)
    return found


def _projected(flat: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Few columns as they are, many projected on few random directions."""
    width = flat.shape[1]
    if width <= DIMENSIONS:
        return flat
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(width, DIMENSIONS))
    return np.asarray(flat @ signs / np.float32(np.sqrt(width)))


def _telling_columns(flat: np.ndarray, train: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The columns whose means differ most between the groups: a projection would drown a single one that tells."""
    if flat.shape[1] <= DIMENSIONS:
        return np.zeros(0, dtype=int)
    weight = np.zeros(len(flat), dtype=np.float32)
    weight[train] = np.where(truth, 1 / truth.sum(), -1 / (~truth).sum())
    return np.argsort(-np.abs(weight @ flat), kind="stable")[:COLUMNS]


def _one_hot(labels: np.ndarray) -> Floats:
    """One column per class, of the most frequent classes."""
    names, place, count = np.unique(labels, return_inverse=True, return_counts=True)
    frequent = np.argsort(-count, kind="stable")[:DIMENSIONS]
    return (place[:, None] == frequent[None, :]).astype(np.float64) if len(names) > 1 else np.zeros((len(labels), 0))


def _predictions(train: np.ndarray, truth: np.ndarray, test: np.ndarray, seed: int) -> list[Floats]:
    """Scores of the held-out targets by each classifier; one that cannot be fitted says nothing."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if train.shape[1] == 0:
        return [np.zeros(len(test))]
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
    trees = HistGradientBoostingClassifier(
        max_iter=30, max_depth=3, min_samples_leaf=10, early_stopping=False, random_state=seed
    )
    return [model.fit(train, truth).predict_proba(test)[:, 1] for model in (linear, trees)]
