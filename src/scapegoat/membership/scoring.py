"""What every membership score shares: what the adversary saw, and the class that turns it into one number per target.

A score is one small file in `scapegoat.membership.scores`: a pure function of arrays and a `Score` that carries its
options. Higher always means "more likely a member". No score sees who the members are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from scapegoat.errors import InputError
from scapegoat.registry import Component, Registry

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LARGEST = 1e100
"""Margins are cut off here, so that their squares stay finite."""


_SHAPES = {
    "margins": "[rounds, targets]",
    "references": "[references, targets] or [references, rounds, targets]",
    "cosines": "[rounds, clients, targets]",
}


@dataclass(frozen=True)
class Regression:
    """Clients' updates, each regressed on the gradients of the targets that its client is suspected of.

    Parameters
    ----------
    found: [rounds, clients, targets], a target's coefficient in a client's update; NaN where it has none.
    expected: [rounds, clients, targets], what it would be if the update held the target's gradient.
    chance: [clients], the chance that a client's record is in its update of a round.
    """

    found: np.ndarray
    expected: np.ndarray
    chance: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """What the adversary saw of one run, and of the reference federations that it trained itself.

    Parameters
    ----------
    margins: [rounds, targets], the margin of every target under the model of every round.
    references: [references, targets] or [references, rounds, targets], the margins in the reference federations.
    included: [references, targets], whether a reference federation trained on the target. None: none did.
    cosines: [rounds, clients, targets], the cosine of a client's update with a target's gradient; NaN where the client
        did not take part. Only a curious server sees it.
    regression: how the targets' gradients make up the updates. Only a curious server sees it.
    client: the client in question, one for all targets or one per target. None: any client.
    population: [rounds, records], margins of records known not to be members. None: the other targets serve.
    population_references: [references, records] or [references, rounds, records], their margins in the references.

    Examples
    --------
    >>> Evidence(margins=np.zeros((3, 5))).targets
    5
    """

    margins: np.ndarray | None = None
    references: np.ndarray | None = None
    included: np.ndarray | None = None
    cosines: np.ndarray | None = None
    regression: Regression | None = None
    client: int | np.ndarray | None = None
    population: np.ndarray | None = None
    population_references: np.ndarray | None = None

    @property
    def targets(self) -> int:
        """How many targets there are."""
        seen = self.margins if self.margins is not None else self.cosines
        if seen is None:
            raise InputError("evidence is empty: give margins [rounds, targets] or cosines [rounds, clients, targets]")
        return int(seen.shape[-1])

    def need(self, what: Literal["margins", "references", "cosines"]) -> np.ndarray:
        """A part of the evidence that a score cannot do without, or an InputError that says what is missing."""
        found: np.ndarray | None = getattr(self, what)
        if found is None:
            raise InputError(f"{what} are missing: give {_SHAPES[what]}")
        return found


class Score(Component):
    """A membership score. The traits say what it needs, so that nobody has to ask for its name."""

    needs_references: ClassVar[bool] = False
    """Reference federations must have been trained."""
    needs_included: ClassVar[bool] = False
    """Some of the references must have trained on targets."""
    seat: ClassVar[Literal["client", "server"]] = "client"
    """Whoever sits here sees what the score needs."""
    oracle: ClassVar[bool] = False
    """The score knows something that no adversary does."""

    def score(self, seen: Evidence) -> Floats:
        """One number per target [targets], higher for those more likely to be members; never NaN."""
        raise NotImplementedError

    @classmethod
    def possible(cls, seen: Evidence) -> bool:
        """Whether the evidence holds what this score needs."""
        if cls.seat == "server":
            return seen.cosines is not None
        has_references = seen.references is not None and len(seen.references) > 0
        has_included = seen.included is not None and bool(np.any(seen.included)) and not bool(np.all(seen.included))
        return (
            seen.margins is not None
            and (has_references or not cls.needs_references)
            and (has_included or not cls.needs_included)
        )


registry: Registry[Score] = Registry("score", Score, "scapegoat.membership.scores")

S = TypeVar("S", bound=Score)


def register(name: str) -> Callable[[type[S]], type[S]]:
    """Class decorator: `name` means this score from now on."""
    return registry.register(name)


def get(name: str, /, **options: Any) -> Score:
    """A score by name and options.

    Examples
    --------
    >>> get("final_margin").score(Evidence(margins=np.array([[0.0, 1.0], [2.0, -1.0]])))
    array([ 2., -1.])
    """
    return registry.get(name, **options)


def checked_margins(margins: np.ndarray) -> Floats:
    """Margins [rounds, targets] as float64, at least one of each, or an InputError."""
    return _numbers("margins", margins, (2,))


def checked_cosines(cosines: np.ndarray) -> Floats:
    """Cosines [rounds, clients, targets] as float64, or an InputError. Infinite ones are nobody's: they become NaN."""
    found = _numbers("cosines", cosines, (3,))
    return np.where(np.isfinite(found), found, np.nan)


def checked_references(
    references: np.ndarray, included: np.ndarray | None, targets: int
) -> tuple[Floats, Bools, Bools]:
    """The references' last-round margins [references, targets], and which of them were trained in, and which out.

    A margin that is not finite belongs to a model that diverged: it counts neither as in nor as out.
    """
    found = _numbers("references", references, (2, 3))
    last = found[:, -1] if found.ndim == 3 else found
    if last.shape[1] != targets:
        raise InputError(
            f"references hold {last.shape[1]} targets, the margins {targets}; they must be the same targets"
        )
    usable = np.isfinite(last)
    if included is None:
        trained = np.zeros(last.shape, dtype=bool)
    else:
        trained = np.asarray(included)
        if trained.dtype != bool or trained.shape != last.shape:
            raise InputError(
                f"included must be true or false, [references, targets] = {list(last.shape)}; "
                f"it is {trained.dtype} {list(trained.shape)}"
            )
    return np.where(usable, limited(last), 0.0), usable & trained, usable & ~trained


def limited(values: np.ndarray) -> Floats:
    """Numbers cut off at `LARGEST`, so that squares stay finite. NaN stays NaN."""
    return np.clip(np.asarray(values, dtype=np.float64), -LARGEST, LARGEST)


def settled(score: np.ndarray, margin: np.ndarray) -> Floats:
    """The score where the observed margin is a number; elsewhere the margin decides: NaN and -inf rank last."""
    undecided = np.where(np.isnan(margin), -np.inf, margin)
    return np.asarray(np.where(np.isfinite(margin), score, undecided), dtype=np.float64)


def midranks(values: np.ndarray) -> Floats:
    """Ranks 1..n along the last axis, ties sharing their mean rank; NaN ranks with -inf.

    Examples
    --------
    >>> midranks(np.array([3.0, 1.0, 3.0, np.nan]))
    array([3.5, 2. , 3.5, 1. ])
    """
    ordered = np.where(np.isnan(values), -np.inf, values)
    if ordered.ndim > 1:
        return np.stack([midranks(row) for row in ordered])
    _, place, count = np.unique(ordered, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place], dtype=np.float64)


def _numbers(what: str, values: np.ndarray, dimensions: tuple[int, ...]) -> Floats:
    shape = _SHAPES[what]
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be numbers {shape}") from None
    if found.ndim not in dimensions or 0 in found.shape:
        raise InputError(f"{what} must be {shape}, at least one of each; the shape is {list(found.shape)}")
    return found
