"""Attacks around another attack: they decide when, at what and by whom it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, field_validator

from scapegoat.crafting.contract import SHARED, Attack, registry
from scapegoat.errors import OptionError


class Around(Attack):
    """An attack that sends another one, `inner`, in its own way. What every attack has, both have in common."""

    takes_bfloat16 = True

    inner: Annotated[Any, WithJsonSchema({"allowed": "an attack"})] = Field("blend", validate_default=True)
    """The attack that does the poisoning, as a spec writes it, without the options that all attacks share."""

    @field_validator("inner")
    @classmethod
    def _written(cls, value: Any) -> Any:
        twice = [key for key in SHARED if isinstance(value, Mapping) and key in value]
        if twice:
            raise OptionError(twice[0], "is given to the attack around this one, as attack." + twice[0])
        return {key: option for key, option in registry.parse(value).canonical().items() if key not in SHARED}

    @cached_property
    def poison(self) -> Attack:
        """The inner attack, with the options that all share."""
        return registry.parse({**self.inner, **{key: getattr(self, key) for key in SHARED}})

    def parts(self) -> tuple[Attack, ...]:
        """Itself and the parts of the attack inside."""
        return (self, *self.poison.parts())

    def aimed_at(self, targets: int) -> int:
        """What the inner attack is aimed at."""
        return self.poison.aimed_at(targets)
