"""The spec: one federation under one attack, as data. Its hash names the run."""

from __future__ import annotations

import copy
import math
import re
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
from scapegoat.kernels.routes import RoutesBy
from scapegoat.modelling.flat_model import Precision
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


def _device(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda|cuda:[0-9]{1,3}|mps", value):
        return value
    raise OptionError("", f"{shown(value)} is not a device (one of: auto, cpu, cuda, cuda:N, mps)")


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

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    every: Annotated[int, Field(ge=1)] = 10
    """Rounds from one measurement of the test accuracy to the next."""
    design: Design = added("even")
    """How members are chosen: evenly from the clients' records, or each target by a fair coin."""
    reference: Annotated[int, Field(ge=0)] = added(0)
    """Which reference federation this is; 0: none, the one that is attacked."""
    server_view: bool = added(False)
    """Whether targets are also scored as a curious server would."""

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
    """All that decides a run's numbers. `threads` and `routes` are among it, because the order of float sums is.

    So is `device`, where models, records and updates live from start to end; `auto` is settled before a run has a name.

    Examples
    --------
    >>> spec = parse({"data": "hospital", "defense": {"name": "atm", "trim": 2}, "federation": {"clients": 20}})
    >>> spec.defense.trim, spec.federation.rounds, len(spec.hash)
    (2, 400, 64)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: Annotated[int, Field(ge=0)] = 0
    """What all randomness is derived from."""
    data: Annotated[DataSpec, PlainValidator(data_sets.parse), _written] = Field(
        default_factory=lambda: data_sets.get(_DEFAULT_NAMES["data"])
    )
    """The data set."""
    model: Annotated[ModelSpec, PlainValidator(models.parse), _written] = Field(
        default_factory=lambda: models.get(_DEFAULT_NAMES["model"])
    )
    """The model."""
    federation: FederationSetting = FederationSetting()
    """Who takes part, how often, and how the server steps."""
    attack: Annotated[Attack, PlainValidator(attacks.parse), _written] = Field(
        default_factory=lambda: attacks.get(_DEFAULT_NAMES["attack"])
    )
    """What the hostile clients do."""
    defense: Annotated[Rule, PlainValidator(aggregation.parse), _written] = Field(
        default_factory=lambda: aggregation.get(_DEFAULT_NAMES["defense"])
    )
    """The server's aggregation rule, or a pipeline of them."""
    evaluation: Evaluation = Evaluation()
    """How the targets are drawn, and how often the test accuracy is measured."""
    task: Annotated[TaskSpec | None, PlainValidator(_task), _written_or_none] = added(None)
    """What the model is trained for; none: what the data's labels say."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads of each run."""
    routes: RoutesBy = added("fixed")
    """Whether the ways that passes are taken by are fixed, or measured on this machine."""
    device: Annotated[str, PlainValidator(_device)] = added("cpu")
    """Where models, records and updates live: cpu, cuda, cuda:1, mps, or auto for what there is."""
    precision: Precision = added("float32")
    """What passes are computed in; updates, rules and steps are float32 all the same."""
    plugins: tuple[str, ...] = added(())
    """Modules that register components of your own."""

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
    def _attack_reads_updates(self) -> Spec:
        held, full = self.federation.updates, self.attack.knowledge == "full"
        bad = next((part.name for part in self.attack.parts() if full and not part.reads(held)), None)
        if bad is not None and self.federation.malicious:
            raise OptionError(
                "federation.updates", f"{held} is not for {bad}, which needs its peers' updates in float32"
            )
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


SpecLike = Spec | Mapping[str, Any] | str | Path
"""A spec as a user gives it: a spec, a mapping, or a YAML file."""


def parse(value: SpecLike | None, overrides: Iterable[str] = ()) -> Spec:
    """A Spec from a Spec, a mapping or a YAML file, with `key.path=value` overrides; one-line errors."""
    if isinstance(value, Spec):
        plain: Any = value.canonical()
    elif isinstance(value, str | Path):
        plain = read_yaml(Path(value))
    else:
        plain = dict(value) if value is not None else {}
    if not isinstance(plain, dict):
        raise InputError(f"spec: {type(plain).__name__} is not allowed; it must be a mapping of keys")
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
