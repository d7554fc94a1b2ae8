"""What plans leak to scores that compare with reference federations, run by run.

    scapegoat sweep results/plans/location30.yaml --seeds 3 --out runs
    SCAPEGOAT_DATA=folder python -m results.plan_references runs --csv results/evidence/plans-with-references.csv

References are watched federations under plain averaging, with the partition, rounds and protections of the run, as in
`scapegoat audit --references 8`; runs that share those share them. They are kept in the same folder: stop it and start
it again as you like. `--sweep FILE` takes the runs of a sweep alone, so that the folder may be an audit's. Where
references do not fit a run (`agreement` below 0.5), the scores of that run alone count.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from results.settings import training
from scapegoat.auditing.helping import Helping
from scapegoat.experiments import RunStore, Spec
from scapegoat.experiments.executors import execute, named
from scapegoat.experiments.references import FITTING, with_references
from scapegoat.experiments.spec import parse
from scapegoat.sweeping.grid import lay_out
from scapegoat.sweeps import find

REFERENCES = 8


class Row(NamedTuple):
    """One run: the strongest score of the run alone, and the strongest with references, both by their AUC."""

    data: str
    partition: str
    rule: str
    protect: str
    rounds: int
    attack: str
    malicious: int
    targets: int
    seed: int
    test_accuracy: float
    alone: str
    auc_alone: float
    strongest: str
    auc: float
    auc_low: float
    auc_high: float
    references: int
    agreement: float


def audited(store: RunStore) -> Iterator[Spec]:
    """The finished runs that references can be made for, without the references themselves."""
    for name in store.finished():
        spec = parse(store.spec(name))
        if spec.evaluation.design == "coin" and not spec.evaluation.reference:
            yield spec


def described(spec: Spec) -> tuple[str, str, str]:
    """Partition, protections (with the server's steps, if not the usual ones) and attack, in a few words."""
    partition = spec.federation.partition.canonical()
    copied = getattr(spec.attack, "target_rule", None)
    where = partition["name"] if "beta" not in partition else f"{partition['name']} {partition['beta']:g}"
    of = "" if copied is None or spec.attack.name != "shadow" else f" of {copied['name']}"
    return where, ", ".join(training(spec)), f"{spec.attack.name}{of}"


def row(spec: Spec, store: RunStore, helping: Helping) -> Row:
    """One line; the references must have been computed."""
    summary = store.summary(spec.hash)
    membership = with_references(store, spec.hash, helping.of(spec))[0]["membership"]
    alone, helped = summary["membership"]["worst_score"], membership["worst_score"]
    where, protections, attack = described(spec)
    low, high = helped["auc_ci"]
    return Row(
        data=spec.data.name,
        partition=where,
        rule=spec.defense.name,
        protect=protections,
        rounds=spec.federation.rounds,
        attack=attack,
        malicious=spec.federation.malicious,
        targets=spec.attack.targets,
        seed=spec.seed,
        test_accuracy=round(summary["test_accuracy"], 4),
        alone=alone["name"],
        auc_alone=round(alone["auc"], 4),
        strongest=helped["name"],
        auc=round(helped["auc"], 4),
        auc_low=round(low, 4),
        auc_high=round(high, 4),
        references=helping.count if membership["references_agreement"] >= FITTING else 0,
        agreement=round(membership["references_agreement"], 3),
    )


def computed(
    specs: Iterable[Spec], store: RunStore, helping: Helping, *, root: Path | None, jobs: int
) -> Iterator[Row]:
    """The rows of these runs; what is missing is computed first."""
    for spec in specs:
        wanted = named([spec, *helping.of(spec)], root)
        for failure in execute(wanted.values(), store, root=root, jobs=jobs).failures.values():
            raise SystemExit(f"{failure.name}: {failure.reason}")
        yield row(spec, store, helping)


def write(rows: Sequence[Row], path: Path) -> None:
    """One line per run."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Row._fields)
        lines.writerows(rows)


def main() -> None:
    """Compute the references that are missing, and write the rows as CSV."""
    parser = argparse.ArgumentParser(description="Runs of plans, with the scores that references add.")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--sweep", action="append", default=[], help="only the runs of this sweep (repeat for several)")
    parser.add_argument("--seeds", type=int, default=3, help="of the sweeps")
    parser.add_argument("--references", type=int, default=REFERENCES)
    parser.add_argument("--rehearse", action="store_true", help="references under each run's own attack and rule")
    parser.add_argument("--csv", type=Path, required=True, help="the rows")
    parser.add_argument("--root", type=Path, help="folder with data sets")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    helping = Helping(options.references, options.rehearse)
    rows: list[Row] = []
    chosen = {
        name for sweep in options.sweep for name in lay_out(find(sweep), seeds=options.seeds, root=options.root).runs()
    }
    for folder in options.runs:
        store = RunStore(folder)
        wanted = (spec for spec in audited(store) if not options.sweep or spec.hash in chosen)
        specs = sorted(wanted, key=lambda spec: (*described(spec), spec.hash))
        rows += computed(specs, store, helping, root=options.root, jobs=options.jobs)
    write(sorted(rows), options.csv)


if __name__ == "__main__":
    main()
