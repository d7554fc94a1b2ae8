"""The tables of docs/protections.md: what attacks find out under the plans that audits recommend.

python -m results.plan_tables        # prints them from results/evidence/plans-with-references.csv
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

EVIDENCE = Path(__file__).parent / "evidence" / "plans-with-references.csv"
PARTITIONS = {"iid": "equal clients", "label_bias 0.5": "label bias 0.5", "label_bias 0.9": "label bias 0.9"}
ATTACKS = {
    "passive": "watching",
    "gradient_ascent": "gradient ascent",
    "agrevader": "AGREvader",
    "adaptive": "adaptive",
    "fedpoisonmia": "FedPoisonMIA",
    "blend": "blend",
    "sleeper": "sleeper",
    "alternating": "alternating",
    "few_targets": "few targets",
    "shadow": "shadow",
    "tangent": "tangent",
    "colluders": "two colluders",
}

Line = Mapping[str, str]


def read(path: Path = EVIDENCE) -> list[Line]:
    """One line per run."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def named(line: Line) -> str:
    """The attack of a run; a copy is of the plan's own rule."""
    return line["attack"].split(" of ")[0]


def cell(lines: Sequence[Line]) -> str:
    """Mean AUC with references and the largest of the seeds, in brackets the mean without; test accuracy."""
    helped, alone, test = ([float(line[key]) for line in lines] for key in ("auc", "auc_alone", "test_accuracy"))
    return f"{_mean(helped):.3f}, {max(helped):.3f} ({_mean(alone):.3f}); {_mean(test):.3f}"


def table(lines: Iterable[Line], data: str) -> list[str]:
    """The lines of a table in Markdown: attacks by partitions, each a mean over seeds."""
    cells: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line["data"] == data:
            cells[named(line), line["partition"]].append(line)
    columns = [partition for partition in PARTITIONS if any(p == partition for _, p in cells)]
    found = [_row(["attack", *(PARTITIONS[p] for p in columns)]), _row(["---"] * (1 + len(columns)))]
    for attack, label in ATTACKS.items():
        shown = [cell(cells[attack, p]) if (attack, p) in cells else "" for p in columns]
        if any(shown):
            found.append(_row([label, *shown]))
    return found


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    rows = read()
    for name in dict.fromkeys(row["data"] for row in rows):
        print(name, *table(rows, name), "", sep="\n")
