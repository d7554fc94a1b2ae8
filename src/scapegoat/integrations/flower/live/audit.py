"""The audit of a live federation: real processes, one of them hostile, and the simulation's report of what leaked."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from scapegoat.attacks import Attack, AttackLike, Samples
from scapegoat.errors import InputError
from scapegoat.experiments.spec import SpecLike, describe
from scapegoat.experiments.staging import staged
from scapegoat.integrations.flower.live.processes import LiveFederation
from scapegoat.integrations.flower.live.spec_app import live_spec, reply_kind
from scapegoat.integrations.flower.live.wrapper import (
    HOSTILE_KEY,
    code_hash,
    read_app,
    shipped_files,
    wrap_app,
    write_app,
)
from scapegoat.integrations.flower.strategies.named import rule_name
from scapegoat.integrations.shared.audit_inputs import AuditMaterial, load_material, write_hostile
from scapegoat.integrations.shared.environment import is_loopback
from scapegoat.integrations.shared.evidence import require_attack, require_training
from scapegoat.integrations.shared.hostile import live_attack
from scapegoat.integrations.shared.outcome import LiveRun, Secrets, assemble, names_of, secrets_of
from scapegoat.integrations.shared.running import Progress, fresh_folder, importable, kept, stoppable, watching

LIVE = "scapegoat.integrations.flower.live.spec_app"


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
        if self.root_certificates is not None:
            if not self.root_certificates.is_file():
                raise InputError(f"--root-certificates {self.root_certificates}: is not a file")
            # The processes that read it work in a folder of their own.
            object.__setattr__(self, "root_certificates", self.root_certificates.resolve())
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


def audit_spec(
    value: SpecLike,
    out: Path,
    *,
    root: Path | None = None,
    timeout: float = 3600.0,
    round_timeout: float = 120.0,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LiveRun:
    """Run a spec as a live federation on loopback, its malicious clients as hostile nodes."""
    spec = live_spec(value)
    setting = spec.federation
    cast = staged(spec, root)
    written = {**spec.canonical(), "live": {"flower": metadata.version("flwr")}}
    directory = fresh_folder(out, written)
    rounds = directory / "rounds.jsonl"
    nodes = [{"partition-id": client, "num-partitions": setting.clients} for client in range(setting.clients)]
    started = time.perf_counter()
    with stoppable(), LiveFederation(directory, nodes, environment=environment or {}) as federation:
        clients = dict(zip(federation.node_ids, range(setting.clients), strict=True))
        config = {
            "spec": json.dumps(spec.canonical()),
            "data-root": str(Path(root).resolve()) if root is not None else "",
            "clients": json.dumps(clients),
            "observations": str(directory),
            "round-timeout": round_timeout,
        }
        app = write_app(directory / "app", f"{LIVE}:server_app", f"{LIVE}:client_app", rounds, reply_kind(spec), config)
        federation.run_app(app, timeout, watching(rounds, progress))
    train = torch.cat(cast.splits.shards)
    secrets = Secrets(
        targets=cast.targets,
        told=cast.truth,
        model=lambda: cast.model.module,
        test=cast.test,
        train=Samples(cast.dataset.inputs(train), cast.dataset.targets(train)),
        task=cast.model.task,
        coins=cast.coins,
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
    return kept(
        out,
        assemble(
            directory,
            written,
            secrets,
            clients=clients,
            hostile=hostile,
            names=names,
            seconds=seconds,
            framework="flwr",
        ),
    )


def audit_app(
    app: Path,
    material_path: str,
    attack: AttackLike,
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
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LiveRun:
    """Run a user's Flower app with one hostile node and tell what it finds out.

    On loopback all `nodes` are started here, and the last one is hostile (or partition `hostile`). In a federation that
    the user names, only the hostile node is started; it joins the nodes that are there. `environment` is what the
    processes find beside the little that all of them get.
    """
    where = where if where is not None else Where()
    project = read_app(app)
    chosen = live_attack(attack)
    hostile = nodes - 1 if hostile is None else hostile
    if not 0 <= hostile < nodes:
        raise InputError(f"--hostile {hostile}: a partition between 0 and {nodes - 1} is expected")
    with importable(app):
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
        directory = fresh_folder(out, written)
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
        live = LiveFederation(
            directory, configs, where.superlink, where.root_certificates, where.insecure, environment or {}
        )
        with stoppable(), live:
            clients = {node: int(c["partition-id"]) for node, c in zip(live.node_ids, configs, strict=True)}
            live.run_app(wrapped, timeout, watching(rounds, progress))
        require_training(rounds)
        require_attack(configuration.with_name("observations.jsonl"), rounds, chosen)
        seconds = time.perf_counter() - started
        run = assemble(
            directory,
            written,
            secrets_of(material, seed),
            clients=clients,
            hostile={hostile},
            names=names_of(written),
            seconds=seconds,
            framework="flwr",
        )
    return kept(out, run)


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
        **material.written(attack, seed=seed, stand_ins=stand_ins, batch_size=batch_size),
        "federation": {"clients": nodes, "malicious": 1, "hostile": hostile, "run_config": settings},
        # The rule's name makes it a column of the simulator's report; strategies of one rule are told apart there.
        "defense": {"name": rule_name(strategy), "strategy": strategy},
        "live": {
            "flower": metadata.version("flwr"),
            "app": f"{project['project']['name']} {project['project'].get('version', '')}".strip(),
            "code": code,
            "superlink": "named by the user" if where.superlink is not None else "loopback",
        },
    }
