"""Which of several ways to the same numbers, up to rounding, the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Product = Literal["dense", "looked_up"]
"""How a matrix of records, most of them zeros, is multiplied."""

RowProduct = Literal["blas", "blocks"]
"""Who multiplies gradients that are written out: the BLAS libraries, or oneDNN block by block."""

Passes = Literal["hand", "autograd"]
"""Who differentiates the clients' passes: our own passes (by hand, or shared by several clients), or autograd alone."""

RoutesBy = Literal["fixed", "measured"]
"""Rules of thumb that are the same everywhere, or what is fastest where the run is computed."""


@dataclass(frozen=True)
class Routes:
    """One choice per place where there are several ways; None where a rule of thumb decides, alike on every machine.

    Parameters
    ----------
    passes: who differentiates the passes of training.
    together: clients that share a pass at the most; 1 means one by one.
    room: numbers that the activations of a pass by hand may take beside what is there already.
    records: the product of the records with the first weight, in training.
    weights: the product that is the first weight's gradient, in training.
    scoring: the product of the targets with the first weight.
    crafting: all products of records that crafting and other questions about single samples ask for.
    rows: the inner products of gradients that are written out, which is what crafting has of convolutions.
    images: images that pass at once in training.
    scored_images: images that are scored at once.
    """

    passes: Passes | None = None
    together: int | None = None
    room: int | None = None
    records: Product | None = None
    weights: Product | None = None
    scoring: Product | None = None
    crafting: Product | None = None
    rows: RowProduct | None = None
    images: int | None = None
    scored_images: int | None = None

    def as_dict(self) -> dict[str, str | int]:
        """The choices that were made, without those that are left to the rule of thumb."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def in_words(self) -> str:
        """The choices in a line."""
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "fixed"

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Routes:
        """What `as_dict` wrote; ValueError for anything else."""
        words = {"passes": get_args(Passes), "rows": get_args(RowProduct)} | dict.fromkeys(_PRODUCTS, get_args(Product))
        known = {field.name for field in fields(cls)}
        for name, value in plain.items():
            fine = value in words[name] if name in words else type(value) is int and value > 0
            if name not in known or not fine:
                raise ValueError(f"{name}: {value!r} is not a route")
        return cls(**plain)


_PRODUCTS = ("records", "weights", "scoring", "crafting")

FIXED = Routes()
"""The rules of thumb: every run's, unless its spec asks for measured ones."""
