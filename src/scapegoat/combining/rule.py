"""What every aggregation rule shares: how it is called, its options and their checks, and the registry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, WithJsonSchema

from scapegoat.combining.contract import Aggregate, AggregationContext, Score
from scapegoat.combining.stack import Stack, Updates, checked, stacked
from scapegoat.errors import InputError, OptionError
from scapegoat.registry import Component, Registry

__all__ = [
    "Aggregate",
    "AggregationContext",
    "Rule",
    "Score",
    "Stack",
    "Transform",
    "Trim",
    "Updates",
    "check_malicious",
    "check_own_rows",
    "check_several",
    "check_trim",
    "get",
    "number_or_share",
    "number_or_share_schema",
    "register",
    "registry",
    "trim_count",
]


def number_or_share(value: object, *, below: float) -> int | float:
    """A whole number from 1, or a fraction of the updates that is smaller than `below`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if 0 < value < below:
            return float(value)
        if 1 <= value < math.inf and value == int(value):
            return int(value)
    allowed = f"a whole number from 1, or a fraction between 0 and {below:g}"
    raise OptionError("", f"{value!r} is not allowed: must be {allowed}")


def number_or_share_schema(below: float) -> WithJsonSchema:
    """What `number_or_share` allows, for those who ask which values an option may have."""
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": below}
    return WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, share]})


Trim = Annotated[int | float, BeforeValidator(partial(number_or_share, below=0.5)), number_or_share_schema(0.5)]
"""How many updates b to trim: a number, or a fraction of the updates of the step."""


def trim_count(trim: int | float, n: int) -> int:
    """How many updates b are trimmed of n.

    Parameters
    ----------
    trim: a number, or a fraction of the updates.
    n: how many updates there are.

    Returns
    -------
    b: `trim` itself, or the fraction of n rounded up; never so many that 2b >= n.

    Examples
    --------
    >>> trim_count(2, 10), trim_count(0.15, 10), trim_count(5, 10)
    (2, 2, 4)
    """
    return max(0, min(_wanted(trim, n), (n - 1) // 2))


def _wanted(trim: int | float, n: int) -> int:
    b = number_or_share(trim, below=0.5)
    return b if isinstance(b, int) else math.ceil(b * n - 1e-9)


def check_trim(trim: int | float, updates_per_step: int) -> None:
    """Raise OptionError unless 2b < n."""
    n, b = updates_per_step, _wanted(trim, updates_per_step)
    if 2 * b < n:
        return
    most = (n - 1) // 2
    if isinstance(trim, int):
        problem, allowed = f"{trim} is too many for {n} updates per step", f"at most {most}"
    else:
        problem, allowed = f"{trim} makes b = {b} of n = {n} updates per step", f"at most {most}/{n}"
    raise OptionError("trim", f"{problem}: 2b < n is expected, {allowed if most else 'no trim is possible'}")


def check_malicious(malicious: int, updates_per_step: int, needed: int, why: str) -> None:
    """Raise OptionError unless there are `needed` updates per step."""
    if updates_per_step < needed:
        raise OptionError(
            "malicious",
            f"{malicious} is too many for {updates_per_step} updates per step: {why} needs at least {needed}",
        )


def check_several(name: str, updates_per_step: int) -> None:
    """Raise OptionError for a rule that compares updates if there is nothing to compare."""
    if updates_per_step < 2:
        raise OptionError("", f"{name} compares updates: {updates_per_step} per step is too few, at least 2 are needed")


class Rule(Component):
    """A server's aggregation rule.

    `rule(updates)` or `rule(updates, context)`, where updates are stacked [n, d] or a list of vectors as they arrived.
    A new rule defines `aggregate`, which sees well-formed rows only.

    Examples
    --------
    >>> import torch
    >>> class FirstRow(Rule):
    ...     def aggregate(self, stack, context):
    ...         return stack.aggregate(stack.rows[0], torch.arange(len(stack)) == 0)
    >>> FirstRow()(torch.tensor([[float("nan")], [2.0], [3.0]]))
    Aggregate(update=tensor([2.]), kept=tensor([False,  True, False]), rejected=tensor([ True, False, False]), notes={})
    """

    by_gram: ClassVar[bool] = False
    """Whether the rule needs the Gram matrix, which then serves to find malformed rows too."""

    plain: ClassVar[bool] = False
    """Whether the rule needs neither products nor norms, so that rows can be screened without keeping them."""

    needs_server_data: ClassVar[bool] = False
    """Whether the rule judges updates by records of the server's own."""

    asks_for: ClassVar[Literal["score", "root_update"] | None] = None
    """Which of the context's answers from those records it cannot do without."""

    probes: ClassVar[bool] = False
    """Whether it also judges updates by the outputs of the model that they make, where the context can tell them."""

    shift_free: ClassVar[bool] = False
    """Whether moving all updates by a vector moves the aggregate by it: what they are relative to does not matter."""

    turn_free: ClassVar[bool] = False
    """Whether turning all updates, and its memory, turns the aggregate: it asks for lengths and angles alone.

    Not inherited: a subclass may look at more, so it says so itself.
    """

    resists: ClassVar[bool] = True
    """Whether it is meant to stand one hostile client; plain averaging is not."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Forget what the base class claims of itself alone."""
        super().__init_subclass__(**options)
        cls.turn_free = bool(vars(cls).get("turn_free", False))

    def __call__(self, updates: Updates | Stack, context: AggregationContext | None = None) -> Aggregate:
        """Aggregate the updates of one round."""
        stack = stacked(updates, None if context is None else context.dimension)
        arrived = len(stack.accepted)
        if context is None:
            context = AggregationContext.anonymous(arrived)
        elif not len(context.client_ids) == len(context.sample_counts) == arrived:
            raise InputError(
                f"{arrived} updates came with {len(context.client_ids)} client ids and {len(context.sample_counts)} "
                f"sample counts; one of each per update is expected"
            )
        stack = checked(stack, self.by_gram, self.plain)
        return self.aggregate(stack, context.rows(stack.places)) if len(stack) else stack.nothing()

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """Aggregate well-formed rows, at least one; the context is theirs, row by row."""
        raise NotImplementedError

    def check(self, updates_per_step: int) -> None:
        """Raise OptionError if the rule cannot work with so many updates per step."""

    def follows(self, stages: Sequence[Rule]) -> None:
        """Raise OptionError if the rule must not come after these stages of a pipeline."""

    def parts(self) -> tuple[Rule, ...]:
        """The rules that it is made of: itself, or the stages of a pipeline."""
        return (self,)

    @property
    def sums_only(self) -> bool:
        """Whether the server needs no more than the sum of what clients send, which secure aggregation reveals.

        What is done to each update without a look at the others, its client can do before it sends.
        """
        return False

    def keeps(self, clients: int, d: int) -> int:
        """Numbers that it keeps from round to round in a federation of so many clients, about."""
        width = getattr(self, "sketch", None) or d
        return min(clients, getattr(self, "remember", 0)) * min(width, d)

    def needs(self, updates: int, d: int) -> int:
        """Numbers that it needs inside a round of so many updates, beside those, about."""
        return 2 * d

    def trims(self, updates_per_step: int) -> int | None:
        """How many updates it trims at each end, as the adaptive attack is told; None if it does not trim."""
        trim = getattr(self.parts()[-1], "trim", None)
        return None if trim is None else trim_count(trim, updates_per_step)


def check_own_rows(rule: Rule, option: str, stages: Sequence[Rule]) -> None:
    """Raise OptionError for a rule that must know whose row it sees if a stage before merges clients."""
    for stage in stages:
        if isinstance(stage, Transform) and stage.merges:
            raise OptionError(option, f"{rule.name} must know each client's update, but {stage.name} merges them")


class Transform(Rule):
    """A rule that changes updates before another rule aggregates them; alone, it ends in the mean.

    Examples
    --------
    >>> import torch
    >>> class Halved(Transform):
    ...     def transform(self, stack, context):
    ...         return stack.scaled(torch.full((len(stack),), 0.5)), {}
    >>> Halved()(torch.tensor([[2.0], [4.0]])).update
    tensor([1.5000])
    """

    @property
    def rowwise(self) -> bool:
        """Whether each row is changed without a look at the others."""
        return False

    @property
    def merges(self) -> bool:
        """Whether it makes fewer rows, each of several clients."""
        return False

    @property
    def sums_only(self) -> bool:
        """Where each row is changed alone, and none merged."""
        return self.rowwise and not self.merges

    def rows_left(self, updates_per_step: int) -> int:
        """How many rows it makes of so many updates."""
        return updates_per_step

    def written(self, updates: int) -> int:
        """Rows that it writes out for the rule after it; 0 if it does without a copy."""
        return self.rows_left(updates)

    def needs(self, updates: int, d: int) -> int:
        """The rows that it writes out, and the mean of them."""
        return (self.written(updates) + 2) * d

    def transform(self, stack: Stack, context: AggregationContext) -> tuple[Stack, dict[str, float]]:
        """The changed rows, and notes."""
        raise NotImplementedError

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the changed rows."""
        changed, notes = self.transform(stack, context)
        changed = checked(changed)
        if not len(changed):
            return changed.nothing(notes)
        return changed.aggregate(changed.mean(), notes=notes)


registry: Registry[Rule] = Registry("defense", Rule, "scapegoat.aggregation")
register = registry.register
get = registry.get
