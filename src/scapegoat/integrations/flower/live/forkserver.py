"""ClientApp processes that start in no time: forked from one that has torch and Flower imported already.

Flower starts a process for every message to a node, and importing torch takes longer than most rounds. Commands of the
same names (`flwr-clientapp`, `flwr-serverapp`, and `flower-superexec` that starts them), first on the path of Flower's
processes, ask a server here to fork instead. Each is still a process of its own, with the arguments, environment,
folder and output that Flower gave it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from scapegoat.integrations.flower.live.sealed import seal

COMMANDS = ("flwr-clientapp", "flwr-serverapp", "flower-superexec")
PRELOADED = (
    "torch",
    "numpy",
    "flwr.clientapp",
    "scapegoat.integrations.flower.live.hostile",
    "scapegoat.integrations.flower.live.spec_app",
)

_SHIM = """#!{python} -IS
import json, os, socket, sys
try:
    server = socket.socket(socket.AF_UNIX)
    server.connect({path!r})
except OSError:
    os.execv({command!r}, [{command!r}, *sys.argv[1:]])
socket.send_fds(server, [b"?"], [1, 2])
server.sendall(json.dumps([{name!r}, sys.argv[1:], dict(os.environ), os.getcwd()]).encode())
server.shutdown(socket.SHUT_WR)
answer = server.recv(1)
sys.exit(answer[0] if answer else 1)
"""


def write_shims(directory: Path, path: Path) -> None:
    """Put commands into `directory` that ask the server at the socket `path`."""
    for name in COMMANDS:
        shim = directory / name
        # What is there already does the same without the server, and is what to fall back on.
        command = str(Path(sys.executable).with_name(name))
        if shim.exists():
            command = str(shim.rename(directory / f"cold-{name}"))
        shim.write_text(
            _SHIM.format(python=sys.executable, path=str(path), command=command, name=name), encoding="utf-8"
        )
        shim.chmod(0o755)


def serve(path: Path) -> None:
    """Fork a process for every request on the socket, until killed."""
    for module in PRELOADED:
        importlib.import_module(module)
    scripts = importlib.metadata.entry_points(group="console_scripts")
    mains = {name: scripts[name].load() for name in COMMANDS}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # finished children leave nothing behind
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _task(connection, mains)
            connection.close()


def _task(connection: socket.socket, mains: dict[str, Any]) -> None:
    """In the child: become the process that Flower wanted, and never return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
        request = b""
        while part := connection.recv(65536):
            request += part
        name, arguments, environment, folder = json.loads(request)
        for target, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = [name, *arguments]
        seal()
        _reseed()
        mains[name]()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.sendall(bytes([code & 255]))
        os._exit(code)


def _reseed() -> None:
    """Forked processes must not draw the same numbers."""
    import random

    import numpy as np
    import torch

    random.seed()
    np.random.seed()  # noqa: NPY002
    torch.seed()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
