"""YAML as people write it: specs, sweeps and `--set` values. Within limits, so that no small text fills the memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from scapegoat.errors import InputError, shown

# A spec has some fifty values, three levels deep, in a kilobyte or two.
MOST_BYTES = 256 * 1024
MOST_VALUES = 10_000
MOST_DEPTH = 50
MOST_DIGITS = 100


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; an empty one is an empty mapping."""
    try:
        text = _text(path)
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; a YAML spec is expected") from None
    try:
        content = load_yaml(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return {} if content is None else content


def _text(path: Path) -> str:
    """The text of a regular file: one without an end, such as a pipe, is refused unread."""
    try:
        # Opening a pipe that nobody writes to would wait.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a null character
        raise InputError(f"{path}: cannot be read ({error})") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{path}: cannot be read (not a regular file)")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: is too long for a YAML spec (allowed: {MOST_BYTES // 1024} kB)")
    return content.decode("utf-8")


def load_yaml(text: str) -> Any:
    """The value of a YAML text; an InputError says what is wrong with it, and in which line."""
    try:
        # A SafeLoader: it makes plain values only, whatever tags the text has.
        return yaml.load(text, _Loader)
    except _TooMuchError as error:
        raise InputError(str(error)) from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise InputError(f"is not YAML ({where}{error.problem})") from None
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML ({getattr(error, 'reason', error)})") from None


def read_override(override: str) -> tuple[list[str], Any]:
    """The parts of the key and the value of an override `a.b=c`; the value is read as YAML."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {shown(override)}: write key=value, such as federation.rounds=100")
    if len(parts) > MOST_DEPTH:
        raise InputError(f"--set {shown(override)}: the key is nested too deeply (allowed: {MOST_DEPTH} levels)")
    try:
        return parts, load_yaml(text) if text.strip() else ""
    except InputError as error:
        raise InputError(f"--set {shown(override)}: the value {error}") from None


class _TooMuchError(Exception):
    """The text is YAML, but comes to more than anybody means."""


class _Loader(yaml.SafeLoader):
    """As yaml.safe_load reads, but a key given twice is refused, and a date stays text: no option is one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0  # an alias counts as all that it stands for
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        alias = self.check_event(yaml.AliasEvent)
        before = self._values
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _TooMuchError(f"is nested too deeply (allowed: {MOST_DEPTH} levels)")
        self._values += not alias
        self._refuse_many()
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias:
            # Unknown: an alias inside what it stands for, which the constructor refuses.
            self._values += self._sizes.get(id(node), 1)
            self._refuse_many()
        else:
            self._sizes[id(node)] = self._values - before
        return node

    def _refuse_many(self) -> None:
        if self._values > MOST_VALUES:
            raise _TooMuchError(f"comes to more than {MOST_VALUES:,} values, aliases written out")

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {shown(key.value)} is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node

    def construct_date(self, node: yaml.ScalarNode) -> Any:
        return self.construct_scalar(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind in ("int", "float") and len(node.value) > MOST_DIGITS:
            problem = f"{shown(node.value)} cannot be read as {kind}: it has more than {MOST_DIGITS} digits"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        try:
            # Deep, whatever was asked for: so a list that holds itself is refused.
            return super().construct_object(node, deep=True)
        except (ValueError, LookupError, ArithmeticError):
            # `0x_` has the looks of a number, `!!bool 2` says that it is a truth value.
            problem = f"{shown(node.value)} cannot be read as {kind}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_date)
