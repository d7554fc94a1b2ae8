"""The spec: one federation under one attack, as data. Its hash names the run."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from scapegoat import aggregation
from scapegoat.aggregation import Rule
from scapegoat.attacks import Attack
from scapegoat.attacks import registry as attacks
from scapegoat.data import DataSpec
from scapegoat.data import registry as data_sets
from scapegoat.data.splits import Design
from scapegoat.errors import InputError, OptionError, shown
from scapegoat.extending.plugins import load_plugins
from scapegoat.federation import FederationSetting
from scapegoat.models import ModelSpec
from scapegoat.models import registry as models
from scapegoat.protections import Protection
from scapegoat.randomness import derive
from scapegoat.registry import Component, added, first_problem
from scapegoat.run_folders import name_of
from scapegoat.tasks import TaskSpec
from scapegoat.tasks import registry as tasks
from scapegoat.yaml_text import MOST_DEPTH, MOST_DIGITS, read_override, read_yaml

# What an override such as `attack.targets=100` is about where the spec names no component.
_DEFAULT_NAMES = {
    "data": "hospital",
    "model": "mlp",
    "task": "classification",
    "attack": "fedpoisonmia",
    "defense": "fedavg",
    "federation.partition": "iid",
    "federation.local": "gradient",
    "federation.schedule": "sync",
}

_written = PlainSerializer(lambda component: component.canonical())


_written_or_none = PlainSerializer(lambda component: None if component is None else component.canonical())


def _task(value: Any) -> TaskSpec | None:
    return None if value is None else tasks.parse(value)


class Evaluation(BaseModel):
    """How the targets are drawn, and how often the test accuracy is measured; the targets are scored every round.

    `design` says how members are chosen (see `data.splits`). `reference` k >= 1 is the k-th reference federation: the
    same targets, made members by other coins, and other chance in training. With `server_view` the targets are also
    scored as a curious server would, who sees every client's update.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Annotated[int, Field(ge=1)] = 10
    design: Design = added("even")
    reference: Annotated[int, Field(ge=0)] = added(0)
    server_view: bool = added(False)

    @model_validator(mode="after")
    def _references_toss_coins(self) -> Evaluation:
        if self.reference and self.design != "coin":
            raise OptionError(
                "reference",
                f"{self.reference} is a reference federation, whose members are drawn by coins (allowed with design: "
                f"{self.design}: 0; or set evaluation.design=coin)",
            )
        return self


class Spec(BaseModel):
    """All that decides a run's numbers. `threads` is among it, because the order of float sums is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[int, Field(ge=0)] = 0
    data: Annotated[DataSpec, PlainValidator(data_sets.parse), _written] = Field(
        default_factory=lambda: data_sets.get(_DEFAULT_NAMES["data"])
    )
    model: Annotated[ModelSpec, PlainValidator(models.parse), _written] = Field(
        default_factory=lambda: models.get(_DEFAULT_NAMES["model"])
    )
    federation: FederationSetting = FederationSetting()
    attack: Annotated[Attack, PlainValidator(attacks.parse), _written] = Field(
        default_factory=lambda: attacks.get(_DEFAULT_NAMES["attack"])
    )
    defense: Annotated[Rule, PlainValidator(aggregation.parse), _written] = Field(
        default_factory=lambda: aggregation.get(_DEFAULT_NAMES["defense"])
    )
    evaluation: Evaluation = Evaluation()
    task: Annotated[TaskSpec | None, PlainValidator(_task), _written_or_none] = added(None)
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    plugins: tuple[str, ...] = added(())

    @model_validator(mode="before")
    @classmethod
    def _plugins_first(cls, values: Any) -> Any:
        """Modules that register components are imported before the components are looked up."""
        if isinstance(values, dict) and isinstance(values.get("plugins"), list | tuple):
            load_plugins(str(module) for module in values["plugins"])
        return values

    @field_validator("federation", mode="before")
    @classmethod
    def _federation(cls, value: Any) -> Any:
        if isinstance(value, FederationSetting):
            return value
        if not isinstance(value, dict):
            raise OptionError("", f"{value!r} is not a mapping such as {{clients: 10, rounds: 400}}")
        try:
            return FederationSetting(**value)
        except ValidationError as error:
            raise first_problem(error) from None

    @model_validator(mode="after")
    def _rule_fits(self) -> Spec:
        try:
            self.defense.check(self.federation.updates_per_step)
        except OptionError as error:
            raise OptionError(f"defense.{error.path}" if error.path else "defense", error.message) from None
        return self

    @model_validator(mode="after")
    def _server_has_data(self) -> Spec:
        parts: tuple[Rule | Protection, ...] = (*self.defense.parts(), *self.federation.protect)
        needy = next((part.name for part in parts if part.needs_server_data), None)
        if needy is not None and self.data.validation == 0:
            raise OptionError(
                "data.validation",
                f"0 leaves {needy} without the records of the server's own that it needs (allowed: 1 or more)",
            )
        return self

    def canonical(self) -> dict[str, Any]:
        """Every key with its value, as plain JSON values."""
        return self.model_dump(mode="json")

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: the run's name."""
        return name_of(self.canonical())

    @property
    def training_seed(self) -> int:
        """What all chance in training is drawn from: a reference federation has its own."""
        reference = self.evaluation.reference
        return derive(self.seed, "reference", reference) if reference else self.seed


def parse(value: Spec | Mapping[str, Any] | str | Path | None, overrides: Iterable[str] = ()) -> Spec:
    """A Spec from a Spec, a mapping or a YAML file, with `key.path=value` overrides; one-line errors."""
    if isinstance(value, Spec):
        plain: Any = value.canonical()
    elif isinstance(value, str | Path):
        plain = read_yaml(Path(value))
    else:
        plain = dict(value) if value is not None else {}
    if not isinstance(plain, dict):
        raise InputError(f"spec: a mapping of keys is expected, got {type(plain).__name__}")
    for override in overrides:
        plain = override_key(plain, override)
    try:
        return Spec(**_as_json(plain))
    except ValidationError as error:
        raise first_problem(error) from None


def _as_json(value: Any, path: str = "", depth: int = 0) -> Any:
    """The value as JSON can write it: numbers are finite, and keys text, to be refused by name if they are unknown."""
    if depth > MOST_DEPTH:
        raise OptionError(path[:60], f"is nested too deeply (allowed: {MOST_DEPTH} levels)")
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner, f"{path}.{key}".lstrip("."), depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_json(inner, f"{path}.{place}", depth + 1) for place, inner in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(path, f"{value} is not allowed: a finite number is expected")
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise OptionError(path, f"a number of more than {MOST_DIGITS} digits is not allowed")
    return value


def override_key(plain: dict[str, Any], override: str) -> dict[str, Any]:
    """A copy of the mapping with `a.b=c` set in it; the value is read as YAML."""
    parts, value = read_override(override)
    return set_key(plain, parts, value, f"--set {shown(override)}")


def set_key(plain: Mapping[str, Any], parts: Sequence[str], value: Any, what: str) -> dict[str, Any]:
    """A copy of nested mappings with one key set. A new `name` drops the options of the component that was there.

    A component that is named but has no options yet becomes a mapping; one that is not named is the spec's default.
    `what` starts the message where something else than a mapping is in the way.
    """
    result = dict(plain)
    node = result
    for depth, part in enumerate(parts[:-1]):
        where = ".".join(parts[: depth + 1])
        inner = node.get(part, _DEFAULT_NAMES.get(where))
        if isinstance(inner, str):
            inner = {"name": inner}
        if inner is not None and not isinstance(inner, Mapping):
            raise InputError(f"{what}: {where} is {shown(inner)}, which has no keys")
        node[part] = dict(inner or {})
        node = node[part]
    if parts[-1] == "name" and node.get("name") not in (None, value):
        node.clear()
    node[parts[-1]] = copy.deepcopy(value)
    return result


def describe(component: Component | Rule) -> str:
    """A component's name for tables: `atm`, or `norm_clipping + atm` for a pipeline."""
    written: Any = component.canonical()
    if isinstance(written, list):
        return " + ".join(str(part["name"]) for part in written)
    return component.name
