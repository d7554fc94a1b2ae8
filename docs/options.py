"""A hook of the site's builder: puts the options of every component in the place of `<!-- options -->`."""

from __future__ import annotations

import json
import re
from typing import Any

MARK = "<!-- options -->"
TITLES = {
    "attacks": "Attacks",
    "defenses": "Rules",
    "protections": "Protections",
    "scores": "Scores",
    "tasks": "Tasks",
    "data": "Data sets",
    "models": "Models",
    "partitions": "Partitions",
    "schedules": "Schedules",
    "local-rules": "Local rules",
    "sweeps": "Sweeps",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return markdown.replace(MARK, listed()) if MARK in markdown else markdown


def listed() -> str:
    """Every component of every kind, with what each of its options is and may be."""
    from scapegoat.cli.list import rows

    parts = []
    for kind, title in TITLES.items():
        components = rows(kind)
        if kind == "attacks":
            shared = [o for o in components[0]["options"] if all(o in row["options"] for row in components)]
            parts += [f"## {title}", "All of them take:", _table(shared)]
            components = [row | {"options": [o for o in row["options"] if o not in shared]} for row in components]
        else:
            parts.append(f"## {title}")
        for row in components:
            where = f" On the {row['acts']}." if "acts" in row else ""
            parts += [f"### {row['name']}", row["summary"] + where, _table(row["options"])]
    return "\n\n".join(part for part in parts if part)


def _table(options: list[dict[str, Any]]) -> str:
    if not options:
        return ""
    lines = ["| option | default | allowed | what it means |", "| --- | --- | --- | --- |"]
    for option in options:
        default = "required" if option["required"] else f"`{json.dumps(option['default'])}`"
        cells = (f"`{option['name']}`", default, option["allowed"], option["description"])
        lines.append("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |")
    return "\n".join(lines)
