"""`scapegoat list`: what there is, with its options."""

from __future__ import annotations

import importlib
import json
from typing import Any

import typer

KINDS = {
    "attacks": "scapegoat.attacks.base",
    "defenses": "scapegoat.aggregation.base",
    "data": "scapegoat.data.base",
    "models": "scapegoat.models.base",
    "partitions": "scapegoat.data.partitions",
    "schedules": "scapegoat.federation.schedule",
    "local-rules": "scapegoat.federation.local",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_)


def list_(
    kind: str = typer.Argument(..., help=f"One of: {', '.join(KINDS)}, sweeps."),
    as_json: bool = typer.Option(False, "--json", help="As JSON, with every option."),
) -> None:
    """List attacks, defenses, data sets, models or sweeps with their options."""
    from scapegoat.errors import InputError

    if kind == "sweeps":
        rows = _sweeps()
    elif kind in KINDS:
        rows = _components(KINDS[kind])
    else:
        raise InputError(f"list {kind!r}: one of {', '.join(KINDS)}, sweeps is wanted")
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "what it is", "options"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        options = ", ".join(f"{o['name']}={json.dumps(o['default'])}" for o in row["options"])
        table.add_row(row["name"], row["summary"], options)
    Console().print(table)


def _components(module: str) -> list[dict[str, Any]]:
    registry = importlib.import_module(module).registry
    return [_describe(name, cls) for name, cls in registry.classes()]


def _describe(name: str, cls: Any) -> dict[str, Any]:
    from pydantic_core import PydanticUndefined, to_jsonable_python

    options = []
    for key, field in cls.model_fields.items():
        default = field.get_default(call_default_factory=True)
        required = default is PydanticUndefined
        options.append(
            {
                "name": key,
                "default": None if required else to_jsonable_python(default),
                "required": required,
                "type": _type_name(field),
            }
        )
    return {"name": name, "summary": (cls.__doc__ or "").strip().splitlines()[0], "options": options}


def _type_name(field: Any) -> str:
    annotation = field.annotation
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.replace("typing.", "")


def _sweeps() -> list[dict[str, Any]]:
    from scapegoat.experiments.sweeps import registry

    return [{"name": name, "summary": sweep.title, "options": []} for name, sweep in registry.items()]
