"""Options that several commands share."""

from __future__ import annotations

import typer

PLUGIN = typer.Option([], "--plugin", metavar="MODULE", help="A module of yours that registers components (repeat).")
