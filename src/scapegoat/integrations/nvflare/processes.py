"""FLARE's processes on this machine: the simulator, or a server and clients as POC provisions them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from scapegoat.errors import RunError
from scapegoat.integrations.shared.child_processes import MARK, free_port, marked
from scapegoat.integrations.shared.environment import minimal
from scapegoat.integrations.shared.faults import plain

PROJECT = "scapegoat"
ADMIN = "admin@nvidia.com"
_START_SECONDS = 120.0
# As a traceback ends.
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?:: .*)?$", re.MULTILINE)


def _environment(directory: Path, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """What the processes find: where things are, their own home, and the job's folder among the modules."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    base = minimal()
    path = [str(folder), *filter(None, [base.get("PYTHONPATH")])]
    return {
        **base,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), base.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([*path, *(p for p in sys.path if p and p not in path)]),
        "HOME": str(home),
        MARK: str(directory),
        **more,
    }


@contextlib.contextmanager
def _cleared(directory: Path) -> Iterator[None]:
    """Whatever was started for this folder is gone at the end, grandchildren too: they carry its mark."""
    try:
        yield
    finally:
        for attempt in range(20):
            left = marked(str(directory))
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGTERM if attempt == 0 else signal.SIGKILL)
            if not left:
                break
            time.sleep(0.5 if attempt == 0 else 0.1)


def allow_scapegoat(local: Path) -> None:
    """Add our classes to those that a site allows in jobs without code of their own."""
    from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

    path = next((p for p in (local / "resources.json", local / "resources.json.default") if p.is_file()), None)
    resources: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path else {"format_version": 2}
    allowed = resources.get("class_allow_list", list(DEFAULT_CLASS_ALLOW_LIST))
    resources["class_allow_list"] = [*allowed, "scapegoat.integrations.nvflare."]
    local.mkdir(parents=True, exist_ok=True)
    (path or local / "resources.json.default").write_text(json.dumps(resources, indent=2), encoding="utf-8")


def run_simulator(
    job: Path,
    directory: Path,
    clients: int,
    *,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str],
    tell: Callable[[], None] | None = None,
) -> None:
    """Run a job in FLARE's simulator, a process per client."""
    workspace = directory / "workspace"
    allow_scapegoat(workspace / "local")
    command = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(job), "-w", str(workspace)]
    command += ["-n", str(clients), "-t", str(clients)]
    log = directory / "simulator.log"
    with _cleared(directory), log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=_environment(directory, folder, environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )
        _wait(lambda: child.poll() is not None, timeout, tell, f"the simulator; its log is {log}")
        if child.returncode != 0:
            raise RunError(f"FLARE's simulator ended with {child.returncode}{raised(log)}; its log is {log}")


def raised(*logs: Path) -> str:
    """The last exception that FLARE's logs tell of, for a message: what stopped a job is seldom FLARE itself."""
    for log in logs:
        found = _EXCEPTION.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
        if found:
            return f" ({plain(found[-1], 300)})"
    return ""


def _wait(done: Callable[[], bool], seconds: float, tell: Callable[[], None] | None, what: str) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise RunError(f"{seconds:g} s were not enough for {what}")
        if tell is not None:
            tell()
        time.sleep(0.5)


class Poc:
    """A server and clients of a provisioned project on loopback, as child processes; none is left behind."""

    def __init__(self, directory: Path, clients: int, folder: Path, environment: Mapping[str, str]) -> None:
        self.directory, self.clients = directory, clients
        self.sites = [f"site-{i + 1}" for i in range(clients)]
        self.port = free_port()
        self._environment = _environment(directory, folder, environment)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._cleared = contextlib.ExitStack()
        self.kits = self._provision()

    def __enter__(self) -> Poc:
        self._cleared.enter_context(_cleared(self.directory))
        return self

    def __exit__(self, *error: object) -> None:
        self._cleared.close()

    def _provision(self) -> Path:
        """Startup kits with certificates of their own, by FLARE's provisioning."""
        participants: list[dict[str, Any]] = [
            {
                "name": "server",
                "type": "server",
                "org": "nvidia",
                "fed_learn_port": self.port,
                "default_host": "localhost",
            },
            {"name": ADMIN, "type": "admin", "org": "nvidia", "role": "project_admin"},
            *({"name": site, "type": "client", "org": "nvidia"} for site in self.sites),
        ]
        template = ["master_template.yml", "aws_template.yml", "azure_template.yml"]
        builders: list[dict[str, Any]] = [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": {"template_file": template}},
            {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ]
        project = {"api_version": 3, "name": PROJECT, "participants": participants, "builders": builders}
        path = self.directory / "project.yml"
        path.write_text(yaml.safe_dump(project), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "nvflare.lighter.provision",
            "-p",
            str(path),
            "-w",
            str(self.directory / "poc"),
        ]
        made = subprocess.run(
            command, env=self._environment, cwd=self.directory, capture_output=True, text=True, check=False
        )
        kits = self.directory / "poc" / PROJECT / "prod_00"
        if made.returncode != 0 or not (kits / "server").is_dir():
            said = " ".join((made.stderr + made.stdout).split())
            raise RunError(f"FLARE could not provision the federation ({said[-300:]})")
        for name in ("server", *self.sites):
            allow_scapegoat(kits / name / "local")
        storage = kits / "server" / "local" / "resources.json.default"
        # The job store lies in /tmp by default, where another federation's would be.
        text = storage.read_text(encoding="utf-8").replace("/tmp/nvflare", str(self.directory / "store"))
        storage.write_text(text, encoding="utf-8")
        return kits

    def start(self, name: str) -> None:
        """Start the server or a client by its own startup script."""
        with (self.directory / f"{name}.log").open("ab") as output:
            self._children[name] = subprocess.Popen(
                ["bash", str(self.kits / name / "startup" / "sub_start.sh"), "--once"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.kits / name,
                start_new_session=True,
            )

    def start_all(self) -> None:
        """The server, then every client."""
        for name in ("server", *self.sites):
            self.start(name)

    def kill(self, name: str) -> None:
        """Kill the server or a client with all its processes, as a power cut would."""
        place = str(self.kits / name)
        for process in marked(str(self.directory)):
            with contextlib.suppress(psutil.Error):
                if place in " ".join(process.cmdline()):
                    process.kill()
        self._children[name].wait()

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """The project administrator's session with the server, once it answers. FLARE's chatter is not passed on."""
        with contextlib.redirect_stdout(io.StringIO()):
            session = self._connect()
            try:
                yield session
            finally:
                session.close()

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                return new_secure_session(ADMIN, str(self.kits / ADMIN), timeout=5)
            except Exception as error:
                if time.monotonic() > end or self._children["server"].poll() is not None:
                    raise RunError(
                        f"FLARE's server does not answer ({error}); its log is {self.directory / 'server.log'}"
                    ) from None
                time.sleep(1)

    def submit(self, job: Path) -> str:
        """Submit a job as soon as all clients are there; its id."""
        with self.session() as session:
            _wait(
                lambda: len(session.get_system_info().client_info) >= self.clients,
                _START_SECONDS,
                None,
                f"{self.clients} clients to join; their logs are in {self.directory}",
            )
            return str(session.submit_job(str(job)))

    def finish(self, identifier: str, timeout: float, tell: Callable[[], None] | None = None) -> str:
        """Wait for the end of a job: FLARE's word for how it ended."""
        status = ""
        with self.session() as session:

            def done() -> bool:
                nonlocal status
                status = str(session.get_job_meta(identifier)["status"])
                return status.startswith(("FINISHED", "FAILED", "ABANDONED"))

            _wait(done, timeout, tell, f"the job; the logs are in {self.directory}")
        return status

    def result(self, identifier: str) -> Path:
        """The server's folder of a finished job, fetched from its store."""
        with self.session() as session:
            return Path(session.download_job_result(identifier)) / "workspace"


def run_poc(
    job: Path,
    directory: Path,
    clients: int,
    *,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str],
    tell: Callable[[], None] | None = None,
) -> None:
    """Run a job in real processes on loopback: a server and every client, with TLS as POC provisions it."""
    with Poc(directory, clients, folder, environment) as federation:
        federation.start_all()
        status = federation.finish(federation.submit(job), timeout, tell)
        if status != "FINISHED:COMPLETED":
            logs = [directory / f"{name}.log" for name in (*federation.sites, "server")]
            raise RunError(f"FLARE's job ended as {status}{raised(*logs)}; the logs are in {directory}")
