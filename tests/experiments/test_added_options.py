"""An option that is added to a component or to a part of the spec leaves the names of runs that do not use it alone."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainSerializer

from scapegoat.errors import OptionError
from scapegoat.registry import Component, Registry, added


class Old(Component):
    rate: float = 0.5


class New(Component):
    rate: float = 0.5
    delay: Annotated[int, Field(ge=0)] = added(0)
    stages: list[str] = added([])


Old.name = New.name = "thing"
# As if they were ours: of a user's own component the code is written too.
Old.__module__ = New.__module__ = "scapegoat.made_up"

_written = PlainSerializer(Component.canonical)


class Part(BaseModel):
    every: int = 10
    view: bool = added(False)
    inner: Annotated[New, _written] = added(New())


class Whole(BaseModel):
    part: Part = Part()
    thing: Annotated[New, _written] = New()


@pytest.mark.parametrize("options", [{}, {"delay": 0}, {"stages": []}, {"delay": 0, "stages": []}])
def test_a_component_is_written_as_before_while_the_option_has_its_default(options: dict[str, Any]) -> None:
    assert New(**options).canonical() == Old().canonical()


def test_an_option_that_is_used_is_written() -> None:
    assert New(delay=2, stages=["a"]).canonical() == {"name": "thing", "rate": 0.5, "delay": 2, "stages": ["a"]}


def test_nested_parts_follow_the_same_rule() -> None:
    assert Whole().model_dump(mode="json") == {"part": {"every": 10}, "thing": {"name": "thing", "rate": 0.5}}
    used = Whole(part=Part(view=True, inner=New(delay=1)), thing=New(delay=3))
    assert used.model_dump(mode="json") == {
        "part": {"every": 10, "view": True, "inner": {"name": "thing", "rate": 0.5, "delay": 1}},
        "thing": {"name": "thing", "rate": 0.5, "delay": 3},
    }


def test_a_default_that_is_added_is_still_checked_when_it_is_given() -> None:
    registry: Registry[New] = Registry("thing", New, "scapegoat.models")
    registry.register("thing")(New)
    with pytest.raises(OptionError, match="delay"):
        registry.get("thing", delay=-1)


def test_no_two_components_share_a_default_that_can_change() -> None:
    New().stages.append("a")
    assert New().stages == []
    assert New().canonical() == Old().canonical()
