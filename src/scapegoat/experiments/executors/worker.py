"""A worker process: reads runs from its input, one JSON line each, and answers with JSON lines.

    python -P -m scapegoat.experiments.executors.worker

The driver's end of the input is the worker's lifeline: when it closes, because the driver is done, was interrupted or
was killed, the worker saves the run that it is at after the present round and leaves. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from typing import Any


def main() -> None:
    """Serve the driver until it is gone."""
    # What a library prints must not get between the answers: stdout becomes stderr, the answers go through a copy.
    answers = os.dup(1)
    os.dup2(2, 1)
    # Ctrl-C is the driver's: it closes the input, and the run is saved between two rounds instead of inside one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    from scapegoat.extending.plugins import load_plugins

    load_plugins(setup["modules"])

    from scapegoat.experiments.executors.job import compute
    from scapegoat.experiments.run import run as _imported  # noqa: F401  the slow imports happen before the first run
    from scapegoat.experiments.store import RunStore

    store = RunStore(setup["store"])
    tasks: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    left = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            tasks.put(json.loads(line))
        left.set()
        tasks.put(None)

    def say(message: dict[str, Any]) -> None:
        try:
            _write_all(answers, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            left.set()

    def check() -> None:
        if left.is_set():
            raise KeyboardInterrupt

    threading.Thread(target=listen, daemon=True).start()
    say({"kind": "ready"})
    while (task := tasks.get()) is not None and not left.is_set():
        try:
            reply = compute(
                task["name"],
                task["spec"],
                store,
                root=setup["root"],
                checkpoint_seconds=setup["checkpoint_seconds"],
                on_round=lambda done, attack, test: say(
                    {"kind": "round", "round": done, "attack_accuracy": attack, "test_accuracy": test}
                ),
                check=check,
            )
        except KeyboardInterrupt:
            break
        say(reply)
    os._exit(0)  # the listening thread may still be blocked in a read


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
