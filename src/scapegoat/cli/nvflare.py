"""`scapegoat nvflare`: the audit of an NVIDIA FLARE job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from scapegoat.cli._components import component
from scapegoat.cli._live import add_group, conclude, progressing

DEFAULT_ATTACKS = ("passive", "fedpoisonmia")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_group(app, "nvflare", "Audit an NVIDIA FLARE job.", audit)


def audit(
    job: str = typer.Option(..., "--job", metavar="FILE.py:FUNCTION", help="The function that returns your recipe."),
    material: str = typer.Option(
        ..., "--material", metavar="MODULE:FUNCTION", help="The function that gives the AuditMaterial of your job."
    ),
    attack: list[str] = typer.Option(
        [], "--attack", help="An attack (repeat for several); default: passive, fedpoisonmia."
    ),
    filter_: list[str] = typer.Option(
        [], "--filter", help="One of FLARE's own filters on every client: percentile_privacy or svt_privacy."
    ),
    set_: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="An argument of the job's function."),
    clients: int = typer.Option(10, "--clients", min=2, help="Clients to start, the last one hostile."),
    hostile: int | None = typer.Option(None, "--hostile", help="The number of the hostile client, from 1."),
    poc: bool = typer.Option(False, "--poc", help="Real processes with TLS on loopback instead of the simulator."),
    stand_ins: int = typer.Option(8, "--stand-ins", min=0, help="Honest updates that stand in for peers."),
    seed: int = typer.Option(0, "--seed", min=0, help="The attacker's own seed."),
    env: list[str] = typer.Option(
        [], "--env", metavar="NAME", help="An environment variable that the processes get too (repeat for several)."
    ),
    out: Path = typer.Option(Path("nvflare-audit"), "--out", help="Folder for the runs and the logs."),
    report: Path | None = typer.Option(None, "--report", help="Write an HTML report of all runs in --out."),
    timeout: float = typer.Option(3600.0, "--timeout", min=1, help="Seconds that one run may take."),
    as_json: bool = typer.Option(False, "--json", help="Print only the summaries, as JSON."),
) -> None:
    """Run a FLARE job of yours with a hostile client and tell what it finds out.

    All processes run on this machine and are gone when the command ends.
    """
    from scapegoat.errors import InputError
    from scapegoat.integrations.nvflare import require_flare

    require_flare()
    from scapegoat.integrations.nvflare.audit import audit_job
    from scapegoat.integrations.shared.environment import passed
    from scapegoat.integrations.shared.hostile import check_company, live_attack
    from scapegoat.integrations.shared.running import settings

    environment, overrides = passed(env), settings(set_, "--set")
    if report is not None and not report.absolute().parent.is_dir():
        raise InputError(f"--report {report}: is not a file in an existing folder")
    attacks = [live_attack(component(name)) for name in attack or DEFAULT_ATTACKS]
    for chosen in attacks:
        check_company(chosen, 1 + stand_ins, "give it --stand-ins 1 or more")
    results: list[dict[str, Any]] = []
    for chosen in attacks:
        with progressing(chosen.name, None, as_json) as progress:
            run = audit_job(
                job, material, chosen, out, clients=clients, hostile=hostile, poc=poc,
                filters=[component(text) for text in filter_], settings=overrides, stand_ins=stand_ins, seed=seed,
                timeout=timeout, environment=environment, progress=progress,
            )  # fmt: skip
        results.append(run.summary)
    conclude(results, out, report, as_json)
