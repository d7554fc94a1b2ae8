"""Turning key paths into specs: what a sweep sets, what fits the data set and the number of malicious clients."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scapegoat import aggregation
from scapegoat import data as data_sets
from scapegoat.data.published import PublishedData
from scapegoat.errors import InputError


def put(plain: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings. A new `name` drops the options of the component that was there.

    InputError where something else than a mapping is in the way.
    """
    *outer, last = path.split(".")
    node = plain
    for depth, part in enumerate(outer, 1):
        inner = node.get(part)
        if isinstance(inner, str):
            inner = {"name": inner}
        if not isinstance(inner, Mapping | None):
            raise InputError(f"{'.'.join(outer[:depth])}: {inner!r} cannot hold {path}; a mapping is wanted")
        node[part] = dict(inner or {})
        node = node[part]
    if last == "name" and node.get("name") not in (None, value):
        node.clear()
    node[last] = copy.deepcopy(value)


def data_settings(name: str, root: str | Path | None) -> dict[str, Any]:
    """The data set, and the model that the paper takes for its kind: ResNet-20 for images, else fully connected."""
    return {"data": {"name": name}, "model": {"name": "mlp" if is_tabular(name, root) else "resnet20"}}


def is_tabular(name: str, root: str | Path | None) -> bool:
    """Whether the records are vectors. A user's own files are looked at."""
    spec = data_sets.get(name)
    if isinstance(spec, PublishedData):
        return len(spec.publication.shapes[0]) == 1
    if spec.name == "images":
        return False
    if spec.name == "hospital":
        return True
    return len(spec.read(data_sets.roots(root)).input_shape) == 1


def fitted(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Tell a rule how many malicious clients there are, as far as the rule allows.

    The paper does not say how it sets the trim b (or Krum's f) when it varies the number of malicious clients m. Here
    b = f = m, the least that can discard them all, but never so large that the rule would refuse: 2b stays below the
    number of updates that it sees, and other rules have bounds of their own.
    """
    federation = plain["federation"]
    malicious = int(federation["malicious"])
    picked = math.ceil(float(federation["fraction"]) * int(federation["clients"]) - 1e-9)
    defense = plain.get("defense", {})
    if isinstance(defense, str):
        defense = {"name": defense}
    if not isinstance(defense, Mapping):
        return dict(plain)
    options = aggregation.registry.cls(defense["name"]).model_fields
    option = next((o for o in ("trim", "malicious") if o in options and o not in defense), None)
    if option is None:
        return dict(plain)
    for value in range(max(malicious, 1), 0, -1):
        candidate = {**defense, option: value}
        try:
            aggregation.parse(candidate).check(picked)
        except ValueError:
            continue
        return {**plain, "defense": candidate}
    return dict(plain)
