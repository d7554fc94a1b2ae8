"""The audit: all attacks against the chosen defenses, a verdict, a report."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from scapegoat import models, report
from scapegoat.errors import InputError, RunError, StorageError
from scapegoat.experiments import RunStore, Spec, parse
from scapegoat.experiments.executors import Event, Failure, cores, execute, named
from scapegoat.experiments.fitting import fit_defense, fitting_model
from scapegoat.experiments.run import Result, prepare

ATTACKS = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia")
DEFENSES = ("fedavg", "median", "trimmed_mean", "atm", "clipped_atm", "memory_atm", "reputation_atm")
ROUNDS = 150
SHARED_BY_ATTACKS = ("targets", "mask", "knowledge", "start_round")
"""What holds for every attack of an audit."""

Model = str | Mapping[str, Any] | nn.Module | Callable[..., nn.Module]
Data = str | Mapping[str, Any] | tuple[Any, Any]


@dataclass(frozen=True)
class Audit:
    """What an audit found. In a notebook it shows itself."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...] = ()
    command: str = ""
    title: str = ""
    _page: list[report.Page] = field(default_factory=list, repr=False)

    @property
    def page(self) -> report.Page:
        """The report as data."""
        if not self._page:
            found = [*self.results, *self.failures]
            self._page.append(report.build(found, title=self.title, command=self.command))
        return self._page[0]

    @property
    def verdict(self) -> report.Verdict:
        """The answer in plain words, with the recommended rule."""
        return self.page.studies[0].verdict

    def table(self) -> str:
        """Leakage and test accuracy, attack by defense, as Markdown."""
        return report.to_markdown(self.page)

    def to_html(self) -> str:
        """The report as one HTML file."""
        return report.to_html(self.page)

    def save(self, path: str | Path) -> Path:
        """Write the report to a file."""
        return report.write_html(self.page, path)

    def _repr_html_(self) -> str:
        return report.to_iframe(self.page)


def plan(
    *,
    model: Model | None = None,
    data: Data = "hospital",
    attacks: Sequence[Any] = ATTACKS,
    defenses: Sequence[Any] = DEFENSES,
    clients: int | None = None,
    malicious: int | None = None,
    rounds: int | None = None,
    seeds: int = 1,
    overrides: Iterable[str] = (),
    out: Path | None = None,
) -> list[Spec]:
    """The specs of an audit, attack by attack and defense by defense. Refuses wrong input before anything runs."""
    if seeds < 1:
        raise InputError(f"seeds: {seeds} is not allowed, at least 1 is wanted")
    for name, chosen in (("attacks", attacks), ("defenses", defenses)):
        if isinstance(chosen, str) or not chosen:
            raise InputError(f"{name}: a list with at least one name is wanted, got {chosen!r}")
    stated = _stated(data, out)
    base: dict[str, Any] = {"data": stated, "federation": {"rounds": ROUNDS if rounds is None else rounds}}
    if clients is not None:
        base["federation"]["clients"] = clients
    if malicious is not None:
        base["federation"]["malicious"] = malicious
    base["model"] = fitting_model(stated) if model is None else _model(model)
    # The first spec stands for what all share: its mistakes are reported without a defense in the way.
    shared = parse(base, overrides).canonical()
    _refuse_options_of_one(shared)
    if shared["federation"]["malicious"] == 0:
        raise InputError(
            "federation.malicious: 0 is not allowed in an audit, nobody would attack; at least 1 is wanted"
        )
    specs = []
    for seed in range(seeds):
        for defense in defenses:
            fitted = fit_defense(defense, parse(shared).federation)
            for attack in attacks:
                options = {"name": attack} if isinstance(attack, str) else dict(attack)
                common = {key: shared["attack"][key] for key in SHARED_BY_ATTACKS}
                plain = {**shared, "seed": shared["seed"] + seed, "defense": fitted, "attack": {**common, **options}}
                specs.append(parse(plain))
    return specs


def audit(
    *,
    model: Model | None = None,
    data: Data = "hospital",
    attacks: Sequence[Any] = ATTACKS,
    defenses: Sequence[Any] = DEFENSES,
    clients: int | None = None,
    malicious: int | None = None,
    rounds: int | None = None,
    seeds: int = 1,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    root: str | Path | None = None,
    jobs: int | None = None,
    title: str = "",
    command: str = "",
    on_event: Callable[[Event], None] | None = None,
) -> Audit:
    """Attack a simulated federation of your model and data under each defense, and say which one to use.

    `model` is a name, a `package.module:factory`, a module or a factory; `data` a name, `npz:PATH` and the like, or a
    pair of arrays (records, labels). With `out`, finished runs are kept there and never computed twice. `overrides` are
    `key=value` settings of the spec.
    """
    with tempfile.TemporaryDirectory(prefix="scapegoat-") as scratch:
        folder = Path(scratch) if out is None else Path(out)
        specs = plan(
            model=model,
            data=data,
            attacks=attacks,
            defenses=defenses,
            clients=clients,
            malicious=malicious,
            rounds=rounds,
            seeds=seeds,
            overrides=overrides,
            out=folder,
        )
        return execute_plan(specs, folder, root=root, jobs=jobs, title=title, command=command, on_event=on_event)


def execute_plan(
    specs: Sequence[Spec],
    out: str | Path,
    *,
    root: str | Path | None = None,
    jobs: int | None = None,
    title: str = "",
    command: str = "",
    on_event: Callable[[Event], None] | None = None,
) -> Audit:
    """Run the specs of an audit in `out` and collect what they found."""
    # Data, splits and model are tried once here, so that what is wrong with them is said before workers start.
    prepare(specs[0], root)
    store = RunStore(out)
    in_process = specs[0].model.name == "given"
    workers = 1 if in_process else min(cores() if jobs is None else jobs, len(specs))
    outcome = execute(specs, store, root=root, jobs=workers, on_event=on_event)
    if outcome.stopped:
        raise StorageError(f"audit: {outcome.stopped}; the same audit goes on once that is mended")
    if not outcome.summaries:
        reasons = next((f.reason for f in outcome.failures.values()), "no run finished")
        raise RunError(f"audit: no run finished ({reasons})")
    results = tuple(
        Result(spec, store.summary(name), store.rounds(name), store.targets(name))
        for name, spec in named(specs, root).items()
        if name in outcome.summaries
    )
    return Audit(results, tuple(outcome.failures.values()), command=command, title=title)


def _refuse_options_of_one(shared: Mapping[str, Any]) -> None:
    """An audit has several attacks and defenses: what is set of one of them would be lost among what all share."""
    usual = parse({}).canonical()
    attack = {**shared["attack"], **{key: usual["attack"][key] for key in SHARED_BY_ATTACKS}}
    for kind, given, example in (
        ("attack", attack, "{name: fedpoisonmia, gamma: 0.2}"),
        ("defense", shared["defense"], "{name: atm, trim: 2}"),
    ):
        if given != usual[kind]:
            raise InputError(
                f"{kind}: an audit has several; what is set of one is given with it, as in --{kind} '{example}'"
            )


def _model(model: Model) -> Any:
    if isinstance(model, str | Mapping):
        return model
    if not isinstance(model, nn.Module) and not callable(model):
        raise InputError(f"model: a name, a module or a factory is wanted, got {type(model).__name__}")
    return models.given(model)


def _stated(data: Any, out: Path | None) -> Any:
    """The data as a spec states it."""
    if isinstance(data, Mapping) and "name" not in data:
        raise InputError(
            "data: a mapping is {'name': ..., option: value}; arrays are handed over as a pair, data=(x, y), "
            "their options as overrides=['data.option=value']"
        )
    return data if isinstance(data, str | Mapping) else {"name": f"given:{_save(data, out)}"}


def _save(data: Any, out: Path | None) -> Path:
    """A pair of arrays as a file of its own content's name, where workers can read it."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data: a name, npz:PATH, or a pair (records, labels) is wanted")
    x, y = (d.detach().cpu().numpy() if isinstance(d, Tensor) else np.asarray(d) for d in data)
    if x.dtype == object or y.dtype == object:
        raise InputError("data: records and labels must be numbers of one shape each")
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        count = len(y) if y.ndim else 1
        raise InputError(f"data: records of shape {x.shape} with {count} labels; one label a record is wanted")
    content = io.BytesIO()
    np.savez(content, x=x, y=y)
    folder = (out or Path(tempfile.gettempdir())) / "data"
    path = folder / f"{hashlib.sha256(x.tobytes() + y.tobytes() + repr(x.shape).encode()).hexdigest()[:16]}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(content.getvalue())
        temporary.replace(path)
    return path
