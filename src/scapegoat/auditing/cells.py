"""The cells of an audit: its specs, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scapegoat.auditing.sizing import enough_test, targets_for
from scapegoat.auditing.user_input import Data, Model, stated_data, stated_model
from scapegoat.errors import InputError
from scapegoat.experiments import Spec, parse
from scapegoat.experiments.spec import override_key
from scapegoat.extending.plugins import load_plugins
from scapegoat.limits import refuse_many_seeds
from scapegoat.sweeping.fitting import fitted_defense, fitted_model

ATTACKS = ("passive", "agrevader", "adaptive", "fedpoisonmia", "blend")
DEFENSES = ("fedavg", "trimmed_mean", "atm", "reputation_atm")
"""Enough to tell whether rules help at all: the runs that others took go into the search for a plan."""
ROUNDS = 150
SHARED_BY_ATTACKS = ("targets", "mask", "knowledge", "start_round")
"""What holds for every attack of an audit."""


def audit_specs(
    *,
    model: Model | None = None,
    data: Data = "hospital",
    task: str | Mapping[str, Any] | None = None,
    attacks: Sequence[Any] | None = None,
    defenses: Sequence[Any] | None = None,
    clients: int | None = None,
    malicious: int | None = None,
    rounds: int | None = None,
    seeds: int = 1,
    federation: Mapping[str, Any] | None = None,
    attack_options: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    plugins: Sequence[str] = (),
    out: Path | None = None,
    root: str | Path | None = None,
) -> list[Spec]:
    """The specs of an audit, attack by attack and defense by defense. Refuses wrong input before anything runs.

    Unless `overrides` say otherwise, fair coins make the members (`evaluation.design: coin`), of as many targets as the
    data allow; `evaluation.design=even` is the design of the paper, with its 300 targets.
    """
    attacks = ATTACKS if attacks is None else attacks
    defenses = DEFENSES if defenses is None else defenses
    for name, chosen in (("attacks", attacks), ("defenses", defenses)):
        if isinstance(chosen, str) or not chosen:
            raise InputError(f"{name}: {chosen!r} is not allowed; it must be a list with at least one name")
    refuse_many_seeds("seeds", seeds, len(attacks) * len(defenses))
    stated, overrides = stated_data(data, out), tuple(overrides)
    load_plugins(plugins)
    base: dict[str, Any] = {"data": stated, "federation": {"rounds": ROUNDS, **(federation or {})}}
    if attack_options:
        base["attack"] = {"name": parse({}).attack.name, **attack_options}
    if evaluation:
        base["evaluation"] = dict(evaluation)
    if rounds is not None:
        base["federation"]["rounds"] = rounds
    if plugins:
        base["plugins"] = list(plugins)
    if clients is not None:
        base["federation"]["clients"] = clients
    if malicious is not None:
        base["federation"]["malicious"] = malicious
    if task is not None:
        base["task"] = task
    if model is None:
        told = _with_options(base, overrides)
        base["model"] = fitted_model(told["data"], root, told.get("task"))
    else:
        base["model"] = stated_model(model)
    # The first spec stands for what all share: its mistakes are reported without a defense in the way.
    shared = _designed(base, overrides, root).canonical()
    _refuse_options_of_one(shared)
    if shared["federation"]["malicious"] == 0:
        raise InputError(
            "federation.malicious: 0 is not allowed in an audit, nobody would attack; at least 1 is expected"
        )
    specs = []
    for seed in range(seeds):
        for defense in defenses:
            fitted = fitted_defense(defense, parse(shared).federation)
            for attack in attacks:
                options = {"name": attack} if isinstance(attack, str) else dict(attack)
                common = {key: shared["attack"][key] for key in SHARED_BY_ATTACKS}
                plain = {**shared, "seed": shared["seed"] + seed, "defense": fitted, "attack": {**common, **options}}
                specs.append(parse(plain))
    return specs


def _designed(base: dict[str, Any], overrides: Iterable[str], root: str | Path | None) -> Spec:
    """The spec that all runs share, with the design of an audit where the user does not say otherwise."""
    plain = base
    for override in overrides:
        plain = override_key(plain, override)
    told = {key: plain[key] if isinstance(plain.get(key), Mapping) else {} for key in ("evaluation", "attack")}
    if "design" not in told["evaluation"] and isinstance(plain.get("evaluation", {}), Mapping):
        plain = {**plain, "evaluation": {**told["evaluation"], "design": "coin"}}
    spec = parse(plain)
    if spec.evaluation.design == "coin" and "targets" not in told["attack"]:
        spec = parse(spec, [f"attack.targets={targets_for(spec, root)}"])
    enough = enough_test(spec, root)
    return spec if enough is None else parse(spec, [f"data.test={enough}"])


def _with_options(base: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Data and task with the options that overrides give them: without those the data may not be readable."""
    plain = {key: base[key] for key in ("data", "task") if key in base}
    for override in overrides:
        if override.startswith(("data.", "data=", "task.", "task=")):
            plain = override_key(plain, override)
    return plain


def _refuse_options_of_one(shared: Mapping[str, Any]) -> None:
    """An audit has several attacks and defenses: what is set of one of them would be lost among what all share."""
    usual = parse({}).canonical()
    attack = {**shared["attack"], **{key: usual["attack"][key] for key in SHARED_BY_ATTACKS}}
    for kind, given, example in (
        ("attack", attack, "{name: fedpoisonmia, gamma: 0.2}"),
        ("defense", shared["defense"], "{name: atm, trim: 2}"),
    ):
        if given != usual[kind]:
            raise InputError(
                f"{kind}: an audit has several; what is set of one is given with it, as in --{kind} '{example}'"
            )
