"""The command line: one file a command. Nothing here imports torch until a command runs something."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import click
import typer

app = typer.Typer(
    name="scapegoat",
    help="Can a hostile client of your federation find out who is in the training data, and which rule stops it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from scapegoat import __version__

        typer.echo(f"scapegoat {__version__}")
        raise typer.Exit


for _module in sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")):
    importlib.import_module(f"scapegoat.cli.{_module}").register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Exit 0: done; 1: a run failed; 2: the input was wrong, in one line."""
    from scapegoat.errors import InputError, RunError

    command = typer.main.get_command(app)
    try:
        # Not `command.main`, which would swallow Ctrl-C and a reader that goes away.
        with command.make_context("scapegoat", sys.argv[1:] if arguments is None else [*arguments]) as context:
            command.invoke(context)
        raise SystemExit(0)
    except click.exceptions.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "scapegoat"
        _stop(f"{error.format_message().rstrip('.')} (see `{path} --help`)", 2)
    except click.ClickException as error:
        _stop(error.format_message(), 2)
    except InputError as error:
        _stop(str(error), 2)
    except RunError as error:
        _stop(str(error), 1)
    except KeyboardInterrupt:
        _stop("stopped; the same command goes on where this one was", 130)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def _stop(message: str, code: int) -> None:
    print("scapegoat: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(code)
