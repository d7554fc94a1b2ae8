"""Components: things that a spec names, each with options of its own.

A component is one small file: a pydantic class that carries the options and does the work, and a decorator that
names it.

    @register("atm")
    class ATM(Rule):
        trim: Trim = 1

The spec, the listings and the error messages read the registry, so a new component appears in all of them at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from scapegoat.errors import InputError, OptionError, did_you_mean, shown
from scapegoat.extending.plugins import load_installed
from scapegoat.extending.resolve import is_path, resolve
from scapegoat.extending.sources import fingerprint


def added(default: Any) -> Any:
    """The default of an option that a later version added: written out, and so part of the hash, only where it differs.

    Runs of specs that do not use the option keep their names. It serves components and the plain parts of a spec
    (`federation`, `evaluation`) alike:

        reference: Annotated[int, Field(ge=0)] = added(0)
    """
    return Field(default, exclude_if=lambda value: bool(value == default))


class Component(BaseModel):
    """Options of one named thing. Frozen; unknown options are refused, and numbers that JSON cannot write."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: ClassVar[str] = ""

    _path: str = PrivateAttr(default="")

    def canonical(self) -> dict[str, Any]:
        """The component as the spec writes it: its name and every option, but `added` ones only where they are used.

        Of a user's own component also what its code is, so that an edited one is another run. One that was taken by its
        path is written so: who reads the spec elsewhere may not know the name that it registered.
        """
        code = {"code": fingerprint(type(self))} if is_foreign(type(self)) else {}
        return {"name": self._path or self.name, **self.model_dump(mode="json"), **code}


def is_foreign(cls: type[Component]) -> bool:
    """Whether a component is a user's own: it can change without a change of name, so a run notes what it is."""
    return not cls.__module__.startswith("scapegoat.")


C = TypeVar("C", bound=Component)
K = TypeVar("K", bound=Component)


class Registry(Generic[C]):
    """Names to component classes, filled by importing every module of a package."""

    everyone: ClassVar[list[Registry[Any]]] = []
    """All registries there are."""

    def __init__(
        self,
        kind: str,
        base: type[C],
        package: str,
        expand: Callable[[str], tuple[str, dict[str, Any]] | None] | None = None,
    ) -> None:
        """`expand` turns a free-form name such as `npz:records.npz` into a registered name and options."""
        self.kind = kind
        self.base = base
        self._package = package
        self._expand = expand
        self._classes: dict[str, type[C]] = {}
        self._loaded = False
        Registry.everyone.append(self)

    @property
    def one(self) -> str:
        """The kind with its article: "an attack"."""
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def register(self, name: str) -> Callable[[type[K]], type[K]]:
        """Class decorator: `name` means this class from now on.

        Parameters
        ----------
        name: what specs and commands call it.

        Returns
        -------
        The decorator, which returns the class itself. A name that another class has is an InputError.

        Examples
        --------
        >>> from scapegoat import attacks
        >>> Passive = type(attacks.get("passive"))
        >>> attacks.register("passive")(Passive) is Passive  # above a class: @attacks.register("passive")
        True
        """

        def add(cls: type[K]) -> type[K]:
            known = self._classes.get(name)
            if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise InputError(
                    f"{self.kind} {name!r} is registered twice, by {_where(known)} and by {_where(cls)}; rename one"
                )
            cls.name = name
            self._classes[name] = cls  # type: ignore[assignment]
            return cls

        return add

    def load(self) -> None:
        """Import every module of the package, so that each registers what it holds."""
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        load_installed()

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self.load()
        return sorted(self._classes)

    def classes(self) -> Iterator[tuple[str, type[C]]]:
        """Name and class of every component, sorted by name."""
        for name in self.names():
            yield name, self._classes[name]

    def cls(self, name: str) -> type[C]:
        """The class behind a name, or an InputError that says which names there are."""
        self.load()
        if name not in self._classes and is_path(name):
            return self._outside(name)
        if name not in self._classes:
            hint = did_you_mean(name, self._classes)
            raise OptionError(
                "name",
                f"{shown(name)} is not {self.one}{hint} (one of: {', '.join(self.names())}, or your own: "
                f"package.module:Class)",
            )
        return self._classes[name]

    def _outside(self, path: str) -> type[C]:
        """The class that `package.module:Class` names."""
        cls = resolve(self.kind, path)
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise OptionError("name", f"{path} is not {self.one}: it must be a class derived from {_where(self.base)}")
        if "name" not in vars(cls):  # one that is derived from a component of ours would go by its name
            cls.name = path
        return cls

    def get(self, name: str, /, **options: Any) -> C:
        """A component by name and options.

        Parameters
        ----------
        name: a registered name, or `package.module:Class` for one of your own.
        options: its options, which are checked; `scapegoat list` shows them.

        Returns
        -------
        The component. An unknown name or option, or a value that is not allowed, is an InputError of one line.

        Examples
        --------
        >>> from scapegoat import aggregation, data
        >>> aggregation.get("atm", trim=2)
        ATM(trim=2)
        >>> data.get("hospital", records=700).records
        700
        """
        self.load()
        expanded = self._expand(name) if self._expand is not None else None
        if expanded is not None and (expanded[0] in self._classes or not is_path(name)):
            name, options = expanded[0], {**expanded[1], **options}
        cls = self.cls(name)
        code = options.pop("code", None) if is_foreign(cls) and "code" not in cls.model_fields else None
        if code is not None and code != fingerprint(cls):
            raise OptionError("code", f"{name} has changed since the run was planned; plan it again without this key")
        try:
            made = cls(**options)
            if is_foreign(cls) and is_path(name):
                made._path = name
            return made
        except ValidationError as error:
            raise first_problem(error) from None

    def parse(self, value: Any) -> C:
        """A component from a name, a `{name: ..., option: ...}` mapping, or a component."""
        if isinstance(value, Component):
            return value  # type: ignore[return-value]
        if isinstance(value, str):
            return self.get(value)
        if not isinstance(value, dict):
            raise OptionError("", f"{shown(value)} is not {self.one}; write its name, or {{name: ..., option: value}}")
        options = dict(value)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise OptionError("name", f"is missing: which {self.kind}? (one of: {', '.join(self.names())})")
        bad = next((key for key in options if not isinstance(key, str)), None)
        if bad is not None:
            raise OptionError("", f"option {shown(bad)} must be text")
        return self.get(name, **options)


def _where(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def first_problem(error: ValidationError) -> InputError:
    """The first problem of a pydantic error as one line that names the key, the value and what is allowed."""
    details = error.errors(include_url=False)
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    path = ".".join(str(part) for part in first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, OptionError):
        return OptionError(".".join(p for p in (path, cause.path) if p), cause.message)
    if isinstance(cause, InputError):
        return OptionError(path, str(cause))
    if first["type"] == "extra_forbidden":
        allowed = _allowed_keys(error, first["loc"])
        return OptionError(path, f"is not a known key{allowed}")
    if first["type"] == "missing":
        return OptionError(path, "is missing")
    if isinstance(cause, ValueError):
        return OptionError(path, str(cause))
    same = [first]
    if len(first["loc"]) > 1 and _is_union(error, first["loc"][:-1]):
        # None of several kinds of value that the option may have: the last part of the path names the kind.
        path = ".".join(str(part) for part in first["loc"][:-1])
        same = [d for d in details if d["loc"][:-1] == first["loc"][:-1]]
    messages = [d["msg"][0].lower() + d["msg"][1:] for d in same]
    return OptionError(path, f"{shown(first['input'])} is not allowed: {', or '.join(messages)}")


def _class_at(error: ValidationError, loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    cls = next((c for c in _subclasses(BaseModel) if c.__name__ == error.title), None)
    for part in loc:
        field = cls.model_fields.get(str(part)) if cls is not None else None
        annotation = field.annotation if field is not None else None
        cls = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return cls


def _is_union(error: ValidationError, loc: tuple[int | str, ...]) -> bool:
    cls = _class_at(error, loc[:-1])
    field = cls.model_fields.get(str(loc[-1])) if cls is not None else None
    kinds = [] if field is None else [kind for kind in get_args(field.annotation) if kind is not type(None)]
    return field is not None and get_origin(field.annotation) in (Union, UnionType) and len(kinds) > 1


def _allowed_keys(error: ValidationError, loc: tuple[int | str, ...]) -> str:
    cls = _class_at(error, loc[:-1])
    if cls is None:
        return ""
    keys = list(cls.model_fields)
    return f"{did_you_mean(str(loc[-1]), keys)} (known: {', '.join(keys) or 'no options'})"


def _subclasses(cls: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
