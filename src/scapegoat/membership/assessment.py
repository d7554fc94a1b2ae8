"""What scores of targets amount to: figures per score, the worst of them, epsilon, and whether to believe it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from scapegoat.membership import epsilon, metrics
from scapegoat.membership.guards import Blind, blind_baseline, permutation_p, resolvable
from scapegoat.membership.intervals import tpr_at_fpr_joint
from scapegoat.membership.multiplicity import worst_score
from scapegoat.membership.scores import Evidence, registry
from scapegoat.membership.scoring import Floats

RATES = {"tpr_at_fpr_01": 0.01, "tpr_at_fpr_001": 0.001}
NO_COINS = "members were not drawn by independent fair coins (evaluation.design: coin draws them so)"
BOUNDS: dict[str, Callable[[np.ndarray, np.ndarray, float], float]] = {
    "any_mechanism": lambda scores, member, sure: epsilon.one_run(scores, member, confidence=sure).epsilon,
    "gaussian_noise": lambda scores, member, sure: epsilon.one_run_gaussian(scores, member, confidence=sure).epsilon,
    "gaussian_noise_by_auc": lambda scores, member, sure: epsilon.auc_gaussian(scores, member, confidence=sure),
    "one_threshold": lambda scores, member, sure: epsilon.clopper_pearson(scores, member, confidence=sure),
}
"""Lower bounds on epsilon by what they take for granted; see `scapegoat.membership.epsilon`."""
REMEMBERED = 64
"""Blind baselines kept in memory: cells of an audit share theirs."""


@dataclass(frozen=True)
class Scored:
    """Scores [targets] by name, of targets whose membership is known."""

    member: np.ndarray
    coins: bool
    """Whether independent fair coins made the members."""
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """`scores`, `worst_score`, and of epsilon `_lower`, `_bounds`, `_ceiling`, `_reachable` and `_guesses`.

        The ceiling is that of any audit of so many targets, what is reachable that of this one: the bound that scores
        would give which separate these members from the others perfectly. The guesses are what the bound is computed
        from: by rule, how many were made, and the most correct ones of any score.

        All but the first are those of a client's seat where any score is; those of the server's are then under
        `server`. Rules are chosen by the former, and no rule changes what the server sees. Both the worst score and
        epsilon pay for having tried all the scores of their seat.
        """
        seats: dict[str, dict[str, np.ndarray]] = {}
        for name, values in self.scores.items():
            seats.setdefault(_seat(name), {})[name] = values
        listed = {name: score_figures(values, self.member, _seat(name)) for name, values in self.scores.items()}
        found = {"scores": listed, **self._worst(seats.get("client", self.scores))}
        return found | {"server": self._worst(seats["server"])} if len(seats) > 1 else found

    def _worst(self, scores: Mapping[str, np.ndarray]) -> dict[str, Any]:
        worst = worst_score(scores, self.member)
        found: dict[str, Any] = {
            "worst_score": {
                "name": worst.name,
                "seat": _seat(worst.name),
                "auc": worst.estimate.value,
                "auc_ci": worst.estimate.ci,
                "permutation_p": worst.p,
                "tried": len(scores),
            },
            "epsilon_ceiling": epsilon.ceiling(len(self.member)),
        }
        if not self.coins:
            return found | {"epsilon_lower": None, "epsilon_lower_reason": NO_COINS}
        confidence = epsilon.share(len(scores))
        members = int(self.member.sum())
        found["epsilon_reachable"] = epsilon.reachable(members, len(self.member) - members, confidence=confidence)
        bounds = {
            name: max(bound(values, self.member, confidence) for values in scores.values())
            for name, bound in BOUNDS.items()
        }
        guesses = [epsilon.guessed(values, self.member) for values in scores.values()]
        found["epsilon_guesses"] = [list(max(of_rule)) for of_rule in zip(*guesses, strict=True)]
        return found | {"epsilon_lower": bounds["any_mechanism"], "epsilon_bounds": bounds}

    def validity(self, blind: Blind | None) -> dict[str, Any]:
        """`blind_auc`, `permutation_p` per score, and whether the figures speak of leakage at all.

        Coins make members and others exchangeable, whatever a blind classifier finds by chance. Without them, one that
        tells members from the records alone says that the figures mean something else.
        """
        members, others = int(self.member.sum()), int((~self.member).sum())
        reasons = []
        if min(members, others) < 2:
            reasons.append(f"{members} members and {others} non-members are too few to compare")
        # Below one half is chance: a blind classifier that is cross-validated errs to that side.
        if blind is not None and blind.auc.low > 0.5 and not self.coins:
            reasons.append(
                f"members differ from non-members before any training: their records alone tell them with an AUC of "
                f"{blind.auc.value:.2f} [{blind.auc.low:.2f}, {blind.auc.high:.2f}]"
            )
        return {
            "blind_auc": None if blind is None else blind.auc.value,
            "blind_auc_ci": None if blind is None else blind.auc.ci,
            "permutation_p": {name: permutation_p(values, self.member) for name, values in self.scores.items()},
            "valid": not reasons,
            "reasons": reasons,
        }


def observed_scores(margins: np.ndarray) -> dict[str, Floats]:
    """Every score that takes nothing but the margins [rounds, targets] of a run."""
    seen = Evidence(margins=margins)
    return {
        name: cls().score(seen)
        for name, cls in registry.classes()
        if cls.seat == "client" and not cls.needs_references and not cls.oracle
    }


def referenced_scores(margins: np.ndarray, references: np.ndarray, included: np.ndarray) -> dict[str, Floats]:
    """Every score that compares the margins [rounds, targets] with those of references [references, targets]."""
    seen = Evidence(margins=margins, references=references, included=included)
    return {
        name: cls().score(seen)
        for name, cls in registry.classes()
        if cls.needs_references and not cls.oracle and cls.possible(seen)
    }


def score_figures(values: np.ndarray, member: np.ndarray, seat: str = "client") -> dict[str, Any]:
    """AUC and true positive rates of one score with their intervals, as `rate_figures` has these."""
    auc = metrics.auc(values, member)
    return {"seat": seat, "auc": auc.value, "auc_ci": auc.ci, **rate_figures(values, member)}


def rate_figures(values: np.ndarray, member: np.ndarray, suffix: str = "") -> dict[str, Any]:
    """True positive rates of one score with their intervals; null, with the reason, what cannot be resolved."""
    figures: dict[str, Any] = {}
    others = int((~member).sum())
    for rate, fpr in RATES.items():
        name = rate + suffix
        if resolvable(fpr, others):
            found = tpr_at_fpr_joint(values, member, fpr)
            figures |= {name: found.value, f"{name}_ci": found.ci}
        else:
            reason = f"{others} non-members cannot show a false positive rate of {fpr:g} ({round(1 / fpr):,} can)"
            figures |= {name: None, f"{name}_ci": None, f"{name}_reason": reason}
    return figures


_remembered: dict[str, Blind] = {}


def blind(records: np.ndarray, labels: np.ndarray, member: np.ndarray) -> Blind:
    """The blind baseline, computed once in a process for the same records, labels and members, on one thread."""
    digest = hashlib.sha256()
    for part in (records, labels, member):
        digest.update(f"{part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    key = digest.hexdigest()
    if key not in _remembered:
        while len(_remembered) >= REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
        with threadpool_limits(1):  # the order of sums, and so the last digits, depend on the number of threads
            _remembered[key] = blind_baseline(records, labels, member)
    return _remembered[key]


def _seat(name: str) -> str:
    return registry.cls(name).seat
