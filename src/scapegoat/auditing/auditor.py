"""The audit: all attacks against the chosen defenses, a verdict, a report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scapegoat.auditing.cells import audit_specs
from scapegoat.auditing.elimination import SEEDS
from scapegoat.auditing.helping import Helping
from scapegoat.auditing.outcome import Audit
from scapegoat.auditing.planner import BUDGET, Planner
from scapegoat.auditing.stages import in_stages
from scapegoat.auditing.user_input import Data, Model
from scapegoat.errors import InputError, RunError, StorageError
from scapegoat.experiments import RunStore, Spec
from scapegoat.experiments.executors import Event, Failure, Outcome, cores, execute, named
from scapegoat.experiments.executors.processes import ProcessPool
from scapegoat.experiments.notebooks import notebook_progress
from scapegoat.experiments.references import with_references
from scapegoat.experiments.run import Result, prepare


def audit(
    *,
    model: Model | None = None,
    data: Data = "hospital",
    task: str | Mapping[str, Any] | None = None,
    attacks: Sequence[Any] | None = None,
    defenses: Sequence[Any] | None = None,
    clients: int | None = None,
    malicious: int | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    federation: Mapping[str, Any] | None = None,
    attack_options: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    plugins: Sequence[str] = (),
    out: str | Path | None = None,
    root: str | Path | None = None,
    references: int = 0,
    rehearse: bool = False,
    accuracy_cost: float | None = None,
    search: bool | None = None,
    jobs: int | None = None,
    title: str = "",
    command: str = "",
    on_event: Callable[[Event], None] | None = None,
) -> Audit:
    """Attack a simulated federation of your model and data under each defense, and say which one to use.

    Parameters
    ----------
    model: a name, a `package.module:factory`, a module or a factory; by default one that fits the data.
    data: a name, `npz:PATH` and the like, or a pair of arrays (records, labels).
    task: what the model is trained for, such as `regression`; by default found from labels and outputs.
    attacks, defenses: names, mappings with options, or `package.module:Class`; by default those of `scapegoat audit`.
    clients, malicious, rounds: the federation's.
    seeds: runs of each cell, with different seeds; by default one, and where attacks and defenses are left to the
        audit three of the rules that one seed cannot tell from the best.
    federation, attack_options, evaluation: settings of the spec as mappings, such as `federation={"fraction": 0.3}`;
        `attack_options` is what all attacks share.
    overrides: the same as `"key=value"`, for any key of the spec.
    plugins: modules with components of your own.
    out: folder in which finished runs are kept and never computed twice.
    root: folder with data sets.
    references: reference federations per seed, for the scores that compare with them. The settings that a plan is
        chosen from at last have references of their own.
    rehearse: whether each cell has references of its own, under its attack and rule, as an attacker could train them;
        by default all cells of a seed share those of merely watching under plain averaging.
    accuracy_cost: test accuracy that the plan may cost (0.03). A plan is searched where attacks and defenses are left
        to the audit, or this is given.
    search: whether to search for a plan, whatever the rest says.
    jobs: runs at once; by default one per core.
    title, command: what the page is headed, and says how it was made.
    on_event: told of every start, round and end; without it a notebook shows a line of progress.

    Returns
    -------
    The audit: `verdict`, `table()`, `to_frame()`, `save("report.html")`, `check("policy.yaml")`, and the
    `plan`: rule, protections and rounds that leak least within the budget (None if none was searched).

    Examples
    --------
    >>> found = audit(
    ...     data={"name": "hospital", "records": 700, "features": 40, "classes": 4, "validation": 40},
    ...     model={"name": "mlp", "hidden": [8]}, attacks=["passive"], defenses=["fedavg", "atm"],
    ...     clients=4, rounds=2, attack_options={"targets": 40, "mask": 20}, jobs=1,
    ... )
    >>> found.verdict.status, len(found.results)
    ('undertrained', 2)
    """
    left_to_us = attacks is None and defenses is None
    with tempfile.TemporaryDirectory(prefix="scapegoat-") as scratch:
        folder = Path(scratch) if out is None else Path(out)
        specs = audit_specs(
            model=model,
            data=data,
            task=task,
            attacks=attacks,
            defenses=defenses,
            clients=clients,
            malicious=malicious,
            rounds=rounds,
            seeds=planned_seeds(seeds, left_to_us),
            federation=federation,
            attack_options=attack_options,
            evaluation=evaluation,
            overrides=overrides,
            plugins=plugins,
            out=folder,
            root=root,
        )
        with notebook_progress() as line:
            return execute_cells(
                specs,
                folder,
                root=root,
                references=references,
                rehearse=rehearse,
                eliminate=left_to_us,
                spread=seeds is None,
                accuracy_cost=budget_of(accuracy_cost, search, left_to_us),
                jobs=jobs,
                title=title,
                command=command,
                on_event=line.take if line is not None and on_event is None else on_event,
                on_plan=line.expect if line is not None else None,
            )


def planned_seeds(seeds: int | None, left_to_us: bool) -> int:
    """How many seeds an audit may use: what was asked for, else one, and more where it may spend them as it likes."""
    return (SEEDS if left_to_us else 1) if seeds is None else seeds


def budget_of(accuracy_cost: float | None, search: bool | None, left_to_us: bool) -> float | None:
    """The test accuracy that a plan may cost; None if no plan is to be searched."""
    if accuracy_cost is not None and not 0 <= accuracy_cost <= 1:
        raise InputError(f"accuracy_cost: {accuracy_cost:g} is not allowed (a share of test accuracy, 0 to 1)")
    wanted = (left_to_us or accuracy_cost is not None) if search is None else search
    return (BUDGET if accuracy_cost is None else accuracy_cost) if wanted else None


def execute_cells(
    specs: Sequence[Spec],
    out: str | Path,
    *,
    root: str | Path | None = None,
    references: int = 0,
    rehearse: bool = False,
    eliminate: bool = False,
    spread: bool = False,
    accuracy_cost: float | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    gpus_per_run: float = 1.0,
    title: str = "",
    command: str = "",
    on_event: Callable[[Event], None] | None = None,
    on_plan: Callable[[int, bool], None] | None = None,
) -> Audit:
    """Run the specs of an audit in `out` and collect what they found.

    Parameters
    ----------
    specs: the runs, as `audit_specs` makes them.
    out: folder of the runs.
    references: reference federations per seed, shared by all cells of the seed.
    rehearse: references per cell instead, under its own attack and rule.
    eliminate: whether rules that leak as much as plain averaging are dropped after a first stage.
    spread: whether, when rules are dropped, seeds after the first go only where they decide.
    accuracy_cost: the test accuracy that a plan may cost; None searches no plan.
    gpus_per_run: the share of an accelerator that a run on one has.
    on_plan: told how many runs there will be, and whether that is certain.
    """
    # Data, splits and model are tried once here, so that what is wrong with them is said before workers start.
    prepare(specs[0], root)
    if references < 0:
        raise InputError(f"references: {references} is not allowed (0 or more)")
    if rehearse and not references:
        raise InputError("rehearse: there are no references to rehearse in; give their number (--references 16)")
    planned = named(specs, root)
    helping = Helping(references, rehearse)
    helpers = _references(planned, helping, root)
    # Rehearsals are many: those of cells that are eliminated are not computed.
    extra = {} if rehearse else {name: spec for found in helpers.values() for name, spec in found.items()}
    store = RunStore(out)
    workers = 1 if specs[0].model.in_process else min(cores() if jobs is None else jobs, len(planned) + len(extra))
    outcome = Outcome()

    # The stages share their workers, which start once and keep what they have loaded.
    with ProcessPool(store, jobs=workers, root=root) as pool:

        def go(runs: Iterable[Spec]) -> None:
            found = execute(
                runs, store, root=root, jobs=workers, ray=ray, gpus_per_run=gpus_per_run, on_event=on_event, pool=pool
            )
            if found.stopped:
                raise StorageError(f"audit: {found.stopped}; the same audit goes on once that is fixed")
            outcome.summaries.update(found.summaries)
            outcome.failures.update(found.failures)
            outcome.unsealed.update(found.unsealed)

        spread = spread and eliminate
        planner = (
            None
            if accuracy_cost is None
            else Planner(planned, store, outcome, go, accuracy_cost, root, helping, spread=spread)
        )
        opening = {} if planner is None else named(planner.opening(), root)
        more = 0 if planner is None else planner.expected()

        def announce(count: int, certain: bool) -> None:
            if on_plan is not None:
                on_plan(count + len(extra) + more, certain and not more)

        beside = {**extra, **{name: spec for name, spec in opening.items() if name not in planned}}
        if eliminate:
            chosen, left_out = in_stages(
                planned, beside, go, announce, outcome, spread=spread, last=None if planner is None else planner.first
            )
        else:
            chosen, left_out = planned, []
            announce(len(planned), True)
            go([*planned.values(), *beside.values()])
        rehearsals = {name: spec for cell in chosen for name, spec in helpers[cell].items()} if rehearse else {}
        if rehearsals:
            announce(len(chosen) + len(rehearsals), True)
            go(rehearsals.values())
        found = None if planner is None else planner.find(chosen.values())
    results = _collected(chosen, store, outcome, helpers)
    return Audit(
        tuple(results),
        tuple(outcome.failures.values()),
        command=command,
        title=title,
        left_out=tuple(left_out),
        references=references,
        plan=found,
        no_plan="" if planner is None else planner.refused(),
        plan_results=() if planner is None else planner.results(),
        spread=spread,
        unsealed=len(outcome.unsealed),
    )


def _references(planned: Mapping[str, Spec], helping: Helping, root: str | Path | None) -> dict[str, dict[str, Spec]]:
    """Of each planned run its reference federations by name; all of a seed have the same, unless they rehearse."""
    if helping.rehearse:
        return {name: named(helping.of(spec), root) for name, spec in planned.items()}
    of_seed = {spec.seed: spec for spec in planned.values()}
    shared = {seed: named(helping.of(spec), root) for seed, spec in of_seed.items()}
    return {name: shared[spec.seed] for name, spec in planned.items()}


def _collected(
    chosen: Mapping[str, Spec],
    store: RunStore,
    outcome: Outcome,
    helpers: Mapping[str, Mapping[str, Spec]],
) -> list[Result]:
    """The finished runs, with the scores of their references; what cannot be read becomes a failure."""
    results = []
    for name, spec in chosen.items():
        if name not in outcome.summaries:
            continue
        there = [helper for key, helper in helpers[name].items() if key in outcome.summaries]
        try:
            helped, targets = with_references(store, name, there) if there else ({}, store.targets(name))
            summary = {**outcome.summaries[name], **helped}
            results.append(Result(spec, summary, store.rounds(name), targets))
        except InputError as error:
            outcome.failures[name] = Failure(name, spec, str(error))
    if not results:
        reason = next((failure.reason for failure in outcome.failures.values()), "none was planned")
        raise RunError(f"audit: no run finished ({reason})")
    return results
