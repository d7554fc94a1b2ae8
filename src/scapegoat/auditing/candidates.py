"""What a plan is searched among: rules with protections and ways to step, each as specs of its runs."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scapegoat.attacks import registry as attacks
from scapegoat.auditing.cells import SHARED_BY_ATTACKS
from scapegoat.auditing.elimination import WATCHING
from scapegoat.errors import InputError
from scapegoat.experiments import Spec, parse
from scapegoat.experiments.executors import named
from scapegoat.experiments.run import prepare
from scapegoat.optimizers import OptimizerOptions

DECAYS = (0.002, 0.005, 0.01)
"""Rates of weight decay, tried where other steps of the server are not: these do more."""
COOLING = {"name": "cooling"}
"""Goes with every decay: without it the figures of a round are luck, since the model never comes to rest."""
GENTLER = 0.1
"""What Adam's learning rate is multiplied by. Adam's steps are as long where gradients have vanished as anywhere,
and so it learns by heart what is left."""
PLAIN_STEPS = OptimizerOptions(optimizer="sgd", lr=1.0)
"""The other way to step, by gradients as they are."""
PRIVATE = {"name": "dp_sgd", "clip": 1.0, "noise": 0.2}
"""Tried under averaging alone, where references look or the server's steps stay as they are: it asks something of every
client."""
MILD = {"name": "dp_sgd", "clip": 1.0, "noise": 0.1}
"""Tried under every rule where a plan is held against references: what decay hides from a margin they still see, what
noise hides they do not."""
BOUNDED = {"name": "norm_clipping"}
"""What a plan averages with: under plain averaging one update of any length is the whole of the step, and an attacker
that knows it sends one."""
KNOWING: dict[str, dict[str, Any]] = {
    "gradient_ascent": {},
    "sleeper": {},
    "alternating": {"inner": {"name": "blend"}},
    "shadow": {},
    "tangent": {},
}
"""What a plan must stand beside the audit's own attacks, with options: blunt ones, and those that know the rule or the
protections."""
TOGETHER: dict[str, dict[str, Any]] = {"colluders": {}}
"""What it must stand beside those where several clients are hostile; with one they are the attack that they share."""
BLUNT = "gradient_ascent"
"""The attack that finds out early which settings a hostile client can ruin."""


@dataclass(frozen=True)
class Candidate:
    """A rule and protections, as JSON texts so that it can be a key, and the rounds that it is trained for.

    `server` is how the server steps, as a text too, where that is not as today.
    """

    rule: str
    protect: str
    rounds: int
    server: str = ""

    def trained(self, rounds: int) -> Candidate:
        """The same for so many rounds."""
        return replace(self, rounds=rounds)

    def stopped(self, rounds: int) -> Candidate:
        """Trained as far as this is after so many rounds: where steps cool down, for as many as step as far in all."""
        cooling = next((p for p in json.loads(self.protect) if p["name"] == COOLING["name"]), None)
        if rounds >= self.rounds or cooling is None:
            return self.trained(rounds)
        share, last = rounds / self.rounds, float(cooling.get("last", 0.0))
        # The area under `last` and half a cosine above it, up to here, and under the whole of a shorter one.
        cosine = share + math.sin(math.pi * share) / math.pi
        return self.trained(round(self.rounds * (2 * last * share + (1 - last) * cosine) / (1 + last)))

    @property
    def kind(self) -> frozenset[str]:
        """The protections by name, whatever their options: what sees through one of a kind sees through its like."""
        names = {str(p["name"]) for p in json.loads(self.protect)}
        return frozenset(names | {f"steps by {self.steps['optimizer']}"} if self.steps else names)

    @property
    def steps(self) -> dict[str, Any] | None:
        """How the server steps, as a spec writes it; None as today."""
        return json.loads(self.server) if self.server else None


class Bench:
    """Makes the specs of candidates from those of an audit's matrix; `held` if references will look at them."""

    def __init__(
        self, planned: Sequence[Spec], plain: str, root: str | Path | None = None, *, held: bool = False
    ) -> None:
        self._first, self._held = planned[0], held
        self.seeds = sorted({spec.seed for spec in planned})
        self._root = root
        self._attacks = {spec.attack.name: spec.attack.canonical() for spec in planned}
        self._made: dict[tuple[Candidate, str, int], tuple[str, Spec]] = {}
        rules = {_text(spec.defense.canonical()): spec.defense.name for spec in planned}
        self.plain = next((rule for rule, name in rules.items() if name == plain), next(iter(rules)))
        self.bounded = (
            _text(parse({"defense": BOUNDED}).defense.canonical()) if rules[self.plain] == plain else self.plain
        )
        self.today = Candidate(self.plain, self._protect(), planned[0].federation.rounds)

    def _protect(self, *added: Mapping[str, Any]) -> str:
        there = self._first.canonical()["federation"].get("protect", [])
        return _text([*there, *added])

    def of_rule(self, rule: str) -> list[Candidate]:
        """The protections that are tried with a rule beside its own setting, mildest first."""
        have, steps = {str(p["name"]) for p in json.loads(self.today.protect)}, self._other_steps()
        cooling = [] if "cooling" in have else [COOLING]
        tried: list[list[dict[str, Any]]] = []
        if "weight_decay" in have and cooling:
            tried.append(cooling)
        if "dp_sgd" not in have and importlib.util.find_spec("dp_accounting") is not None:
            private = rule == self.bounded and (self._held or not steps)
            tried += [[MILD]] * self._held + [[PRIVATE]] * private
        found = [] if steps else self._decayed(rule)
        found += [Candidate(rule, self._protect(*added), self.today.rounds) for added in tried]
        found += [Candidate(rule, self._protect(*cooling), self.today.rounds, step) for step in steps]
        return [candidate for candidate in found if self._fits(candidate)]

    def instead(self, rule: str) -> list[Candidate]:
        """What is tried with a rule once no other way to step is affordable; empty where none was offered."""
        return self._decayed(rule) if self._other_steps() else []

    def _decayed(self, rule: str) -> list[Candidate]:
        have = {str(p["name"]) for p in json.loads(self.today.protect)}
        if "weight_decay" in have:
            return []
        cooling = [] if "cooling" in have else [COOLING]
        rates = [{"name": "weight_decay", "rate": rate} for rate in DECAYS]
        return [Candidate(rule, self._protect(rate, *cooling), self.today.rounds) for rate in rates]

    def _other_steps(self) -> list[str]:
        """How else the server could step, where it steps by Adam along gradients that clients send."""
        federation = self._first.federation
        if federation.server.optimizer != "adam" or federation.local.sends != "gradient":
            return []
        gentler = federation.server.model_copy(update={"lr": GENTLER * federation.server.lr})
        return [_text(options.model_dump(mode="json")) for options in (gentler, PLAIN_STEPS)]

    def _fits(self, candidate: Candidate) -> bool:
        """Whether the model, and what else protects it, allow it; weight decay and cooling fit everything."""
        if all(p["name"] in ("weight_decay", "cooling") for p in json.loads(candidate.protect)):
            return True
        try:
            prepare(self.spec(candidate, WATCHING), self._root)
        except InputError:
            return False
        return True

    def attacks(self, candidate: Candidate) -> list[str]:
        """Every attack that a candidate must stand: the audit's, and more if it is not today's setting."""
        known = {name for name, _ in attacks.classes()}
        knowing = KNOWING | (TOGETHER if self._first.federation.malicious > 1 else {})
        more = [a for a in knowing if a in known and a not in self._attacks] if candidate != self.today else []
        watching = [] if WATCHING in self._attacks else [WATCHING]
        return [*watching, *self._attacks, *more]

    def name(self, candidate: Candidate, attack: str, seed: int | None = None) -> str:
        """The name of one run of a candidate."""
        return self._run(candidate, attack, self.seeds[0] if seed is None else seed)[0]

    def spec(self, candidate: Candidate, attack: str, seed: int | None = None) -> Spec:
        """One run of a candidate."""
        return self._run(candidate, attack, self.seeds[0] if seed is None else seed)[1]

    def _run(self, candidate: Candidate, attack: str, seed: int) -> tuple[str, Spec]:
        key = (candidate, attack, seed)
        if key not in self._made:
            self._made[key] = next(iter(named([self._spec(candidate, attack, seed)], self._root).items()))
        return self._made[key]

    def _spec(self, candidate: Candidate, attack: str, seed: int) -> Spec:
        plain = self._first.canonical()
        protect = json.loads(candidate.protect)
        federation = {**plain["federation"], "rounds": candidate.rounds}
        if protect:
            federation["protect"] = protect
        if candidate.steps:
            federation["server"] = candidate.steps
        return parse(
            {
                **plain,
                "seed": seed,
                "attack": self._attack(attack, candidate),
                "defense": json.loads(candidate.rule),
                "federation": federation,
            }
        )

    def _attack(self, name: str, candidate: Candidate) -> dict[str, Any]:
        if name in self._attacks:
            return self._attacks[name]
        shared = {key: self._first.canonical()["attack"][key] for key in SHARED_BY_ATTACKS}
        # One that waits must still have time to attack, and one that keeps a copy keeps one of this rule.
        own = {"until": candidate.rounds // 3, "target_rule": json.loads(candidate.rule)}
        options = {key: value for key, value in own.items() if key in attacks.cls(name).model_fields}
        return {**shared, "name": name, **(KNOWING | TOGETHER).get(name, {}), **options}

    def specs(self, candidate: Candidate, chosen: Sequence[str] | None = None) -> Iterator[Spec]:
        """Its runs with the first seed: all attacks unless some are chosen."""
        for attack in self.attacks(candidate) if chosen is None else chosen:
            yield self.spec(candidate, attack)


def rule_text(spec: Spec) -> str:
    """A spec's rule as candidates name it."""
    return _text(spec.defense.canonical())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
