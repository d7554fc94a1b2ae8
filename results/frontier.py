"""What protections are worth: leakage against test accuracy, round by round, beside plain early stopping.

    scapegoat sweep results/frontier.yaml --data location30 --data hospital --out runs
    scapegoat sweep results/frontier-rules.yaml --data location30 --data hospital --out runs
    scapegoat sweep results/frontier-steps.yaml --data location30 --data hospital --out runs
    python -m results.frontier runs        # writes results/frontier.csv and the picture in docs/images
    python -m results.frontier             # draws the picture again from results/frontier.csv

150 rounds, one seed; `reputation_atm` alone is the first sweep again (`results/run.sh` has its line). Every tenth
round is a point: the AUC of that round's margins and the test accuracy, means over the seeds if there are more. A run
without protections is therefore early stopping, and a protection earns its place where its curve is left of that one.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from results.settings import training
from scapegoat.experiments import RunStore, Spec, parse

HERE = Path(__file__).parent
TABLE = HERE / "frontier.csv"
PICTURE = HERE.parent / "docs" / "images" / "frontier.svg"
EVERY = 10
TITLES = {"location30": "Location30", "hospital": "hospital"}
PLAIN = "fedavg"


class Point(NamedTuple):
    """A setting after a round, as the mean of so many seeds."""

    data: str
    attack: str
    plan: str
    round: int
    auc: float
    test_accuracy: float
    seeds: int


def label(spec: Spec) -> str:
    """A rule, the server's steps if not the usual ones, and what protects training, in a few words."""
    return ", ".join([spec.defense.name, *training(spec)])


def collect(folders: Iterable[str]) -> Iterator[Point]:
    """The points of the runs in these folders, IID ones alone."""
    found: dict[tuple[str, str, str, int], list[tuple[float, float]]] = defaultdict(list)
    for folder in folders:
        store = RunStore(folder)
        for name in store.finished():
            run = store.inspect(name)
            spec = None if run.spec is None else parse(run.spec)
            if spec is None or spec.federation.partition.name != "iid":
                continue
            columns = store.rounds(name).select(["round", "attack_auc", "test_accuracy"]).to_pylist()
            for row in columns:
                figures = row["attack_auc"], row["test_accuracy"]
                if (row["round"] + 1) % EVERY == 0 and None not in figures:
                    found[spec.data.name, spec.attack.name, label(spec), row["round"] + 1].append(figures)
    for (data, attack, plan, round_), told in sorted(found.items()):
        auc, test = (sum(values) / len(values) for values in zip(*told, strict=True))
        yield Point(data, attack, plan, round_, round(auc, 4), round(test, 4), len(told))


def write(points: Iterable[Point], path: Path = TABLE) -> None:
    """One line per point."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Point._fields)
        lines.writerows(points)


def read(path: Path = TABLE) -> list[Point]:
    """The points of a file."""
    with path.open(newline="") as file:
        return [
            Point(
                r["data"],
                r["attack"],
                r["plan"],
                int(r["round"]),
                float(r["auc"]),
                float(r["test_accuracy"]),
                int(r["seeds"]),
            )
            for r in csv.DictReader(file)
        ]


def curves(points: Iterable[Point]) -> Mapping[tuple[str, str], Mapping[str, list[Point]]]:
    """By data set and attack: every setting's points, round by round."""
    found: dict[tuple[str, str], dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        found[point.data, point.attack][point.plan].append(point)
    return found


def at_accuracy(curve: list[Point], accuracy: float) -> float | None:
    """The least AUC with which a setting, stopped at its best round, reaches this test accuracy."""
    return min((p.auc for p in curve if p.test_accuracy >= accuracy), default=None)


def draw(points: Iterable[Point], path: Path = PICTURE) -> None:
    """One panel per data set and attack; early stopping is the black curve, the last round of each setting a dot."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    panels = curves(points)
    attacks = sorted({attack for _, attack in panels}, key=lambda a: a != "passive")
    data = sorted({name for name, _ in panels}, reverse=True)
    pyplot.rcParams.update({"svg.hashsalt": "frontier", "font.size": 8, "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(
        len(attacks), len(data), figsize=(5 * len(data), 3.6 * len(attacks) + 1.2), squeeze=False
    )
    colours = pyplot.get_cmap("tab20")
    plans = sorted({plan for panel in panels.values() for plan in panel if plan != PLAIN})
    for row, attack in zip(axes, attacks, strict=True):
        for axis, name in zip(row, data, strict=True):
            panel = panels.get((name, attack), {})
            for plan in [*plans, PLAIN]:
                curve = [p for p in panel.get(plan, []) if p.test_accuracy > 0.5]
                if not curve:
                    continue
                early = plan == PLAIN
                colour = "black" if early else colours(plans.index(plan) % 20)
                text = "fedavg: plain early stopping" if early else plan
                xy = [p.auc for p in curve], [p.test_accuracy for p in curve]
                axis.plot(*xy, color=colour, linewidth=2.2 if early else 1.0, label=text)
                axis.plot(xy[0][-1], xy[1][-1], "o", color=colour, markersize=4)
            axis.set_title(f"{TITLES.get(name, name)}, {'watching' if attack == 'passive' else attack}")
            axis.set_xlabel("AUC of the round's model (leakage)")
            axis.set_ylabel("test accuracy")
            axis.grid(alpha=0.3)
    handles = {
        text: handle for axis in axes.flat for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=3, frameon=False)
    figure.tight_layout(rect=(0, 1.2 / (3.6 * len(attacks) + 1.2), 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(folders: list[str]) -> None:
    """Collect where folders are given, then draw, and say what each setting leaks at the accuracy of full training."""
    if folders:
        write(collect(folders))
    points = read()
    draw(points)
    for (data, attack), panel in curves(points).items():
        if PLAIN not in panel:
            continue
        last = panel[PLAIN][-1].test_accuracy
        for accuracy in (last, last - 0.03):
            told = {plan: at_accuracy(curve, accuracy) for plan, curve in panel.items()}
            order = sorted(told, key=lambda plan: (told[plan] is None, told[plan] or 0))
            shown = "; ".join(f"{plan} {told[plan]:.3f}" if told[plan] is not None else f"{plan} -" for plan in order)
            print(f"{data}, {attack}, test accuracy {accuracy:.3f}: {shown}")


if __name__ == "__main__":
    main(sys.argv[1:])
