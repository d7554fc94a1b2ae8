"""The spec: one federation under one attack, as data. Its hash names the run."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
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
from scapegoat.errors import InputError, OptionError
from scapegoat.federation import FederationSetting
from scapegoat.models import ModelSpec
from scapegoat.models import registry as models
from scapegoat.registry import Component, first_problem

# Part of every hash: raised when the same spec would give other numbers than before.
NUMBERS_VERSION = 1

# What an override such as `attack.targets=100` is about where the spec names no component.
_DEFAULT_NAMES = {
    "data": "hospital",
    "model": "mlp",
    "attack": "fedpoisonmia",
    "defense": "fedavg",
    "federation.partition": "iid",
    "federation.local": "gradient",
    "federation.schedule": "sync",
}

_written = PlainSerializer(lambda component: component.canonical())


class Evaluation(BaseModel):
    """How often the test accuracy is measured; the targets are scored every round."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Annotated[int, Field(ge=1)] = 10


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
    threads: Annotated[int, Field(ge=1)] = 1

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
        stages = self.defense.stages if isinstance(self.defense, aggregation.Pipeline) else (self.defense,)
        needy = next((stage.name for stage in stages if stage.needs_server_data), None)
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
        text = json.dumps(
            {"numbers": NUMBERS_VERSION, **self.canonical()}, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def pinned(self, roots: list[Path]) -> Spec:
        """The spec with the content of a user's own files in it, so that a changed file is another run."""
        content = self.data.fingerprint(roots)
        if content is None:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"content": content})})


def parse(value: Spec | Mapping[str, Any] | str | Path | None, overrides: Iterable[str] = ()) -> Spec:
    """A Spec from a Spec, a mapping or a YAML file, with `key.path=value` overrides; one-line errors."""
    if isinstance(value, Spec):
        plain: Any = value.canonical()
    elif isinstance(value, str | Path):
        plain = read_yaml(Path(value))
    else:
        plain = dict(value) if value is not None else {}
    if not isinstance(plain, dict):
        raise InputError(f"spec: a mapping of keys is wanted, got {type(plain).__name__}")
    for override in overrides:
        plain = override_key(plain, override)
    try:
        return Spec(**_as_json(plain))
    except ValidationError as error:
        raise first_problem(error) from None


def _as_json(value: Any, path: str = "") -> Any:
    """The value as JSON can write it: numbers are finite, and keys text, to be refused by name if they are unknown."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner, f"{path}.{key}".lstrip(".")) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_json(inner, f"{path}.{place}") for place, inner in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(path, f"{value} is not allowed: a finite number is wanted")
    return value


def read_yaml(path: Path) -> Any:
    """The content of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; a YAML spec is wanted") from None
    try:
        content = load_yaml(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return {} if content is None else content


def load_yaml(text: str) -> Any:
    """The value of a YAML text; an InputError says what is wrong with it, and in which line."""
    try:
        # A SafeLoader: it makes plain values only, whatever tags the text has.
        return yaml.load(text, _Loader)
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise InputError(f"is not YAML ({where}{error.problem})") from None
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML ({getattr(error, 'reason', error)})") from None


class _Loader(yaml.SafeLoader):
    """As yaml.safe_load reads, but a key given twice is refused, and a date stays text: no option is one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node

    def construct_date(self, node: yaml.ScalarNode) -> Any:
        return self.construct_scalar(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            # Deep, whatever was asked for: so a list that holds itself is refused.
            return super().construct_object(node, deep=True)
        except (ValueError, LookupError):
            # `0x_` has the looks of a number, `!!bool 2` says that it is a truth value.
            kind = node.tag.rpartition(":")[2]
            problem = f"{reprlib.repr(node.value)} cannot be read as {kind}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_date)


def override_key(plain: dict[str, Any], override: str) -> dict[str, Any]:
    """`a.b=c` set in a mapping; the value is read as YAML. Replacing a `name` drops the old component's options."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {override!r}: write key=value, such as federation.rounds=100")
    try:
        value = load_yaml(text) if text.strip() else ""
    except InputError as error:
        raise InputError(f"--set {override!r}: the value {error}") from None
    result = dict(plain)
    node = result
    for depth, part in enumerate(parts[:-1]):
        inner = node.get(part, _DEFAULT_NAMES.get(".".join(parts[: depth + 1])))
        if isinstance(inner, str):
            inner = {"name": inner}
        if inner is not None and not isinstance(inner, Mapping):
            raise InputError(f"--set {override!r}: {'.'.join(parts[: depth + 1])} is {inner!r}, which has no keys")
        node[part] = dict(inner or {})
        node = node[part]
    if parts[-1] == "name" and node.get("name") not in (None, value):
        node.clear()
    node[parts[-1]] = value
    return result


def describe(component: Component | Rule) -> str:
    """A component's name for tables: `atm`, or `norm_clipping + atm` for a pipeline."""
    written: Any = component.canonical()
    if isinstance(written, list):
        return " + ".join(str(part["name"]) for part in written)
    return component.name
