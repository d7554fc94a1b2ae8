"""A plan of training, today's setting, and what else was tried: leakage against test accuracy. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scapegoat.membership.metrics import Estimate


@dataclass(frozen=True)
class Stop:
    """A run had it been stopped after so many rounds: the AUC of the margins in that round, and the test accuracy."""

    round: int
    auc: float
    test_accuracy: float


@dataclass(frozen=True)
class Option:
    """A rule with protections, trained for so many rounds, and what was found of it.

    `leakage` is the AUC of the strongest score of the strongest attack that was tried (`attack`), `watching` that of
    merely watching. `test_accuracy` is without an attack, `under_attack` the least under one, `cost` what is lost
    against today's setting, without an attack. It is `complete` once every attack has been tried. `stops` has a point
    per evaluated round: the AUC of the attack that sees most there, beside the test accuracy without an attack.
    `server` is how the server steps, where that is not as today.
    `references` is how many reference federations its scores were helped by, but for the `unfit` attacks, which decide
    the margins themselves: there the scores are those of the run alone.
    """

    rule: Any
    protect: tuple[Mapping[str, Any], ...]
    rounds: int
    leakage: Estimate
    attack: str
    watching: Estimate
    test_accuracy: float
    under_attack: float
    cost: float
    attacks: tuple[str, ...]
    complete: bool
    runs: tuple[str, ...]
    seeds: int = 1
    epsilon: float | None = None
    stops: tuple[Stop, ...] = ()
    references: int = 0
    unfit: tuple[str, ...] = ()
    server: Mapping[str, Any] | None = None

    @property
    def rule_label(self) -> str:
        """The rule by name."""
        parts = self.rule if isinstance(self.rule, list) else [self.rule]
        return " + ".join(str(part["name"]) for part in parts)

    @property
    def label(self) -> str:
        """As tables and charts call it."""
        steps = [] if self.server is None else [f"{self.server['optimizer']} {self.server['lr']:g}"]
        return ", ".join([self.rule_label, *steps, *map(protection_label, self.protect), f"{self.rounds} rounds"])


@dataclass(frozen=True)
class Plan:
    """What to do, and what it was chosen from.

    `options` hold today's setting and the recommended one; `recommended` is today's where nothing within the `budget`
    of test accuracy leaks less. `do` are the lines to write into a spec and into a Flower app, by title. `confirmed`:
    whether seeds that had no part in the choice keep to the budget and leak less than today's; None without such seeds.
    """

    budget: float
    today: Option
    recommended: Option
    options: tuple[Option, ...]
    headline: str = ""
    sentences: tuple[str, ...] = ()
    do: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    confirmed: bool | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is recommended but what is done today."""
        return self.recommended != self.today

    @property
    def rule(self) -> Any:
        """The recommended rule as a spec writes it."""
        return self.recommended.rule

    @property
    def protect(self) -> tuple[Mapping[str, Any], ...]:
        """The recommended protections as a spec writes them."""
        return self.recommended.protect

    @property
    def server(self) -> Mapping[str, Any] | None:
        """How the server should step, as a spec writes it; None: as today."""
        return self.recommended.server

    @property
    def rounds(self) -> int:
        """After how many rounds to stop."""
        return self.recommended.rounds

    @property
    def held(self) -> bool:
        """Whether the best settings were held against reference federations."""
        return any(option.references for option in self.options)

    def settled(self, option: Option) -> bool:
        """Whether a setting has met all attacks and scores that the recommended one has; else it may leak more."""
        return option.complete and (bool(option.references) or not self.held)

    @property
    def text(self) -> str:
        """Headline and sentences as one paragraph."""
        return " ".join((self.headline, *self.sentences))

    @property
    def frontier(self) -> tuple[Option, ...]:
        """The complete options that no other beats in both leakage and test accuracy, by test accuracy.

        Where some were held against reference federations, those: the others would only seem to leak less.
        """
        complete = [option for option in self.options if self.settled(option)]
        best = [o for o in complete if not any(_beats(other, o) for other in complete)]
        return tuple(sorted(best, key=lambda o: (o.test_accuracy, o.leakage.value)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        frontier = self.frontier
        return {
            "budget": self.budget,
            "changes": self.changes,
            "text": self.text,
            "rule": self.rule,
            "protect": [dict(p) for p in self.protect],
            "server": None if self.server is None else dict(self.server),
            "rounds": self.rounds,
            "recommended": _values(self.recommended),
            "today": _values(self.today),
            "options": [{**_values(o), "on_frontier": o in frontier} for o in self.options],
            "do": dict(self.do),
            "failed": list(self.failed),
            "confirmed": self.confirmed,
        }


def _beats(one: Option, other: Option) -> bool:
    better = one.leakage.value <= other.leakage.value and one.test_accuracy >= other.test_accuracy
    return better and (one.leakage.value < other.leakage.value or one.test_accuracy > other.test_accuracy)


def protection_label(written: Mapping[str, Any]) -> str:
    """A protection by its name and the options that tell it from others of the name."""
    shown = {"weight_decay": ("rate",), "dp_sgd": ("clip", "noise"), "cooling": ()}.get(str(written["name"]))
    values = (
        [written[key] for key in shown if key in written]
        if shown is not None
        else [v for k, v in written.items() if k != "name"]
    )
    return " ".join([str(written["name"]), *(f"{v:g}" if isinstance(v, float) else str(v) for v in values)])


def _values(option: Option) -> dict[str, Any]:
    return {
        "label": option.label,
        "rule": option.rule,
        "protect": [dict(p) for p in option.protect],
        "server": None if option.server is None else dict(option.server),
        "rounds": option.rounds,
        "auc": option.leakage.value,
        "auc_ci": option.leakage.ci if option.leakage.bounded else None,
        "attack": option.attack,
        "auc_watching": option.watching.value,
        "test_accuracy": option.test_accuracy,
        "test_accuracy_under_attack": option.under_attack,
        "cost": option.cost,
        "attacks": list(option.attacks),
        "complete": option.complete,
        "seeds": option.seeds,
        "references": option.references,
        "references_unfit": list(option.unfit),
        "epsilon": option.epsilon,
        "runs": list(option.runs),
    }
