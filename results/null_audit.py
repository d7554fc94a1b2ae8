"""What every score says where there is nothing to say: models that were trained on none of the targets.

    python -m results.null_audit --repetitions 100

Each repetition is a federation whose clients hold no target at all, with reference federations that do, scored by every
score of both seats; coins that nothing depends on then say who is called a member. An interval of an AUC that leaves
out 1/2 is a false alarm, of which a 95% interval allows five in a hundred.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scapegoat.experiments.references import reference_specs
from scapegoat.experiments.run import run
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.staging import staged
from scapegoat.federation.cast import Cast
from scapegoat.federation.simulation import Simulation
from scapegoat.membership import metrics
from scapegoat.membership.assessment import observed_scores, referenced_scores
from scapegoat.membership.epsilon import one_run
from scapegoat.membership.scoring import Bools, Floats
from scapegoat.randomness import numpy_generator

SMALL = {
    "data": {"name": "hospital"},
    "model": {"name": "mlp", "hidden": [64]},
    "federation": {"rounds": 40},
    "attack": {"name": "passive", "targets": 300},
    "evaluation": {"design": "coin", "server_view": True, "every": 40},
}
REFERENCES = 4


def without_targets(cast: Cast) -> Cast:
    """The same federation, its clients holding none of the targets."""
    targets = cast.splits.targets.numpy()
    shards = tuple(shard[~np.isin(shard.numpy(), targets)] for shard in cast.splits.shards)
    return replace(cast, splits=replace(cast.splits, shards=shards), benign=replace(cast.benign, shards=shards))


def scores_of(spec: Spec, references: int = REFERENCES) -> dict[str, Floats]:
    """Every score of a model that has seen none of the targets."""
    simulation = Simulation(without_targets(staged(spec)), spec.evaluation.every, server_view=True)
    while not simulation.done:
        simulation.run_round()
    cast, view = simulation.cast, simulation.server_view
    others = [run(reference) for reference in reference_specs(spec, references)]
    order = {record: row for row, record in enumerate(cast.truth.record.tolist())}

    def aligned(column: Callable[..., np.ndarray]) -> np.ndarray:
        found = []
        for other in others:
            place = [order[record] for record in other.targets["record"].to_pylist()]
            values = column(other)
            row = np.empty(len(values), dtype=values.dtype)
            row[place] = values
            found.append(row)
        return np.stack(found)

    margins = aligned(lambda other: other.targets["score_final"].to_numpy().astype(np.float64))
    included = aligned(lambda other: other.targets["member"].to_numpy(zero_copy_only=False))
    found = observed_scores(simulation.margins) | referenced_scores(simulation.margins[-1:], margins, included)
    return found | (view.scores(cast.owners) if view is not None else {})


def false_alarms(repetitions: int, first: int = 0) -> tuple[dict[str, int], int]:
    """By score, the repetitions whose interval leaves out 1/2; and those in which epsilon above 0 is claimed."""
    outside: dict[str, int] = {}
    refuted = 0
    for repetition in range(first, first + repetitions):
        scores = scores_of(parse({**SMALL, "seed": repetition}))
        targets = len(next(iter(scores.values())))
        member: Bools = numpy_generator(repetition, "null coins").random(targets) < 0.5
        for name, values in scores.items():
            found = metrics.auc(values, member)
            outside[name] = outside.get(name, 0) + (not found.low <= 0.5 <= found.high)
        share = 1 - 0.05 / len(scores)
        refuted += max(one_run(values, member, confidence=share).epsilon for values in scores.values()) > 0
    return outside, refuted


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description="False alarms of every score where nothing leaks.")
    parser.add_argument("--repetitions", type=int, default=100)
    options = parser.parse_args()
    outside, refuted = false_alarms(options.repetitions)
    print("| score | AUC interval leaves out 1/2 |\n| --- | --- |")
    for name, count in outside.items():
        print(f"| `{name}` | {count} of {options.repetitions} |")
    print(f"| epsilon above 0, all scores together | {refuted} of {options.repetitions} |")


if __name__ == "__main__":
    main()
