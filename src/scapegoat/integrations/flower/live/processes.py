"""A Flower federation of real processes on the loopback interface: SuperLink, SuperNodes, and nothing left behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scapegoat.errors import RunError
from scapegoat.integrations.flower.live.forkserver import write_shims
from scapegoat.integrations.flower.live.quiet import quiet
from scapegoat.integrations.flower.live.sealed import ENVIRONMENT as SEAL
from scapegoat.integrations.flower.live.sealed import Seal, refuses_strangers
from scapegoat.integrations.shared.child_processes import LOOPBACK, MARK, free_port, marked
from scapegoat.integrations.shared.environment import minimal

CONNECTION = "scapegoat"
_RUN_ID = re.compile(r"started run (\d+)")
_NODE_ID = re.compile(r"SuperNode ID: (\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_START_SECONDS = 60.0
_ATTEMPTS = 3


@dataclass
class Process:
    """One child: its name, its log, and the node id once it is known."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def tail(self, lines: int = 40) -> str:
        """The end of the log, without colours."""
        text = _COLOUR.sub("", self.log.read_text(encoding="utf-8", errors="replace"))
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def ending(self) -> str:
        """The last thing that it said, and where all of it is."""
        return f"its last words: {self.tail(1) or 'none'} (all of them: {self.log})"

    @property
    def running(self) -> bool:
        """The process has not ended."""
        return self.popen.poll() is None


@dataclass
class LiveFederation:
    """SuperLink and SuperNodes as child processes; a context manager that leaves no process behind.

    `nodes` are the node configurations, one per SuperNode; `node_ids` gives Flower's ids in the same order. With
    `superlink` the nodes join a SuperLink that runs already, and none is started; `insecure` means without TLS, and
    `root_certificates` verify the SuperLink's where the system's do not. `forkserver` forks ClientApps from a
    process that has torch imported. What is started here answers its own processes alone (`sealed`), and children find
    in their environment what `minimal` lets through and what `environment` adds.
    """

    directory: Path
    nodes: Sequence[Mapping[str, str | int | float]]
    superlink: str | None = None
    root_certificates: Path | None = None
    insecure: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    forkserver: bool = sys.platform == "linux"
    sealed: bool = True
    children: list[Process] = field(default_factory=list)
    node_ids: list[int] = field(default_factory=list)
    _mark: str = field(default_factory=lambda: secrets.token_hex(16))
    _private: Path | None = None
    _seal: Seal | None = None
    _serving: Process | None = None

    def __enter__(self) -> LiveFederation:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        assert self.superlink is not None
        return self.superlink

    def environ(self) -> dict[str, str]:
        """What children find: no tokens, no telemetry, no update check, no installation, no proxy."""
        here = [str(self._private)] if self._private is not None else []
        here.append(str(Path(sys.executable).parent))
        return {
            **minimal(),
            **quiet(self.directory / "flwr"),
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([*here, os.environ.get("PATH", "")]),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "NO_PROXY": f"{LOOPBACK},localhost",
            "no_proxy": f"{LOOPBACK},localhost",
            "PYTHONUNBUFFERED": "1",
            **self.environment,
            **({SEAL: str(self._seal.key_file)} if self._seal is not None else {}),
            MARK: self._mark,
        }

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        # The path of a socket may be no longer than a hundred characters: it cannot be in `directory`.
        self._private = Path(tempfile.mkdtemp(prefix="scapegoat-"))
        if self.sealed:
            self._seal = Seal(self._private, LOOPBACK)
        if self.forkserver:
            self._start_forkserver(self._private)
        if self.superlink is None:
            self.superlink = self._start_superlink()
        starting = [self._start_node(number, config) for number, config in enumerate(self.nodes)]
        self.node_ids = [self._node_id(number, process) for number, process in enumerate(starting)]
        home = self.directory / "flwr"
        home.mkdir(exist_ok=True)
        security = "insecure = true" if self.insecure else ""
        if self.root_certificates is not None:
            security = f"root-certificates = {json.dumps(str(self.root_certificates.absolute()))}"
        connection = f'[superlink.{CONNECTION}]\naddress = "{self.superlink}"\n{security}\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "{CONNECTION}"\n\n{connection}', encoding="utf-8")

    def _start_forkserver(self, folder: Path) -> None:
        """A server that forks ClientApps; without it every message waits for the import of torch."""
        path = folder / "forkserver.sock"
        process = self.spawn(
            "forkserver", [sys.executable, "-m", "scapegoat.integrations.flower.live.forkserver", str(path)]
        )
        if not self._wait(process, path.exists):
            raise RunError(f"the server for ClientApp processes did not start; {process.ending()}")
        write_shims(folder, path)

    def _start_superlink(self) -> str:
        if self._seal is not None:
            self.insecure, self.root_certificates = False, self._seal.authority
        for _ in range(_ATTEMPTS):
            port = free_port()
            transport = self._seal.server() if self._seal is not None else ["--insecure"]
            arguments = [*transport, "--host", LOOPBACK, "--port", str(port)]
            process = self.spawn(
                "superlink", ["flower-superlink", *arguments, "--disable-runtime-dependency-installation"]
            )
            if self._wait(process, lambda port=port: _listening(port)):  # type: ignore[misc]
                if self._seal is not None and not refuses_strangers(LOOPBACK, port, self._seal.authority):
                    raise RunError(f"the SuperLink answers processes that are not of this audit; {process.ending()}")
                self._serving = process
                return f"{LOOPBACK}:{port}"
            if "address already in use" not in process.tail().lower():
                break
        raise RunError(f"the SuperLink did not start; {process.ending()}")

    def _start_node(self, number: int, config: Mapping[str, str | int | float]) -> Process:
        written = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        transport = ["--insecure"] if self.insecure else []
        if self.root_certificates is not None:
            transport = ["--root-certificates", str(self.root_certificates.absolute())]
        if self._seal is not None:
            transport += self._seal.server()  # the node's own server, which its ClientApps ask
        where = ["--superlink", self.address, "--host", LOOPBACK, "--port", str(free_port())]
        return self.spawn(f"node-{number}", ["flower-supernode", *transport, *where, "--node-config", written])

    def _node_id(self, number: int, process: Process) -> int:
        for _ in range(_ATTEMPTS):
            if self._wait(process, lambda process=process: _logged_id(process) is not None):  # type: ignore[misc]
                found = _logged_id(process)
                assert found is not None
                return found
            if "failed to start" not in process.tail() and "address already in use" not in process.tail().lower():
                break
            process = self._start_node(number, self.nodes[number])
        raise RunError(f"SuperNode {number} did not connect to {self.address}; {process.ending()}")

    def _wait(self, process: Process, ready: Callable[[], bool]) -> bool:
        """True once ready; False when the process ended or took too long."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.running:
            if ready():
                return True
            time.sleep(0.1)
        return False

    def spawn(self, name: str, command: Sequence[str]) -> Process:
        """Start a child in a session of its own, with its output in a log file."""
        executable = shutil.which(command[0], path=self.environ()["PATH"])
        if executable is None:
            raise RunError(f"{command[0]} was not found; is Flower installed beside this Python?")
        log = self.directory / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                [executable, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environ(),
                cwd=self.directory,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        process = Process(name, popen, log)
        self.children.append(process)
        return process

    def run_app(self, app: Path, seconds: float, watch: Callable[[], None] | None = None) -> Path:
        """Run a Flower app to its end and return the ServerApp's log. `watch` is called twice a second meanwhile."""
        process = self.spawn("run", ["flwr", "run", str(app), CONNECTION, "--stream"])
        deadline = time.monotonic() + seconds
        while process.running:
            if watch is not None:
                watch()
            if self._serving is not None and not self._serving.running:
                raise RunError(f"the SuperLink ended during the run; {self._serving.ending()}")
            if time.monotonic() > deadline:
                raise RunError(f"the run did not end within {seconds:.0f} s; {process.ending()}")
            time.sleep(0.5)
        status = self._status(process.log)
        if process.popen.returncode != 0 or status != "finished:completed":
            raise RunError(f"the run ended as {status or 'failed'}; {process.ending()}")
        return process.log

    def _status(self, log: Path) -> str | None:
        """How the run of this log stands, as `flwr ls` says."""
        command = [shutil.which("flwr", path=self.environ()["PATH"]) or "flwr", "ls", CONNECTION, "--format", "json"]
        try:
            listed = subprocess.run(command, env=self.environ(), capture_output=True, timeout=60, check=False)
            runs: list[dict[str, Any]] = json.loads(listed.stdout)["runs"]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            return None
        started = _RUN_ID.search(log.read_text(encoding="utf-8", errors="replace"))
        mine = [run for run in runs if started is not None and run["run-id"] == started.group(1)]
        return str(mine[0]["status"]) if mine else None

    def stop(self) -> None:
        """End every child: asked first, then made to, with whatever they have started."""
        for process in reversed(self.children):
            _signal_group(process.popen, signal.SIGTERM)
        deadline = time.monotonic() + 5.0
        for process in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(timeout=max(deadline - time.monotonic(), 0.1))
        for process in self.children:
            _signal_group(process.popen, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(timeout=5.0)
        self.children.clear()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
        # Flower starts helpers in sessions of their own; they carry our mark in their environment.
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def leftovers(self) -> list[int]:
        """Processes of this federation that are still there."""
        return [process.pid for process in marked(self._mark)]


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _logged_id(process: Process) -> int | None:
    found = _NODE_ID.search(process.log.read_text(encoding="utf-8", errors="replace"))
    return int(found.group(1)) if found else None


def _signal_group(popen: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, number)


def _end_with_parent() -> None:
    """In the child: get SIGTERM when the parent dies, even of SIGKILL (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
