"""What suits what: a model for a data set, a rule's strength for the number of hostile clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scapegoat import aggregation, tasks
from scapegoat import data as data_sets
from scapegoat.errors import OptionError
from scapegoat.experiments.spec import parse
from scapegoat.federation import FederationSetting


def fitted_model(data: Any, root: str | Path | None = None, task: Any = None) -> dict[str, Any]:
    """ResNet-20 for pictures, a fully connected model for records, as in the paper."""
    return {"name": "mlp" if is_tabular(data, root, task) else "resnet20"}


def data_settings(name: str, root: str | Path | None) -> dict[str, Any]:
    """The data set, and the model that suits it."""
    return {"data": {"name": name}, "model": fitted_model(name, root)}


def is_tabular(data: Any, root: str | Path | None = None, task: Any = None) -> bool:
    """Whether the records are not pictures. A user's own files are looked at."""
    try:
        spec = data_sets.registry.parse(data)
    except OptionError as error:
        raise OptionError(f"data.{error.path}".rstrip("."), error.message) from None
    if spec.pictures is not None:
        return not spec.pictures
    kind = None if task is None else tasks.registry.parse(task).labels
    return len(spec.labelled(kind).read(data_sets.roots(root)).input_shape) < 3


def federation_of(plain: Mapping[str, Any]) -> FederationSetting:
    """The federation of a spec whose defense is not settled yet."""
    return parse({**plain, "defense": "fedavg"}).federation


def fitted_defense(defense: Any, federation: FederationSetting) -> Any:
    """A defense as the spec writes it, told how many hostile clients there are where the user did not say.

    The paper fixes one hostile client of ten and a trim of 1, and does not say how it sets the trim b (or Krum's f)
    for m of them. Here b = f = m, the least that can discard them all, but never so large that the rule would refuse:
    2b stays below the number of updates that it sees, and other rules have bounds of their own.
    """
    if isinstance(defense, list | tuple):
        return [fitted_defense(stage, federation) for stage in defense]
    if isinstance(defense, aggregation.Rule):
        return defense.canonical()
    stated: dict[str, Any] = dict(defense) if isinstance(defense, Mapping) else {"name": defense}
    fields = type(aggregation.parse(stated)).model_fields
    option = next((o for o in ("trim", "malicious") if o in fields and o not in stated), None)
    if option is None:
        return stated
    for strength in range(max(federation.malicious, 1), 0, -1):
        candidate = {**stated, option: strength}
        try:
            aggregation.parse(candidate).check(federation.updates_per_step)
        except ValueError:
            continue
        return candidate
    return stated
