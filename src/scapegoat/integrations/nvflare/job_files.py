"""A user's FLARE job as files: exported from its recipe, and with a hostile client and a recorder put into it."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.recipe.spec import Recipe

from scapegoat.errors import InputError
from scapegoat.experiments.spec import describe
from scapegoat.extending.explained import explained
from scapegoat.extending.resolve import resolve_callable
from scapegoat.integrations import nvflare
from scapegoat.integrations.nvflare.aggregator import RobustAggregator
from scapegoat.integrations.shared.layout import BUFFER_NAMES

CLIENT, SERVER = "config_fed_client.json", "config_fed_server.json"
HOSTILE = "scapegoat.integrations.nvflare.HostileFilter"
UNFILTERED = "scapegoat.integrations.nvflare.UnfilteredReply"
RECORDER = "scapegoat.integrations.nvflare.RoundRecorder"
FILTERS = {
    "percentile_privacy": "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy",
    "svt_privacy": "nvflare.app_common.filters.svt_privacy.SVTPrivacy",
}
OURS = "scapegoat.integrations.nvflare."
WEIGHTED_MEAN = "nvflare.app_common.aggregators.intime_accumulate_model_aggregator.InTimeAccumulateWeightedAggregator"


def recipe_function(job: str) -> tuple[Path, str]:
    """The folder and `module:function` of a job that is written as path/to/job.py:function."""
    path, colon, name = job.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or file.suffix != ".py" or not file.is_file():
        raise InputError(f"--job {job!r}: write path/to/job.py:function, where the function returns a FLARE recipe")
    return file.resolve().parent, f"{file.stem}:{name}"


def make_recipe(reference: str, clients: int, settings: Mapping[str, Any]) -> Recipe:
    """The recipe that the user's function gives; it gets `clients`, if it asks for it, and the settings."""
    function = resolve_callable("--job", reference)
    accepted = inspect.signature(function).parameters
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
    if unknown := [key for key in settings if key not in accepted and not open_ended]:
        raise InputError(f"--set {unknown[0]}: {reference} takes no such argument ({', '.join(accepted) or 'none'})")
    given = {"clients": clients} if "clients" in accepted or open_ended else {}
    try:
        made = function(**{**given, **settings})
    except Exception as error:
        raise InputError(f"--job {reference!r}: fails ({explained(error)})") from error
    if not isinstance(made, Recipe):
        raise InputError(f"--job {reference!r}: returned {type(made).__name__}, not a FLARE recipe")
    return made


def export(recipe: Recipe, folder: Path) -> Path:
    """The job's files in a folder of their own."""
    recipe.export(str(folder))
    found = [path.parent for path in folder.glob("*/meta.json")]
    if len(found) != 1:
        raise InputError(f"the recipe was exported as {len(found)} jobs; one is expected")
    return found[0]


def code_hash(job: Path) -> str:
    """SHA-256 of the job's code and of what its clients and workflows do; aggregator and rounds are told apart."""
    apart = {"aggregator"} if rounds_of(job) is None else {"aggregator", "num_rounds"}
    digest = hashlib.sha256()
    for path in sorted(job.rglob("*.py")):
        # What FLARE copies of scapegoat itself says nothing about the job.
        if "scapegoat" not in path.relative_to(job).parts:
            digest.update(f"{path.relative_to(job)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for path in sorted(job.rglob(CLIENT)):
        digest.update(json.dumps(_read(path).get("executors", []), sort_keys=True).encode())
    for path in sorted(job.rglob(SERVER)):
        for workflow in _read(path).get("workflows", []):
            rest = {key: value for key, value in workflow.get("args", {}).items() if key not in apart}
            digest.update(json.dumps([workflow.get("path"), rest], sort_keys=True).encode())
    return digest.hexdigest()


def rule_of(job: Path) -> dict[str, Any]:
    """The rule that the job's server aggregates by, as a spec writes it: its name and every option."""
    aggregator = _aggregator(job)
    if aggregator is None:
        return {"name": "fedavg", "aggregator": "FLARE's own weighted mean"}
    return _named_rule(_path(aggregator), dict(aggregator.get("args", {})))


def trim_of(job: Path, clients: int) -> int | None:
    """How many of so many updates the job's rule trims at each end; None for a rule that does not, or is not ours."""
    aggregator = _aggregator(job)
    ours = None if aggregator is None else _ours(_path(aggregator), dict(aggregator.get("args", {})))
    return None if ours is None else ours.server.rule.trims(clients)


def _aggregator(job: Path) -> Mapping[str, Any] | None:
    """The component that the job's server aggregates with; None where that is FLARE's own weighted mean."""
    for path in job.rglob(SERVER):
        config = _read(path)
        components = {str(one.get("id")): one for one in config.get("components", [])}
        for workflow in config.get("workflows", []):
            named = components.get(str(_argument(workflow, "aggregator_id")))
            aggregator: Mapping[str, Any] | None = workflow.get("args", {}).get("aggregator") or named
            if aggregator and _path(aggregator) != WEIGHTED_MEAN:
                return aggregator
    return None


def _path(component: Mapping[str, Any]) -> str:
    return str(component.get("path") or component.get("class_path") or component.get("name") or "")


def _argument(workflow: Mapping[str, Any], key: str) -> Any:
    """What a workflow gets for an argument, None if it takes no such one; FLARE leaves defaults unwritten."""
    if (given := workflow.get("args", {}).get(key)) is not None:
        return given
    module, _, name = _path(workflow).rpartition(".")
    try:
        lineage = inspect.getmro(getattr(importlib.import_module(module), name))
        # A workflow hands what it does not name itself to the classes that it stands on.
        accepted = [inspect.signature(one).parameters for one in lineage]
    except (ImportError, AttributeError, TypeError, ValueError):  # a workflow that only the server has
        return None
    return next((found[key].default for found in accepted if key in found), None)


def _training(job: Path) -> list[Mapping[str, Any]]:
    """The workflows that have clients train, round by round."""
    workflows = [one for path in job.rglob(SERVER) for one in _read(path).get("workflows", [])]
    return [one for one in workflows if isinstance(_argument(one, "num_rounds"), int)]


def rounds_of(job: Path) -> int | None:
    """How many rounds the job trains, where one workflow does it."""
    found = [int(_argument(one, "num_rounds")) for one in _training(job)]
    return found[0] if len(found) == 1 else None


def train_tasks(job: Path) -> list[str]:
    """The tasks by which the job's workflows have clients train: `train`, unless they are told another name."""
    # The first is what FedAvg and cyclic training call it, the second ScatterAndGather's.
    names = {_argument(one, key) for one in _training(job) for key in ("task_name", "train_task_name")}
    return sorted(name for name in names if isinstance(name, str)) or ["train"]


def _named_rule(path: str, args: dict[str, Any]) -> dict[str, Any]:
    """A rule of ours by its own name, so that it is one column of the report however it was asked for."""
    ours = _ours(path, args)
    if ours is None:
        return {"name": path.rpartition(".")[2], **({"options": args} if args else {})}
    rule = ours.server.rule
    written: Any = rule.canonical()
    options = {"stages": written} if isinstance(written, list) else {k: v for k, v in written.items() if k != "name"}
    server = {key: value for key, value in args.items() if key not in options and key != "rule"}
    if server.get("buffers") == list(BUFFER_NAMES):
        del server["buffers"]
    return {"name": describe(rule), **options, **({"server": server} if server else {})}


def _ours(path: str, args: dict[str, Any]) -> RobustAggregator | None:
    """The aggregator that a job names, if it is one of ours."""
    found = getattr(nvflare, path.rpartition(".")[2], None) if path.startswith(OURS) else None
    return found(**args) if isinstance(found, type) and issubclass(found, RobustAggregator) else None


def sends_differences(job: Path) -> bool:
    """Whether the job's clients send what training added to the model."""
    texts = [json.dumps(_read(path).get("executors", [])) for path in job.rglob(CLIENT)]
    return bool(texts) and all('"params_transfer_type": "DIFF"' in text for text in texts)


def filter_component(value: Any) -> dict[str, Any]:
    """One of FLARE's privacy filters, by name or with options."""
    options = {"name": value} if isinstance(value, str) else dict(value)
    name = options.pop("name", None)
    if name not in FILTERS:
        raise InputError(f"--filter {name!r}: is not one that is audited (one of: {', '.join(FILTERS)})")
    path = FILTERS[name]
    module, _, kind = path.rpartition(".")
    accepted = [*inspect.signature(getattr(importlib.import_module(module), kind).__init__).parameters][1:]
    if unknown := [key for key in options if key not in accepted]:
        raise InputError(f"--filter {name}: has no option {unknown[0]!r} (options: {', '.join(accepted)})")
    return {"name": name, "path": path, "args": options}


def defense_of(rule: Mapping[str, Any], filters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The column of the report: the rule, or FLARE's filters, with the rule beside them unless it is the mean."""
    if not filters:
        return dict(rule)
    named = [str(one["name"]) for one in filters]
    options = {str(one["name"]): one["args"] for one in filters if one["args"]}
    if rule["name"] != "fedavg":
        return {"name": " + ".join([*named, str(rule["name"])]), "rule": dict(rule), **options}
    # Options of a single filter are written as a rule's are, so that a table's heading stays short.
    return {"name": " + ".join(named), **(options if len(named) > 1 else dict(filters[0]["args"]))}


def wire(job: Path, *, site: str, hostile: Path, rounds: Path, filters: list[dict[str, Any]]) -> None:
    """Put FLARE's filters on every client, a hostile filter for `site` around them, and a recorder on the server.

    A hostile client does what it likes with its own machine: what it sends passes no filter of its own, neither these
    nor the job's. Every site gets one configuration, so there the first filter keeps the reply and the last one takes
    it up again.
    """
    tasks = train_tasks(job)
    for path in job.rglob(CLIENT):
        config = _read(path)
        ours = {"path": HOSTILE, "args": {"site": site, "config": str(hostile)}}
        before = {"path": UNFILTERED, "args": {"site": site}}
        theirs = [{"path": one["path"], "args": one["args"]} for one in filters]
        for task in tasks:
            _task_filters(config, "task_data_filters", "in", task, [], [ours])
            _task_filters(config, "task_result_filters", "out", task, [before], [*theirs, ours])
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    for path in job.rglob(SERVER):
        config = _read(path)
        recorder = {"id": "scapegoat_recorder", "path": RECORDER, "args": {"path": str(rounds)}}
        config.setdefault("components", []).append(recorder)
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def _task_filters(
    config: dict[str, Any], key: str, direction: str, task: str, first: list[dict[str, Any]], last: list[dict[str, Any]]
) -> None:
    """Put filters around the job's own of a task; FLARE allows one chain per task and direction."""
    chains, own = [], []
    for chain in config.get(key, []):
        towards = str(chain.get("direction", direction)).lower()
        if task not in chain["tasks"] or towards not in (direction, "inout"):
            chains.append(chain)
            continue
        own += chain["filters"]
        if others := [one for one in chain["tasks"] if one != task]:
            chains.append({**chain, "tasks": others})
        if towards == "inout":
            chains.append({**chain, "tasks": [task], "direction": "out" if direction == "in" else "in"})
    config[key] = [*chains, {"tasks": [task], "filters": [*first, *own, *last]}]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
