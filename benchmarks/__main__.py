"""`python -m benchmarks` (or `make bench`): how fast things are, each beside what it is compared with, in one run."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from typing import Any

from scapegoat.errors import InputError

SUBJECTS = ("round", "clipping", "attack", "aggregation", "device", "fit", "shards", "sketches", "sweep", "flower")
THREADED = ("aggregation", "attack", "clipping", "round", "sketches")
"""What can be measured with any number of threads."""


def main(arguments: list[str] | None = None) -> int:
    """Measure the subjects named, or all of them; the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("only", nargs="*", metavar="SUBJECT", help=f"{', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, by subject")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    parser.add_argument("--threads", type=int, help="PyTorch's threads (default: 2 for aggregation, 1 for the others)")
    parser.add_argument("--device", help="what `device` measures: cuda, cuda:1, mps (default: what there is)")
    parser.add_argument("--size", type=_size, help="the only size for `aggregation`, such as 50x3200000")
    parser.add_argument("--rules", nargs="+", metavar="RULE", help="the only rules for `aggregation`, beside atm")
    options = parser.parse_args(arguments)
    try:
        figures = measure(
            options.only or SUBJECTS,
            options.quick,
            options.threads,
            show=not options.json,
            device=options.device,
            size=options.size,
            rules=options.rules,
        )
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(figures, indent=2))
    return 0


def measure(
    subjects: list[str] | tuple[str, ...],
    quick: bool = False,
    threads: int | None = None,
    show: bool = False,
    device: str | None = None,
    size: tuple[int, int] | None = None,
    rules: list[str] | None = None,
) -> dict[str, Any]:
    """The figures of each subject, each printed as soon as it is there if `show`."""
    for subject in subjects:
        if subject not in SUBJECTS:
            raise InputError(f"{subject!r} is not a benchmark (known: {', '.join(SUBJECTS)})")
        if threads is not None and subject not in THREADED:
            raise InputError(f"{subject}: --threads is only for {', '.join(THREADED)}")
    if device is not None and "device" not in subjects:
        raise InputError("--device is only for the subject device")
    if (size is not None or rules is not None) and "aggregation" not in subjects:
        raise InputError("--size and --rules are only for the subject aggregation")
    if threads is not None and threads < 1:
        raise InputError(f"--threads: {threads} is not allowed (1 or more)")
    _show_progress()
    figures = {}
    for subject in subjects:
        options: dict[str, Any] = {} if threads is None else {"threads": threads}
        if device is not None and subject == "device":
            options["device"] = device
        if subject == "aggregation":
            options |= {} if size is None else {"sizes": (size,)}
            options |= {} if rules is None else {"rules": tuple(rules)}
        figures[subject] = importlib.import_module(f"benchmarks.{subject}").run(quick=quick, **options)
        if show:
            _print({subject: figures[subject]})
    return figures


def _size(text: str) -> tuple[int, int]:
    updates, _, parameters = text.partition("x")
    if not (updates.isdecimal() and parameters.isdecimal() and int(updates) and int(parameters)):
        raise argparse.ArgumentTypeError(f"{text!r} is no size (such as 50x3200000: updates x parameters)")
    return int(updates), int(parameters)


def _show_progress() -> None:
    """What is being measured, on stderr: some of it takes minutes."""
    log = logging.getLogger("benchmarks")
    log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(logging.StreamHandler())


def _print(value: Any, indent: int = 0) -> None:
    pad = "  " * indent
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            print(f"{pad}{key}:")
            _print(item, indent + 1)
        else:
            print(f"{pad}{key}: {item:.4g}" if isinstance(item, float) else f"{pad}{key}: {item}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
