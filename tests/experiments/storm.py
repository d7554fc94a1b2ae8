"""`kill -9` of driver or workers at random moments of one sweep; afterwards it must equal an undisturbed one.

    python -m tests.experiments.storm --kills 10            # worker processes
    python -m tests.experiments.storm --kills 10 --ray local

Not a test of the suite, which has a few kills of its own: this takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scapegoat.experiments import RunStore
from tests.experiments.tiny import SETTINGS, assert_same_numbers


def command(store: RunStore, rounds: int, *more: str) -> list[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    sweep = ["sweep", "mask-selection", "--data", "hospital", "--rounds", str(rounds), *settings]
    return [sys.executable, "-m", "scapegoat", *sweep, "--out", str(store.directory), *more]


def workers(store: RunStore) -> list[int]:
    found = set()
    for path in store.runs.glob("*.part/progress.json"):
        try:
            pid = json.loads(path.read_text())["pid"]
            os.kill(pid, 0)
            found.add(pid)
        except (OSError, ValueError):
            continue
    return sorted(found)


def storm(store: RunStore, rounds: int, kills: int, ray: str | None, seed: int) -> list[str]:
    rng = random.Random(seed)
    more = ["--ray", ray] if ray else ["--jobs", "2"]
    log: list[str] = []
    while True:
        driver = subprocess.Popen(command(store, rounds, *more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while driver.poll() is None and len(log) < kills:
            time.sleep(rng.uniform(0.0, 4.0))
            running = workers(store)
            if not running:
                continue
            # The driver once in a while: everything starts again then.
            if rng.random() < 0.3:
                driver.kill()
                log.append("driver")
                break
            try:
                os.kill(rng.choice(running), signal.SIGKILL)
                log.append("worker")
            except ProcessLookupError:
                continue
        _, said = driver.communicate()
        print(f"{len(log)} of {kills} kills, {len(store.finished())} runs finished", flush=True)
        if driver.returncode == 0:
            return log
        # A run hit time and again before it could save a round is given up; the same command tries it again.
        given_up = driver.returncode == 1 and b"died over it without getting any further" in said
        assert given_up or driver.returncode == -signal.SIGKILL, said.decode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--ray")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm, stormy = RunStore(Path(folder) / "calm"), RunStore(Path(folder) / "stormy")
        log = storm(stormy, options.rounds, options.kills, options.ray, options.seed)
        subprocess.run(command(calm, options.rounds, "--jobs", "2"), check=True, capture_output=True)
        assert_same_numbers(calm, stormy)
        print(f"{len(log)} kills ({', '.join(log)}): {len(stormy.finished())} runs, all equal to the undisturbed sweep")
        if len(log) < options.kills:
            raise SystemExit("the sweep was over before all kills were done: give it more --rounds")


if __name__ == "__main__":
    main()
