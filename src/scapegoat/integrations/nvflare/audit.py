"""The audit of a FLARE job: the simulator or real processes, one client hostile, and the simulation's report."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from scapegoat.attacks import AttackLike
from scapegoat.errors import InputError
from scapegoat.integrations.nvflare import job_files
from scapegoat.integrations.nvflare.processes import run_poc, run_simulator
from scapegoat.integrations.shared.audit_inputs import load_material, read_hostile, write_hostile
from scapegoat.integrations.shared.evidence import require_attack, require_training
from scapegoat.integrations.shared.hostile import (
    append_line,
    keep_model,
    live_attack,
    read_lines,
    read_model,
    scores,
)
from scapegoat.integrations.shared.outcome import LiveRun, assemble, names_of, secrets_of
from scapegoat.integrations.shared.received import ReceivedModel
from scapegoat.integrations.shared.running import Progress, fresh_folder, importable, kept, stoppable, watching


def audit_job(
    job: str,
    material_path: str,
    attack: AttackLike,
    out: Path,
    *,
    clients: int = 10,
    hostile: int | None = None,
    poc: bool = False,
    filters: Sequence[Any] = (),
    settings: Mapping[str, Any] | None = None,
    stand_ins: int = 8,
    batch_size: int = 64,
    seed: int = 0,
    timeout: float = 3600.0,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LiveRun:
    """Run a user's FLARE job with one hostile client and tell what it finds out.

    `job` is path/to/job.py:function, whose function returns a recipe. Clients are site-1, site-2, ...; the last one is
    hostile (or number `hostile`, from 1). It sees the global model at the start of every round and, as every
    participant does, the final one. `filters` are FLARE's own, put on every honest client.
    """
    folder, reference = job_files.recipe_function(job)
    chosen = live_attack(attack)
    parts = [job_files.filter_component(one) for one in filters]
    number = clients if hostile is None else hostile
    if not 1 <= number <= clients:
        raise InputError(f"--hostile {number}: a client between 1 and {clients} is expected")
    with importable(folder), tempfile.TemporaryDirectory(prefix="scapegoat-") as scratch:
        material = load_material(material_path, clients)
        recipe = job_files.make_recipe(reference, clients, settings or {})
        exported = job_files.export(recipe, Path(scratch))
        if parts and not job_files.sends_differences(exported):
            raise InputError(
                f"--filter {parts[0]['name']}: is made for differences, and this job's clients send whole models "
                "(in a recipe: params_transfer_type=TransferType.DIFF)"
            )
        rule = job_files.rule_of(exported)
        written: dict[str, Any] = {
            **material.written(chosen, seed=seed, stand_ins=stand_ins, batch_size=batch_size),
            "federation": {
                "clients": clients,
                "malicious": 1,
                "hostile": number,
                "rounds": job_files.rounds_of(exported),
            },
            "defense": job_files.defense_of(rule, parts),
            "live": {
                "nvflare": metadata.version("nvflare"),
                "job": reference.partition(":")[2],
                "where": "poc" if poc else "simulator",
                "code": job_files.code_hash(exported),
            },
        }
        directory = fresh_folder(out, written)
        exported = Path(shutil.copytree(exported, directory / "job"))
        configuration = write_hostile(
            directory / "hostile",
            material,
            chosen,
            seed=seed,
            stand_ins=stand_ins,
            batch_size=batch_size,
            trim=job_files.trim_of(exported, clients),
        )
        rounds = directory / "rounds.jsonl"
        site = f"site-{number}"
        job_files.wire(exported, site=site, hostile=configuration, rounds=rounds, filters=parts)
        started = time.perf_counter()
        run = run_poc if poc else run_simulator
        with stoppable():
            run(
                exported,
                directory,
                clients,
                folder=folder,
                timeout=timeout,
                environment=environment or {},
                tell=watching(rounds, progress),
            )
        require_training(rounds)
        require_attack(configuration.with_name("observations.jsonl"), rounds, chosen)
        _look_at_the_final_model(directory, configuration, site)
        found = assemble(
            directory,
            written,
            secrets_of(material, seed),
            clients={f"site-{i + 1}": i for i in range(clients)},
            hostile={number - 1},
            names=names_of(written),
            seconds=time.perf_counter() - started,
            framework="nvflare",
        )
    return kept(out, found)


def _look_at_the_final_model(directory: Path, configuration: Path, site: str) -> None:
    """Every participant is given the finished model: the attacker scores its targets under it too."""
    path, config = directory / "final.safetensors", read_hostile(configuration)
    rounds = [line["round"] for line in read_lines(directory / "rounds.jsonl")]
    if not path.is_file() or not rounds:
        return
    arrays = read_model(path)
    given = ReceivedModel(config.model, arrays, config.targets.x)
    line = {"node": site, "message": "final", "server_round": max(rounds), "after": max(rounds)}
    append_line(config.observations, line | {"scores": scores(given, config)})
    keep_model(config.observations.with_suffix(".safetensors"), arrays)
