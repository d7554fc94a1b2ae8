"""From runs to a page: runs that share a setting become one study, runs that differ only in the seed one cell."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scapegoat.report.detail import detail
from scapegoat.report.evidence import pool
from scapegoat.report.facts import by_strongest_score
from scapegoat.report.groups import groups_of
from scapegoat.report.measures import ATTACK_ORDER, DEFENSE_ORDER
from scapegoat.report.model import Cell, Matrix, Page, RunDetail, Section, Study
from scapegoat.report.planned import protection_label
from scapegoat.report.refuting import Refuted, by_targets
from scapegoat.report.remarks import remarks
from scapegoat.report.runs import Run, read
from scapegoat.report.told import Told
from scapegoat.report.verdict import decide, name_of, ordered
from scapegoat.run_folders import unsealed_words

# Options of the attack that every attack shares and that change what is measured, not how it is attacked.
SHARED_OPTIONS = ("targets", "mask")
# Beyond so many runs the page keeps the figures and leaves the rounds out; it says so.
DETAILED_RUNS = 240


def build(
    source: str | Path | Iterable[Any],
    *,
    title: str = "",
    command: str = "",
    sections: Sequence[Section] = (),
    missing: Mapping[tuple[str, str], str] | None = None,
    created: str | None = None,
    detailed_runs: int = DETAILED_RUNS,
) -> Page:
    """A page from runs.

    A run that failed is an empty cell with its reason: an unfinished run of the directory, or something with `spec` and
    `reason` among the results.

    Parameters
    ----------
    source: a run store's directory, or results (anything with `spec`, `summary`, `rounds`, `targets`).
    title: heading of the page; by default one that names the data.
    command: what the page says it was made with.
    sections: come before the studies; with them, a directory without runs is a page of sections alone.
    missing: reasons for cells that have no run, by (attack, defense) name.
    created: when it was made, as the page says it; by default now.
    detailed_runs: beyond so many runs the page keeps the figures and leaves the rounds out.

    Returns
    -------
    The page as data, with one study per setting.

    Examples
    --------
    >>> import scapegoat as sg
    >>> small = {"data": {"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...          "model": {"name": "mlp", "hidden": [8]}, "federation": {"clients": 4, "rounds": 2, "batch_size": 16},
    ...          "attack": {"name": "passive", "targets": 40, "mask": 20}}
    >>> page = build([sg.run(small)])
    >>> page.title, page.studies[0].matrix.attacks
    ('Membership leakage on hospital', ('passive',))
    """
    runs, unplaced = read(source, empty=bool(sections))
    by_setting: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_setting[json.dumps(_setting(run.spec), sort_keys=True, default=str)].append(run)
    flat = {key: _flatten(json.loads(key)) for key in sorted(by_setting)}
    notes = [f"Not shown: {line}." for line in unplaced]
    if len(runs) > detailed_runs:
        notes.append(
            f"{len(runs)} runs: rounds and targets are shown for the first {detailed_runs}; "
            "the figures of all of them are in the tables."
        )
    if unsealed := sum(not run.sealed for run in runs):
        notes.append(f"{unsealed_words(unsealed)}.")
    studies = []
    left = detailed_runs
    for key, settings in flat.items():
        studies.append(_study(by_setting[key], settings, list(flat.values()), missing or {}, left))
        left -= len(by_setting[key])
    location = str(source) if isinstance(source, str | Path) else ""
    return Page(
        title=title or _title(flat.values()),
        studies=tuple(studies),
        sections=tuple(sections),
        source=location,
        command=command or (shlex.join(["scapegoat", "report", location]) if location else ""),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC") if created is None else created,
        versions=_versions(runs),
        notes=tuple(notes),
    )


def _study(
    runs: Sequence[Run],
    settings: Mapping[str, str],
    all_settings: Sequence[Mapping[str, str]],
    missing: Mapping[tuple[str, str], str],
    detailed: int,
) -> Study:
    attack_labels = labels_of([_component(run, "attack") for run in runs], ignore=SHARED_OPTIONS)
    defense_labels = labels_of([_component(run, "defense") for run in runs])
    grouped: dict[tuple[str, str], list[tuple[int, Run]]] = defaultdict(list)
    for index, run in enumerate(runs):
        grouped[attack_labels[index], defense_labels[index]].append((index, run))
    attacks = ordered({*attack_labels, *(a for a, _ in missing)}, ATTACK_ORDER)
    defenses = ordered({*defense_labels, *(d for _, d in missing)}, DEFENSE_ORDER)
    cells = {}
    for attack in attacks:
        for defense in defenses:
            found = sorted(
                grouped.get((attack, defense), []), key=lambda item: (item[1].spec.get("seed", 0), item[1].hash)
            )
            details = [detail(run, tables=index < detailed) for index, run in found]
            cells[attack, defense] = _cell(attack, defense, details, missing.get((attack, defense), "no run"))
    baseline = next(
        (
            key
            for key, cell in cells.items()
            if cell.measures and _base(key[0]) == "passive" and _base(key[1]) == "fedavg"
        ),
        None,
    )
    federation = runs[0].spec.get("federation") or {}
    finished = [run for cell in cells.values() for run in cell.runs if run.measures]

    def targets_of(key: tuple[str, str]) -> list[Told]:
        return [run.told for run in cells[key].runs if run.told is not None] if key in cells else []

    def refuted(defense: str) -> Refuted | None:
        of_rule = [run for (_, d), cell in cells.items() if d == defense for run in cell.runs if run.measures]
        return by_targets([(run.facts, run.told) for run in of_rule])

    verdict = decide(
        {
            key: {run.seed: by_strongest_score(run.measures, run.facts) for run in cell.runs if run.measures}
            for key, cell in cells.items()
        },
        attacks=attacks,
        defenses=defenses if finished else [],
        baseline=baseline,
        told={key: {run.seed: run.facts for run in cell.runs if run.measures} for key, cell in cells.items()},
        groups=lambda key, score: groups_of(targets_of(key), score),
        refuted=refuted,
        clients=federation.get("clients"),
        malicious=federation.get("malicious"),
        targets=min((run.targets for run in finished if run.targets), default=0),
        others=min((run.targets - run.members for run in finished if run.targets and run.members), default=0),
    )
    return Study(
        title=_what_differs(settings, all_settings),
        settings=settings,
        matrix=Matrix(tuple(attacks), tuple(defenses), cells, baseline),
        verdict=replace(verdict, caveats=(*verdict.caveats, *remarks([run.summary for run in runs]))),
        rounds=federation.get("rounds") or runs[0].summary.get("rounds"),
        clients=federation.get("clients"),
        malicious=federation.get("malicious"),
    )


def _cell(attack: str, defense: str, details: Sequence[RunDetail], otherwise: str) -> Cell:
    finished = [run for run in details if run.measures]
    failed = [run for run in details if not run.measures]
    reasons = dict.fromkeys(run.problem or "its summary holds no figure" for run in failed)
    reason = "; ".join(reasons) if reasons else ("" if finished else otherwise)
    if finished and failed:
        reason = f"{len(failed)} of {len(details)} runs left out ({reason})"
    measures = pool([run.measures for run in finished]) if finished else {}
    return Cell(attack, defense, measures, tuple(details), reason)


def _setting(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without what the matrix varies: attack, defense and seed."""
    setting = {key: value for key, value in spec.items() if key not in ("seed", "attack", "defense")}
    federation = spec.get("federation")
    if isinstance(federation, Mapping) and isinstance(federation.get("run_config"), Mapping):
        # A Flower app's configuration names the defense once more, as its strategy.
        config = {key: value for key, value in federation["run_config"].items() if key != "strategy"}
        setting["federation"] = {**federation, "run_config": config}
    attack = spec.get("attack")
    if isinstance(attack, Mapping):
        setting["attack"] = {key: attack[key] for key in SHARED_OPTIONS if key in attack}
    return setting


def _component(run: Run, kind: str) -> Any:
    return run.spec.get(kind, run.summary.get(kind, "?"))


def _base(label: str) -> str:
    return label.split(" ")[0]


def labels_of(components: Sequence[Any], ignore: Sequence[str] = ()) -> list[str]:
    """A label each: the name, and the options in which components of one name differ."""
    by_name: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    options = [_options(component, ignore) for component in components]
    for component, found in zip(components, options, strict=True):
        by_name[name_of(component)].append(found)
    written = []
    for component, found in zip(components, options, strict=True):
        name = name_of(component)
        alike = by_name[name]
        keys = sorted({key for other in alike for key in other if any(o.get(key) != other[key] for o in alike)})
        differing = ", ".join(f"{key}={found[key]}" for key in keys if key in found)
        written.append(f"{name} ({differing})" if differing else name)
    return written


def _options(component: Any, ignore: Sequence[str]) -> dict[str, str]:
    if isinstance(component, Mapping):
        return _flatten({key: value for key, value in component.items() if key != "name" and key not in ignore})
    if isinstance(component, list | tuple):
        merged = {}
        for part in component:
            merged.update({f"{name_of(part)}.{key}": value for key, value in _options(part, ignore).items()})
        return merged
    return {}


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted keys and texts."""
    if isinstance(value, Mapping):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat.update(_flatten(inner, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value if isinstance(value, str) else json.dumps(value, default=str)}


def _what_differs(settings: Mapping[str, str], everyone: Sequence[Mapping[str, str]]) -> str:
    keys = [key for key in settings if any(other.get(key) != settings[key] for other in everyone)]
    return ", ".join(_setting_words(key, settings[key]) for key in keys)


def _setting_words(key: str, value: str) -> str:
    if key == "federation.protect":
        try:
            return ", ".join(map(protection_label, json.loads(value))) or "no protection"
        except (ValueError, TypeError, LookupError, AttributeError):
            return f"{key} {value}"  # not as a spec writes it: shown as it is
    return f"{value} rounds" if key == "federation.rounds" else f"{key.removesuffix('.name')} {value}"


def _title(settings: Iterable[Mapping[str, str]]) -> str:
    names = list(dict.fromkeys(_data_name(s) for s in settings if "data.name" in s))
    return f"Membership leakage on {', '.join(names)}" if 0 < len(names) <= 3 else "Membership leakage"


def _data_name(settings: Mapping[str, str]) -> str:
    """Data as a title calls it: a file by its name, arrays that were handed over as what they are."""
    kind, _, path = settings["data.name"].partition(":")
    if kind == "given":
        return "data of your own"
    path = path or settings.get("data.path", "")
    return Path(path).stem or kind if path else kind


def _versions(runs: Iterable[Run]) -> dict[str, str]:
    """Every version that the runs name; where they disagree, all of them."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for name, version in (run.summary.get("versions") or {}).items():
            found[str(name)][str(version)] = None
    return {name: ", ".join(found[name]) for name in sorted(found)}
