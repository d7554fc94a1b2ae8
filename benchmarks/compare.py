"""`python -m benchmarks.compare OLD`: whether this source tree is slower than another, call by call in one run.

Each tree has a process of its own, and they take turns at the same work, so that a busy moment hits both. What counts
is the processor's time of one thread; a ratio above 1 means that the new tree is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SLOWER = 1.03
"""The most that counts as not slower."""

LONG = 0.1
"""Seconds that are long enough to be timed; what is shorter is done several times."""

SERVE = "--serve"

RULES = {"fedavg": (50, 300_000), "atm": (50, 300_000), "median": (20, 300_000), "trimmed_mean": (20, 300_000)}
RULES |= dict.fromkeys(("multi_krum", "geometric_median", "clipped_atm", "memory_atm", "reputation_atm"), (50, 300_000))
RULES |= {f"{rule}_3.2M": (50, 3_200_000) for rule in ("fedavg", "median", "trimmed_mean", "atm", "reputation_atm")}
ROUNDS = ("mlp_0.3M", "mlp_3.2M", "resnet20")
CRAFTS = ("mlp_0.3M", "mlp_3.2M", "resnet20")
LENGTHY = ("round:resnet20", "attack:resnet20")


def main(arguments: list[str] | None = None) -> int:
    """Compare two trees, or be the process of one of them; the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("old", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--new", type=Path, default=HERE.parents[1], help="default: this tree")
    parser.add_argument("--only", nargs="*", help="such as round:mlp_0.3M (default: all but resnet20)")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(arguments)
    for tree in (options.old, options.new):
        if not (tree / "src" / "scapegoat").is_dir() or not (tree / "benchmarks").is_dir():
            print(f"benchmarks.compare: {tree} is no checkout: src/scapegoat and benchmarks are expected in it")
            return 2
    known = [f"round:{name}" for name in ROUNDS]
    known += [f"attack:{name}" for name in CRAFTS] + [f"aggregation:{name}" for name in RULES]
    wanted = options.only or [name for name in known if name not in LENGTHY]
    if unknown := [name for name in wanted if name not in known]:
        print(f"benchmarks.compare: {unknown[0]!r} is not known (known: {', '.join(known)})")
        return 2
    figures = {name: compared(options.old, options.new, name, options.repeats) for name in wanted}
    print(json.dumps(figures, indent=2))
    return 0


def compared(old: Path, new: Path, name: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of both, and the median of the ratios of neighbouring calls."""
    trees = {"old": _Tree(old, name), "new": _Tree(new, name)}
    try:
        for tree in trees.values():  # the first calls find out what the later ones rely on
            [tree.seconds() for _ in range(3)]
        both = [(trees["old"].seconds(), trees["new"].seconds()) for _ in range(repeats)]
    finally:
        for tree in trees.values():
            tree.close()
    ratio = statistics.median(b / a for a, b in both)
    return {
        "old_milliseconds": 1e3 * statistics.median(a for a, _ in both),
        "new_milliseconds": 1e3 * statistics.median(b for _, b in both),
        "ratio": ratio,
        "limit": SLOWER,
        "holds": ratio <= SLOWER,
    }


class _Tree:
    """A process that has one tree's code, and does a piece of work whenever it is asked."""

    def __init__(self, tree: Path, name: str) -> None:
        path = os.pathsep.join([str(tree / "src"), str(tree)])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
        command = [sys.executable, str(HERE), SERVE, name]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(name: str) -> None:
    """In a tree's own process: seconds of one call per line that comes in."""
    import torch

    torch.set_num_threads(1)
    _as_in_a_run()
    kind, _, case = name.partition(":")
    work = {"round": _round, "attack": _attack, "aggregation": _aggregation}[kind](case)
    started = time.process_time()
    work()
    several = max(1, int(LONG / (time.process_time() - started)))
    for _ in sys.stdin:
        started = time.process_time()
        for _ in range(several):
            work()
        print((time.process_time() - started) / several, flush=True)


def _as_in_a_run() -> None:
    """Keep freed memory, if this tree's runs do."""
    try:
        from scapegoat.heap import keep_pages
    except ModuleNotFoundError:
        return
    keep_pages()


def _round(name: str) -> Callable[[], Any]:
    from benchmarks.round import CASES, simulation

    case = CASES[name]
    federation = simulation(case["model"], case["shape"], case["classes"])
    rounds = 10 if name == "mlp_0.3M" else 2 if name == "mlp_3.2M" else 1
    return lambda: [federation.run_round() for _ in range(rounds)]


def _attack(name: str) -> Callable[[], Any]:
    import torch

    from benchmarks.attack import BATCH, CASES, CLIENTS, PEERS, _benign, _samples
    from scapegoat import attacks, models
    from scapegoat.attacks import AttackerView
    from scapegoat.gradients import GradientOracle

    case = CASES[name]
    model = models.build(models.registry.parse(case["model"]), case["shape"], case["classes"], seed=0)
    vector, updates = model.initial(), torch.empty(CLIENTS, model.d)
    _benign(model, case.get("density")).updates(0, list(range(CLIENTS)), [vector] * CLIENTS, updates)
    hidden = _samples(model, 300, case.get("density"), 2)
    view = AttackerView(
        round=0,
        parameters=vector,
        gradients=GradientOracle(model, vector),
        targets=hidden,
        wrong_labels=(hidden.y + 1) % model.classes,
        mask=_samples(model, 300, case.get("density"), 3),
        peers=updates[:PEERS].clone(),
        honest=lambda: updates[PEERS:],
        senders=1,
        local="gradient",
        generator=torch.Generator().manual_seed(BATCH),
    )
    attack = attacks.get("fedpoisonmia")
    return lambda: attack.craft(view)


def _aggregation(name: str) -> Callable[[], Any]:
    import torch

    from scapegoat import aggregation

    updates = torch.randn(*RULES[name], generator=torch.Generator().manual_seed(0))
    rule = aggregation.get(name.removesuffix("_3.2M"))
    return lambda: rule(updates)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
