"""`scapegoat flower`: the audit of a live Flower federation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from scapegoat.cli._components import component
from scapegoat.cli._live import add_group, conclude, progressing

DEFAULT_ROUNDS = 20
OLDEST = (1, 41)  # since then SuperLink and SuperNodes are started and reached over HTTP as they are here
DEFAULT_ATTACKS = ("gradient_ascent",)
DEFAULT_DEFENSES = ("fedavg", "atm")

# Options that mean something in one kind of audit only, by parameter; of a spec's counterpart to an app's, the key.
OF_AN_APP = {
    "material": "--material",
    "run_config": "--run-config",
    "nodes": "--nodes",
    "hostile": "--hostile",
    "stand_ins": "--stand-ins",
    "seed": "--seed",
    "superlink": "--superlink",
    "root_certificates": "--root-certificates",
    "plaintext": "--insecure",
    "owned": "--i-own-this-federation",
}
OF_A_SPEC = {
    "spec": "SPEC",
    "set_": "--set",
    "defense": "--defense",
    "side_by_side": "--side-by-side",
    "root": "--root",
    "round_timeout": "--round-timeout",
}
OF_A_SUPERLINK = ("root_certificates", "plaintext", "owned")
IN_A_SPEC = {"nodes": "federation.clients", "hostile": "federation.malicious", "seed": "seed"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_group(app, "flower", "Audit a live Flower federation.", audit)


def audit(
    context: typer.Context,
    spec: Path | None = typer.Argument(None, show_default=False),
    app: Path | None = typer.Option(None, "--app", help="Folder of your own Flower app, audited in place of a spec."),
    material: str | None = typer.Option(
        None, "--material", help="package.module:function that gives the AuditMaterial of your app."
    ),
    attack: list[str] = typer.Option([], "--attack", help="An attack (repeat for several); default: gradient_ascent."),
    defense: list[str] = typer.Option(
        [], "--defense", help="With a spec: a rule (repeat for several); default: fedavg, atm."
    ),
    set_: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Override a key of the spec."),
    run_config: list[str] = typer.Option(
        [], "--run-config", metavar="KEY=VALUE", help="With --app: override a key of its configuration."
    ),
    nodes: int = typer.Option(10, "--nodes", min=2, help="With --app: SuperNodes to start, the last one hostile."),
    hostile: int | None = typer.Option(None, "--hostile", help="With --app: the partition of the hostile node."),
    stand_ins: int = typer.Option(8, "--stand-ins", min=0, help="With --app: honest updates that stand in for peers."),
    seed: int = typer.Option(0, "--seed", min=0, help="With --app: the attacker's own seed."),
    superlink: str | None = typer.Option(
        None, "--superlink", metavar="HOST:PORT", help="With --app: join this SuperLink instead of starting one."
    ),
    root_certificates: Path | None = typer.Option(
        None, "--root-certificates", help="With --superlink: PEM file to verify its TLS certificate."
    ),
    plaintext: bool = typer.Option(False, "--insecure", help="With --superlink: no TLS to another machine."),
    owned: bool = typer.Option(
        False, "--i-own-this-federation", help="Declare that a SuperLink on another machine is yours to attack."
    ),
    env: list[str] = typer.Option(
        [], "--env", metavar="NAME", help="An environment variable that the processes get too (repeat for several)."
    ),
    side_by_side: bool = typer.Option(
        False, "--side-by-side", help="With a spec: run the simulator on the same spec too."
    ),
    out: Path = typer.Option(Path("flower-audit"), "--out", help="Folder for the runs and the logs."),
    report: Path | None = typer.Option(None, "--report", help="Write an HTML report of all runs in --out."),
    root: Path | None = typer.Option(
        None, "--root", help="With a spec: folder with data sets (default: SCAPEGOAT_DATA, ./data)."
    ),
    timeout: float = typer.Option(3600.0, "--timeout", min=1, help="Seconds that one run may take."),
    round_timeout: float = typer.Option(
        120.0, "--round-timeout", min=1, help="With a spec: seconds to wait for replies in a round."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print only the summaries, as JSON."),
) -> None:
    """Run a federation of real Flower processes with a hostile node and tell what it finds out.

    Processes run on the loopback interface and are gone when the command ends. A SuperLink on another machine is joined
    only with --i-own-this-federation. SPEC is a YAML file for the built-in federation; without one, and without --app,
    the defaults are run.
    """
    from scapegoat.errors import InputError
    from scapegoat.integrations.flower import require_flower

    _consistent(context)
    require_flower(OLDEST)
    from scapegoat.experiments.spec import describe
    from scapegoat.integrations.flower.live import audit as live
    from scapegoat.integrations.flower.live.spec_app import live_spec
    from scapegoat.integrations.shared.environment import passed
    from scapegoat.integrations.shared.hostile import check_company, live_attack
    from scapegoat.integrations.shared.running import settings

    where = live.Where(superlink, root_certificates, owned, plaintext)
    environment = passed(env)
    if report is not None and not report.absolute().parent.is_dir():
        raise InputError(f"--report {report}: is not a file in an existing folder")
    results: list[dict[str, Any]] = []
    if app is not None:
        assert material is not None
        overrides = settings(run_config, "--run-config")
        attacks = [live_attack(component(name)) for name in attack or DEFAULT_ATTACKS]
        for chosen in attacks:
            check_company(chosen, 1 + stand_ins, "give it --stand-ins 1 or more")
        for chosen in attacks:
            with progressing(chosen.name, None, as_json) as progress:
                run = live.audit_app(
                    app, material, chosen, out, nodes=nodes, hostile=hostile, run_config=overrides,
                    where=where, stand_ins=stand_ins, seed=seed, timeout=timeout,
                    environment=environment, progress=progress,
                )  # fmt: skip
            results.append(run.summary)
    else:
        specs = [live_spec(plain) for plain in _specs(spec, set_, attack, defense)]
        for checked in specs:
            check_company(
                checked.attack,
                checked.federation.malicious,
                "take --set federation.malicious=2 or more, or audit an app, where --stand-ins are its company",
            )
        for checked in specs:
            what = f"{checked.attack.name} against {describe(checked.defense)}"
            with progressing(what, checked.federation.rounds, as_json) as progress:
                run = live.audit_spec(
                    checked, out, root=root, timeout=timeout, round_timeout=round_timeout, environment=environment,
                    progress=progress,
                )  # fmt: skip
            results.append(run.summary)
            if side_by_side:
                from scapegoat.experiments.run import run as simulate

                results.append(simulate(checked, store=out, root=root).summary)
    conclude(results, out, report, as_json)


def _consistent(context: typer.Context) -> None:
    """Every option that was given must mean something here: what would be ignored is refused."""
    from scapegoat.errors import InputError

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    if "app" in given:
        if "material" not in given:
            raise InputError("--app: say with --material package.module:function whose membership is asked for")
        if wrong := [option for name, option in OF_A_SPEC.items() if name in given]:
            raise InputError(f"{wrong[0]}: belongs to a spec; an app of your own decides this itself")
    elif wrong := [name for name in OF_AN_APP if name in given]:
        instead = f"; in a spec it is --set {IN_A_SPEC[wrong[0]]}=..." if wrong[0] in IN_A_SPEC else ""
        raise InputError(f"{OF_AN_APP[wrong[0]]}: needs --app, the folder of a Flower app{instead}")
    if "superlink" not in given and (wrong := [name for name in OF_A_SUPERLINK if name in given]):
        raise InputError(f"{OF_AN_APP[wrong[0]]}: needs --superlink, the federation to join")
    if {"root_certificates", "plaintext"} <= given:
        raise InputError("--insecure turns TLS off and --root-certificates is for TLS: give one of them")


def _specs(
    path: Path | None, overrides: list[str], attacks: list[str], defenses: list[str]
) -> Iterator[dict[str, Any]]:
    """The spec with each attack and defense asked for, as plain values; knowledge is partial, as it is in real life."""
    from scapegoat.errors import InputError
    from scapegoat.experiments.spec import override_key
    from scapegoat.yaml_text import read_yaml

    base = read_yaml(path) if path is not None else {"federation": {"rounds": DEFAULT_ROUNDS}}
    if not isinstance(base, dict):
        raise InputError(f"{path}: holds {type(base).__name__}; a mapping of keys is expected")
    for override in overrides:
        base = override_key(base, override)
    own_attack, own_defense = base.get("attack"), base.get("defense")
    for attack in [component(a) for a in attacks] or [own_attack or DEFAULT_ATTACKS[0]]:
        for defense in [component(d) for d in defenses] or ([own_defense] if own_defense else list(DEFAULT_DEFENSES)):
            chosen = {"name": attack} if isinstance(attack, str) else dict(attack)
            if isinstance(own_attack, dict) and chosen.keys() == {"name"}:
                chosen = {**{k: v for k, v in own_attack.items() if k in ("targets", "mask", "start_round")}, **chosen}
            yield {**base, "attack": {"knowledge": "partial", **chosen}, "defense": defense}
