"""A policy: how much the deployed rule may leak and cost at most. What cannot be shown to hold does not hold.

    defense: reputation_atm
    limits: {auc: 0.75, tpr_at_fpr_01: 0.1, epsilon_lower: 3.0, accuracy_cost: 0.05}
    attacks: {fedpoisonmia: {auc: 0.7}}      # optional: closer limits for one attack
    against: [passive, fedpoisonmia]         # optional: who must have been tried (default: all attacks of an audit)

`limits` hold for the worst attack by its worst score. What counts is the figure itself, not the end of its
interval: otherwise more targets, which make intervals narrower, would change what a limit means. But a figure without
an interval, or one that the targets cannot resolve, has not been shown to be below anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from scapegoat import aggregation
from scapegoat.attacks import registry as attack_names
from scapegoat.errors import InputError, OptionError
from scapegoat.registry import first_problem
from scapegoat.yaml_text import read_yaml

RECOMMENDED = "plan"
"""In place of a rule: the one that the audit recommends, with its protections and rounds."""
AGAINST = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia", "blend")
"""What a policy is about unless it says otherwise; it does not change with what an audit tries by default."""

Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LeakageLimits(_Part):
    """The most that an attack may find out."""

    auc: Annotated[float, Field(ge=0.5, le=1, strict=True)] | None = None
    tpr_at_fpr_01: Share | None = None
    tpr_at_fpr_001: Share | None = None
    epsilon_lower: Annotated[float, Field(ge=0, strict=True)] | None = None

    def given(self) -> dict[str, float]:
        """The limits that are set, by figure."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class Limits(LeakageLimits):
    """The most that the worst attack may find out, and the test accuracy that the rule may cost."""

    accuracy_cost: Share | None = None


class Policy(_Part):
    """Which rule is deployed, and what it must keep to; `defense: plan` is what the audit recommends."""

    defense: Any
    limits: Limits = Limits()
    attacks: dict[str, LeakageLimits] = Field(default_factory=dict)
    against: Annotated[tuple[str, ...], Field(min_length=1)] = AGAINST
    source: str = Field("policy.yaml", exclude=True)
    """The file, for messages."""
    places: dict[str, int] = Field(default_factory=dict, exclude=True)
    """The line of each key in the file."""

    @field_validator("defense")
    @classmethod
    def _is_a_rule(cls, value: Any) -> Any:
        if value != RECOMMENDED:
            aggregation.parse(value)
        return value

    @field_validator("against")
    @classmethod
    def _are_attacks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            _known(name)
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Policy:
        if not self.limits.given() and not any(limits.given() for limits in self.attacks.values()):
            raise OptionError("limits", f"are missing (one or more of: {', '.join(Limits.model_fields)})")
        for name in self.attacks:
            _known(name)
            if name not in self.against:
                raise OptionError(f"attacks.{name}", f"is not among those tried (against: {', '.join(self.against)})")
        return self

    @property
    def about_the_plan(self) -> bool:
        """Whether it holds the plan that the audit recommends, whatever that is."""
        return bool(self.defense == RECOMMENDED)

    @property
    def needed_attacks(self) -> tuple[str, ...] | None:
        """The attacks whose runs decide; a rule's cost is measured while nobody attacks. None: those of the audit."""
        if self.about_the_plan and "against" not in self.model_fields_set:
            return None
        extra = ("passive",) if self.limits.accuracy_cost is not None else ()
        return tuple(dict.fromkeys([*extra, *self.against]))

    @property
    def needed_defenses(self) -> tuple[Any, ...] | None:
        """The deployed rule beside plain averaging, which the verdict and the rule's cost compare it with.

        None: those of the audit.
        """
        if self.about_the_plan:
            return None
        return ("fedavg",) if self.defense in ("fedavg", {"name": "fedavg"}) else ("fedavg", self.defense)

    def line(self, key: str) -> int:
        """The line of a key such as `limits.auc`, or of what it belongs to."""
        while key and key not in self.places:
            key = key.rpartition(".")[0]
        return self.places.get(key, 1)


def read_policy(source: str | Path | Mapping[str, Any]) -> Policy:
    """A policy from a YAML file or a mapping; an InputError in one line says what is wrong with it.

    Examples
    --------
    >>> read_policy({"defense": "atm", "limits": {"auc": 0.75}}).limits.given()
    {'auc': 0.75}
    """
    if isinstance(source, Mapping):
        return _policy(dict(source), "policy", {})
    path = Path(source)
    content = read_yaml(path)
    return _policy(content, str(source), _places(yaml.compose(path.read_text("utf-8"), yaml.SafeLoader)))


def _policy(content: Any, where: str, places: Mapping[str, int]) -> Policy:
    if not isinstance(content, dict):
        raise InputError(f"{where}: must be a mapping such as {{defense: atm, limits: {{auc: 0.75}}}}")
    own = next((key for key in content if not isinstance(key, str) or key in ("source", "places")), None)
    if own is not None:
        raise InputError(f"{where}: {own}: is not a known key (allowed: defense, limits, attacks, against)")
    try:
        return Policy(**content, source=where, places=dict(places))
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from None


def _places(node: Any, path: str = "") -> dict[str, int]:
    """The line of every key of nested mappings, by its dotted path."""
    found: dict[str, int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            found |= {name: key.start_mark.line + 1, **_places(value, name)}
    return found


def _known(name: str) -> None:
    try:
        attack_names.cls(name)
    except OptionError as error:
        raise OptionError("", error.message) from None
