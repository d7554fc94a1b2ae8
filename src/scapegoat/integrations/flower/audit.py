"""The audit of a live federation: real processes, one of them hostile, and the simulation's report of what leaked."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from scapegoat.attacks import Attack, Samples
from scapegoat.errors import InputError
from scapegoat.experiments.run import prepare
from scapegoat.experiments.spec import describe
from scapegoat.experiments.store import RunStore
from scapegoat.integrations.flower.hostile import draw_wrong_labels, live_attack, read_lines
from scapegoat.integrations.flower.live import live_spec, reply_kind
from scapegoat.integrations.flower.material import AuditMaterial, load_material, write_hostile
from scapegoat.integrations.flower.outcome import LiveRun, Truth, assemble, spec_hash
from scapegoat.integrations.flower.processes import LiveFederation
from scapegoat.integrations.flower.rules import rule_name
from scapegoat.integrations.flower.wrapper import (
    HOSTILE_KEY,
    code_hash,
    read_app,
    shipped_files,
    wrap_app,
    write_app,
)

LIVE = "scapegoat.integrations.flower.live"

# Told when the server has finished a round: how many there have been.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Where:
    """Where an audit takes place: processes of its own on loopback, or a SuperLink that the user names and owns."""

    superlink: str | None = None
    root_certificates: Path | None = None
    owned: bool = False
    plaintext: bool = False

    def __post_init__(self) -> None:
        if self.superlink is None:
            return
        host, _, port = self.superlink.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError(f"--superlink {self.superlink!r}: write host:port")
        if self.root_certificates is not None and not self.root_certificates.is_file():
            raise InputError(f"--root-certificates {self.root_certificates}: is not a file")
        if not self.owned and not self.local:
            raise InputError(
                f"--superlink {self.superlink}: is not on this machine; an audit sends poisoned updates, so it joins "
                "only a federation that is yours: say so with --i-own-this-federation"
            )

    @property
    def local(self) -> bool:
        """The SuperLink is on this machine."""
        return self.superlink is None or is_loopback(self.superlink.rpartition(":")[0].strip("[]"))

    @property
    def insecure(self) -> bool:
        """Without TLS: on this machine, or where the user says so."""
        return self.root_certificates is None and (self.local or self.plaintext)


def is_loopback(host: str) -> bool:
    """Every address that the name stands for is a loopback address."""
    try:
        found = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for address in found)


def audit_spec(
    value: Any,
    out: Path,
    *,
    root: Path | None = None,
    timeout: float = 3600.0,
    round_timeout: float = 120.0,
    progress: Progress | None = None,
) -> LiveRun:
    """Run a spec as a live federation on loopback, its malicious clients as hostile nodes."""
    spec = live_spec(value)
    setting = spec.federation
    simulation = prepare(spec, root)
    written = {**spec.canonical(), "live": {"flower": metadata.version("flwr")}}
    directory = _fresh(out, written)
    rounds = directory / "rounds.jsonl"
    nodes = [{"partition-id": client, "num-partitions": setting.clients} for client in range(setting.clients)]
    started = time.perf_counter()
    with _stoppable(), LiveFederation(directory, nodes) as federation:
        clients = dict(zip(federation.node_ids, range(setting.clients), strict=True))
        config = {
            "spec": json.dumps(spec.canonical()),
            "data-root": str(Path(root).resolve()) if root is not None else "",
            "clients": json.dumps(clients),
            "observations": str(directory),
            "round-timeout": round_timeout,
        }
        app = write_app(directory / "app", f"{LIVE}:server_app", f"{LIVE}:client_app", rounds, reply_kind(spec), config)
        federation.run_app(app, timeout, _watch(rounds, progress))
    dataset, splits, order = simulation.dataset, simulation.splits, simulation.target_order
    train = torch.cat(splits.shards)
    truth = Truth(
        targets=simulation.targets,
        members=simulation.member,
        record=splits.targets[order].numpy(),
        wrong_labels=simulation.attacker.wrong_labels.numpy(),
        owner=[int(splits.member_clients[i]) if i < len(splits.members) else None for i in order.tolist()],
        model=lambda: simulation.model.module,
        test=simulation.test,
        train=Samples(dataset.inputs(train), dataset.y[train]),
    )
    names = {
        "attack": spec.attack.name,
        "defense": describe(spec.defense),
        "data": spec.data.name,
        "model": spec.model.name,
        "seed": spec.seed,
    }
    hostile = set(range(setting.benign, setting.clients))
    seconds = time.perf_counter() - started
    return _kept(
        out, assemble(directory, written, truth, clients=clients, hostile=hostile, names=names, seconds=seconds)
    )


def audit_app(
    app: Path,
    material_path: str,
    attack: Any,
    out: Path,
    *,
    nodes: int = 10,
    hostile: int | None = None,
    run_config: Mapping[str, Any] | None = None,
    where: Where | None = None,
    stand_ins: int = 8,
    batch_size: int = 64,
    seed: int = 0,
    timeout: float = 3600.0,
    progress: Progress | None = None,
) -> LiveRun:
    """Run a user's Flower app with one hostile node and tell what it finds out.

    On loopback all `nodes` are started here, and the last one is hostile (or partition `hostile`). In a federation that
    the user names, only the hostile node is started; it joins the nodes that are there.
    """
    where = where if where is not None else Where()
    project = read_app(app)
    chosen = live_attack(attack)
    hostile = nodes - 1 if hostile is None else hostile
    if not 0 <= hostile < nodes:
        raise InputError(f"--hostile {hostile}: a partition between 0 and {nodes - 1} is wanted")
    with _importable(app):
        material = load_material(material_path, nodes)
        files = shipped_files(app, out / "live")
        written = app_spec(
            project,
            material,
            chosen,
            nodes=nodes,
            hostile=hostile,
            run_config=run_config or {},
            code=code_hash(files),
            stand_ins=stand_ins,
            batch_size=batch_size,
            seed=seed,
            where=where,
        )
        directory = _fresh(out, written)
        configuration = write_hostile(
            directory / "hostile", material, chosen, seed=seed, stand_ins=stand_ins, batch_size=batch_size
        )
        rounds = directory / "rounds.jsonl"
        wrapped = wrap_app(app, files, directory / "app", rounds, material.replies, dict(run_config or {}))
        configs: list[dict[str, str | int | float]] = [
            {"partition-id": number, "num-partitions": nodes} for number in range(nodes)
        ]
        configs[hostile][HOSTILE_KEY] = str(configuration)
        if where.superlink is not None:
            configs = [configs[hostile]]
        started = time.perf_counter()
        live = LiveFederation(directory, configs, where.superlink, where.root_certificates, where.insecure)
        with _stoppable(), live:
            clients = {node: int(c["partition-id"]) for node, c in zip(live.node_ids, configs, strict=True)}
            live.run_app(wrapped, timeout, _watch(rounds, progress))
        truth = Truth(
            targets=material.targets,
            members=material.members.numpy(),
            record=torch.arange(len(material.targets)).numpy(),
            wrong_labels=draw_wrong_labels(material.targets, material.mask, seed).numpy(),
            owner=[None] * len(material.targets),
            model=material.model,
            test=material.test,
        )
        names = {
            "attack": chosen.name,
            "defense": written["defense"]["name"],
            "data": written["data"]["name"],
            "model": written["model"]["name"],
            "seed": seed,
        }
        seconds = time.perf_counter() - started
        run = assemble(directory, written, truth, clients=clients, hostile={hostile}, names=names, seconds=seconds)
    return _kept(out, run)


def app_spec(
    project: Mapping[str, Any],
    material: AuditMaterial,
    attack: Attack,
    *,
    nodes: int,
    hostile: int,
    run_config: Mapping[str, Any],
    code: str,
    stand_ins: int,
    batch_size: int,
    seed: int,
    where: Where,
) -> dict[str, Any]:
    """What names this run in the store: the app, its configuration and code, its records, and who attacks it."""
    settings = {**project["tool"]["flwr"]["app"].get("config", {}), **run_config}
    strategy = str(settings.get("strategy", project["project"]["name"]))
    return {
        "seed": seed,
        "data": {"name": material.name, "content": material.content_hash()},
        "model": {"name": getattr(material.model, "__qualname__", "model")},
        "federation": {"clients": nodes, "malicious": 1, "hostile": hostile, "run_config": settings},
        "attack": attack.canonical() | {"stand_ins": stand_ins, "batch_size": batch_size},
        # The rule's name makes it a column of the simulator's report; strategies of one rule are told apart there.
        "defense": {"name": rule_name(strategy), "strategy": strategy},
        "live": {
            "flower": metadata.version("flwr"),
            "app": f"{project['project']['name']} {project['project'].get('version', '')}".strip(),
            "code": code,
            "superlink": "named by the user" if where.superlink is not None else "loopback",
        },
    }


def _fresh(out: Path, spec: Mapping[str, Any]) -> Path:
    """An empty folder for what the processes write, beside the runs."""
    directory = (out / "live" / spec_hash(spec)[:16]).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror})") from None
    return directory


def _kept(out: Path, run: LiveRun) -> LiveRun:
    store = RunStore(out)
    store.remove(run.summary["spec_hash"])  # live runs are not repeatable to the bit: the newest one counts
    store.write(run.summary["spec_hash"], run.spec, run.rounds, run.targets, run.summary)
    return run


def _watch(rounds: Path, progress: Progress | None) -> Callable[[], None] | None:
    if progress is None:
        return None
    return lambda: progress(len(read_lines(rounds)))


@contextlib.contextmanager
def _importable(app: Path) -> Iterator[None]:
    """The app's own modules can be imported, as Flower lets them be."""
    place = str(app.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the audit as Ctrl-C does, so that the processes are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
