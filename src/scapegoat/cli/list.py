"""`scapegoat list`: what there is, with its options."""

from __future__ import annotations

import importlib
import json
from typing import Any

import typer

from scapegoat.cli._options import PLUGIN

KINDS = {
    "attacks": "scapegoat.crafting.contract",
    "defenses": "scapegoat.combining.rule",
    "protections": "scapegoat.protecting.contract",
    "scores": "scapegoat.membership.scoring",
    "tasks": "scapegoat.tasking.contract",
    "data": "scapegoat.data.base",
    "models": "scapegoat.modelling.flat_model",
    "partitions": "scapegoat.data.partitions",
    "schedules": "scapegoat.federation.schedule",
    "local-rules": "scapegoat.federation.local",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", short_help="What there is: attacks, defenses, data, models, ...")(list_)


def list_(
    kind: str = typer.Argument(...),
    name: str | None = typer.Argument(None),
    plugin: list[str] = PLUGIN,
    as_json: bool = typer.Option(False, "--json", help="As JSON, with every option."),
) -> None:
    """List what there is, or explain one component in full.

    KIND is attacks, defenses, protections, scores, tasks, data, models, partitions, schedules, local-rules or sweeps;
    with a NAME, each of its options is explained.
    """
    from scapegoat.errors import InputError, did_you_mean
    from scapegoat.extending.plugins import load_plugins

    load_plugins(plugin)
    found = rows(kind, name)
    if name is not None:
        hint = elsewhere(name) or did_you_mean(name, [row["name"] for row in found])
        found = [row for row in found if row["name"] == name]
        if not found:
            raise InputError(f"list {kind}: there is no {name!r}{hint} (`scapegoat list {kind}` shows what there is)")
    if as_json:
        print(json.dumps(found, indent=2))
    elif name is not None:
        _print_one(found[0])
    else:
        _print_all(found)


def rows(kind: str, name: str | None = None) -> list[dict[str, Any]]:
    """Every component of a kind with its options, or the one that `package.module:Class` names."""
    from scapegoat.errors import InputError, did_you_mean

    if kind == "sweeps":
        return _sweeps()
    if kind not in KINDS:
        hint = did_you_mean(kind, [*KINDS, "sweeps"]) or elsewhere(kind)
        raise InputError(f"list {kind!r}: there is no such kind{hint} (one of: {', '.join(KINDS)}, sweeps)")
    return _components(KINDS[kind], name)


def elsewhere(name: str) -> str:
    """For a message: of which kind a name is that was looked for in the wrong place; nothing where it is of none."""
    from scapegoat.sweeps import registry as sweeps

    found = {}
    for kind, module in KINDS.items():
        registry = importlib.import_module(module).registry
        if name in registry.names():
            found[kind] = registry.one
    if name in sweeps:
        found["sweeps"] = "a sweep"
    return "".join(f", but {name} is {one}: `scapegoat list {kind} {name}`" for kind, one in found.items())


def _print_all(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    told = [[f"{o['name']}={json.dumps(o['default'])}" for o in row["options"]] for row in rows]
    # What all of them take would hide what each of them takes.
    shared = [option for option in told[0] if all(option in options for options in told)] if len(rows) > 1 else []
    table = _table("name", "what it is", "options")
    for row, options in zip(rows, told, strict=True):
        where = f"On the {row['acts']}. " if "acts" in row else ""
        table.add_row(row["name"], where + row["summary"], ", ".join(o for o in options if o not in shared))
    console = Console()
    console.print(table)
    if shared:
        console.print(f"\nAll of them take: {', '.join(shared)}", highlight=False, markup=False)


def _print_one(row: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    console.print(row["name"], style="bold", highlight=False)
    console.print(flowing(row["about"]), highlight=False, markup=False)
    if not row["options"]:
        return
    table = _table("option", "default", "allowed", "what it means")
    for option in row["options"]:
        default = "(required)" if option["required"] else json.dumps(option["default"])
        table.add_row(option["name"], default, option["allowed"], option["description"])
    console.print()
    console.print(table)


def flowing(text: str) -> str:
    """The text with each paragraph on a line of its own, to be wrapped at any width; examples keep their lines."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if ">>>" in p else " ".join(p.split()) for p in paragraphs)


def _table(*headings: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _components(module: str, name: str | None) -> list[dict[str, Any]]:
    registry = importlib.import_module(module).registry
    if name is not None and ":" in name:
        return [_describe(name, registry.cls(name))]
    return [_describe(known, cls) for known, cls in registry.classes()]


def _describe(name: str, cls: Any) -> dict[str, Any]:
    import inspect

    from pydantic_core import PydanticUndefined, to_jsonable_python

    schema = cls.model_json_schema().get("properties", {})
    options = []
    for key, field in cls.model_fields.items():
        default = field.get_default(call_default_factory=True)
        required = default is PydanticUndefined
        options.append(
            {
                "name": key,
                "default": None if required else to_jsonable_python(default),
                "required": required,
                "allowed": allowed(schema.get(key, {})),
                "description": field.description or "",
            }
        )
    about = inspect.cleandoc(cls.__doc__ or "")
    # Protections say who has to apply them.
    acts = {"acts": cls.acts} if hasattr(cls, "acts") else {}
    return {"name": name, **acts, "summary": about.partition("\n")[0], "about": about, "options": options}


_BOUNDS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
_KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "array": "list",
    "object": "mapping",
}


def allowed(schema: dict[str, Any]) -> str:
    """What a JSON schema allows, as a person says it; one that cannot tell may have it written out under `allowed`."""
    if "allowed" in schema:
        return str(schema["allowed"])
    if "anyOf" in schema:
        return ", or ".join(dict.fromkeys(allowed(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(value).strip('"') for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"]).strip('"')
    kind = _KINDS.get(schema.get("type", ""), "anything")
    if "prefixItems" in schema:
        each = list(dict.fromkeys(allowed(item) for item in schema["prefixItems"]))
        return f"list of {len(schema['prefixItems'])}, each {', '.join(each)}"
    if "items" in schema:
        return f"list, each {allowed(schema['items'])}"
    bounds = " and ".join(f"{sign} {_number(schema[key])}" for key, sign in _BOUNDS if key in schema)
    return f"{kind} {bounds}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == int(value) else f"{value:g}"


def _sweeps() -> list[dict[str, Any]]:
    from scapegoat.sweeps import registry

    return [
        {"name": name, "summary": sweep.title, "about": f"{sweep.title}\n\n{sweep.about}", "options": []}
        for name, sweep in registry.items()
    ]
