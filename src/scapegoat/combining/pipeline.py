"""Rules that compose: transforms, one after the other, that end in a rule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import ValidationError, model_validator

from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, Transform, registry
from scapegoat.combining.stack import checked
from scapegoat.errors import OptionError
from scapegoat.registry import first_problem

RuleLike = str | Mapping[str, Any] | Sequence[Any] | Rule
"""A rule as a user gives it: its name, `{name: ..., option: ...}`, a list of those (a pipeline), or a rule."""


class Pipeline(Rule):
    """Transforms in order, then a rule: `[{name: norm_clipping}, {name: dp, sigma: 0.01}, {name: atm}]`.

    A pipeline whose last stage is a transform ends in the mean.

    Examples
    --------
    >>> parse([{"name": "norm_clipping", "norm": 1.0}, {"name": "atm", "trim": 1}])
    Pipeline(stages=(NormClipping(norm=1.0), ATM(trim=1)))
    """

    name: ClassVar[str] = "pipeline"

    stages: tuple[Rule, ...]
    """The rules in order; all but the last are transforms."""

    @model_validator(mode="after")
    def _composes(self) -> Pipeline:
        if not self.stages:
            raise OptionError("", "a pipeline needs at least one rule")
        for i, stage in enumerate(self.stages[:-1]):
            if not isinstance(stage, Transform):
                transforms = ", ".join(n for n, c in registry.classes() if issubclass(c, Transform))
                raise OptionError(
                    str(i), f"{stage.name} ends a pipeline, but others follow (before the last only: {transforms})"
                )
        for i, stage in enumerate(self.stages):
            with _named(i):
                stage.follows(self.stages[:i])
        return self

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """Every transform in turn, then the rule on what came out."""
        notes: dict[str, float] = {}
        for stage in self.stages[:-1]:
            assert isinstance(stage, Transform)
            before = stack.places
            stack, said = stage.transform(stack, context)
            notes |= said
            stack = checked(stack)
            if not len(stack):
                return stack.nothing(notes)
            context = context.rows([before.index(place) for place in stack.places])
        answer = self.stages[-1].aggregate(stack, context)
        return replace(answer, notes=notes | answer.notes)

    def check(self, updates_per_step: int) -> None:
        """Every stage must be able to work with what those before leave of so many updates."""
        for i, (stage, rows) in enumerate(zip(self.stages, self._rows(updates_per_step), strict=True)):
            with _named(i):
                stage.check(rows)

    def trims(self, updates_per_step: int) -> int | None:
        """What the last stage trims of the rows that reach it."""
        return self.stages[-1].trims(self._rows(updates_per_step)[-1])

    def _rows(self, updates_per_step: int) -> list[int]:
        """How many rows each stage sees."""
        rows = [updates_per_step]
        for stage in self.stages[:-1]:
            rows.append(stage.rows_left(rows[-1]) if isinstance(stage, Transform) else rows[-1])
        return rows

    @property
    def sums_only(self) -> bool:
        """Where every stage is content with that."""
        return all(stage.sums_only for stage in self.stages)

    def keeps(self, clients: int, d: int) -> int:
        """What its stages keep."""
        return sum(stage.keeps(clients, d) for stage in self.stages)

    def needs(self, updates: int, d: int) -> int:
        """Whatever the stages write out for those after them, and what the last one needs."""
        seen = self._rows(updates)
        before = zip(self.stages[:-1], seen, strict=False)
        written = sum(stage.written(rows) for stage, rows in before if isinstance(stage, Transform))
        return written * d + self.stages[-1].needs(seen[-1], d)

    def parts(self) -> tuple[Rule, ...]:
        """The stages."""
        return self.stages

    def canonical(self) -> Any:
        """The list of stages, as the spec writes it."""
        return [stage.canonical() for stage in self.stages]


@contextlib.contextmanager
def _named(place: int) -> Iterator[None]:
    """A stage's errors say which stage it is."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"{place}.{error.path}".rstrip("."), error.message) from None


def parse(value: Any) -> Rule:
    """A rule as a spec writes it.

    Parameters
    ----------
    value: a name, a `{name: ..., option: ...}` mapping, a list of those (a pipeline), or a rule.

    Returns
    -------
    The rule; what cannot be one is an OptionError that says why.

    Examples
    --------
    >>> parse({"name": "atm", "trim": 2})
    ATM(trim=2)
    >>> parse(["client_momentum", "median"]).parts()[1]
    Median()
    """
    if not isinstance(value, (list, tuple)):
        return registry.parse(value)
    stages = []
    for i, stage in enumerate(value):
        with _named(i):
            stages.append(registry.parse(stage))
    if len(stages) == 1:
        return stages[0]
    try:
        return Pipeline(stages=tuple(stages))
    except ValidationError as error:
        raise first_problem(error) from None
