"""The command line: one file per command. Nothing here imports torch until a command runs something."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys

import click
import typer
import typer.core

from scapegoat.terminal import printable

LONGEST_LINE = 2_000

# Else typer writes `\[default: 1]`, escaped for rich, although rich does not print our help.
typer.core.HAS_RICH = False

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
    """Run a command. Exit 0: done; 1: a run failed; 2: the input was wrong, in one line; 3: a policy was not met."""
    from scapegoat.errors import InputError, PolicyError, RunError

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
        # Click and Typer both say what may have been meant.
        message = re.sub(r"( Did you mean [^?]+\?)\1+", r"\1", error.format_message())
        # Messages name settings as a spec does: data.label=NAME.
        if setting := re.search(r"unexpected extra arguments? \(([a-z_.]+=\S*?)[ )]", message):
            message += f", did you mean --set {setting[1]}?"
        _stop(f"{message.rstrip('.')} (see `{path} --help`)", 2)
    except click.ClickException as error:
        _stop(error.format_message(), 2)
    except InputError as error:
        _stop(str(error), 2)
    except PolicyError as error:
        for line in error.lines:
            print("scapegoat: policy: " + one_line(line), file=sys.stderr)
        raise SystemExit(3) from None
    except RunError as error:
        _stop(str(error), 1)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except KeyboardInterrupt as stop:
        _stop(str(stop) or "stopped", 130)
    except OSError as error:
        _stop(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except MemoryError:
        _stop("not enough memory; make the federation, the model or the data smaller", 1)
    except Exception as error:
        from scapegoat.extending.explained import explained, in_user_code

        # A mistake in a component of the user's own; one of ours keeps its traceback.
        if not in_user_code(error):
            raise
        _stop(f"the run failed in code of yours: {explained(error)}", 1)


def one_line(message: str) -> str:
    """The message on one line that no terminal obeys: control characters written out, the middle of a long one cut."""
    line = printable(" ".join(message.split()))
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def _stop(message: str, code: int) -> None:
    print("scapegoat: " + one_line(message), file=sys.stderr)
    raise SystemExit(code)
