"""What reference federations add: every score of a client's seat with 0, 4, 16 and 64 of them.

    SCAPEGOAT_DATA=folder python -m results.reference_scores --data location30 --out runs

Plain averaging, watched and under FedPoisonMIA. The references are shared by both, and kept: stop it and start it
again as you like. With fewer references than were computed, a figure is the mean over disjoint groups of them, so that
no group was lucky; `auc_spread` is the standard deviation over the groups. `agreement` says how well the references fit
the attacked run: an audit leaves out those below 0.5.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scapegoat.experiments import RunStore, Spec
from scapegoat.experiments.executors import execute, named
from scapegoat.experiments.references import reference_margins, reference_specs
from scapegoat.experiments.spec import parse
from scapegoat.experiments.summary import stored_scores
from scapegoat.membership import metrics
from scapegoat.membership.assessment import referenced_scores
from scapegoat.membership.references import agreement
from scapegoat.membership.scoring import Bools, Floats

COUNTS = (4, 16, 64)
ATTACKS = ("passive", "fedpoisonmia")


@dataclass(frozen=True)
class Row:
    """One score of one attack with so many references: AUC and TPR at 1% FPR, and the AUC's interval over targets."""

    data: str
    attack: str
    seed: int
    score: str
    references: int
    groups: int
    auc: float
    auc_low: float
    auc_high: float
    auc_spread: float
    tpr_at_fpr_01: float
    agreement: float


def audited(data: str, attack: str, *, targets: int, rounds: int, seed: int) -> Spec:
    """The federation whose targets are scored."""
    return parse(
        {
            "seed": seed,
            "data": {"name": data},
            "federation": {"rounds": rounds},
            "attack": {"name": attack, "targets": targets},
            "evaluation": {"design": "coin", "every": rounds},
        }
    )


def measured(spec: Spec, store: RunStore, counts: Sequence[int]) -> Iterator[Row]:
    """Every score of one stored run, by the number of references."""
    references = reference_specs(spec, max(counts))
    targets = store.targets(spec.hash)
    member = targets["member"].to_numpy(zero_copy_only=False)
    last = targets["score_final"].to_numpy()[None]
    margins, included = reference_margins(store, references, targets["record"].to_numpy())
    for name, values in stored_scores(targets).items():
        yield _row(spec, name, 0, [values], member, 1.0)
    for count in counts:
        groups = [slice(first, first + count) for first in range(0, len(margins) - count + 1, count)]
        found = [referenced_scores(last, margins[group], included[group]) for group in groups]
        fit = float(np.mean([agreement(last, margins[group]) for group in groups]))
        for name in found[0]:
            yield _row(spec, name, count, [scores[name] for scores in found], member, fit)


def _row(spec: Spec, name: str, count: int, groups: Sequence[Floats], member: Bools, fit: float) -> Row:
    aucs = [metrics.auc_value(values, member) for values in groups]
    rates = [metrics.tpr_at_fpr(values, member, 0.01).value for values in groups]
    first = metrics.auc(groups[0], member)
    auc = float(np.mean(aucs))
    return Row(
        data=spec.data.name,
        attack=spec.attack.name,
        seed=spec.seed,
        score=name,
        references=count,
        groups=len(groups),
        auc=auc,
        auc_low=auc - (first.value - first.low),
        auc_high=auc + (first.high - first.value),
        auc_spread=float(np.std(aucs)),
        tpr_at_fpr_01=float(np.mean(rates)),
        agreement=fit,
    )


def table(rows: Sequence[Row]) -> str:
    """As Markdown: a line per score, AUC and TPR at 1% FPR per number of references."""
    counts = sorted({row.references for row in rows if row.references})
    heads = [f"AUC / TPR, {count} references" for count in counts]
    lines = [
        f"| data | attack | score | AUC / TPR at 1% FPR | {' | '.join(heads)} |",
        "| --- " * (4 + len(heads)) + "|",
    ]
    for key in dict.fromkeys((row.data, row.attack, row.score) for row in rows):
        found = {
            count: [row for row in rows if (row.data, row.attack, row.score) == key and row.references == count]
            for count in (0, *counts)
        }
        cells = [
            f"{np.mean([r.auc for r in at]):.3f} / {np.mean([r.tpr_at_fpr_01 for r in at]):.3f}" if at else ""
            for at in found.values()
        ]
        lines.append(f"| {' | '.join((*key[:2], f'`{key[2]}`', *cells))} |")
    return "\n".join(lines)


def comma_separated(rows: Sequence[Row]) -> str:
    """As CSV, figures to four digits."""
    lines = [",".join(Row.__dataclass_fields__)]
    lines += [
        ",".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in vars(row).values())
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute what is missing, print the table, and write the rows as CSV."""
    parser = argparse.ArgumentParser(description="Scores by the number of reference federations.")
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--csv", type=Path, help="the rows")
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--references", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--root", type=Path, help="folder with data sets")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    store = RunStore(options.out)
    rows: list[Row] = []
    for data in options.data:
        for seed in range(options.seeds):
            specs = [
                audited(data, attack, targets=options.targets, rounds=options.rounds, seed=seed) for attack in ATTACKS
            ]
            runs = named([*specs, *reference_specs(specs[0], max(options.references))], options.root)
            done = execute(runs.values(), store, root=options.root, jobs=options.jobs)
            for failure in done.failures.values():
                raise SystemExit(f"{failure.name}: {failure.reason}")
            for spec in specs:
                rows += measured(spec, store, options.references)
    print(table(rows))
    if options.csv is not None:
        options.csv.write_text(comma_separated(rows))


if __name__ == "__main__":
    main()
