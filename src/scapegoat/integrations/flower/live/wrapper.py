"""A user's Flower app with a hostile mod on the nodes that are configured so; the app itself stays as it is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scapegoat.errors import InputError
from scapegoat.integrations.flower.live.quiet import quiet
from scapegoat.integrations.shared.environment import minimal
from scapegoat.integrations.shared.layout import ReplyKind

if TYPE_CHECKING:
    from flwr.app import Context, Message

PACKAGE = "scapegoat_audit"
HOSTILE_KEY = "scapegoat-hostile"

# Honest nodes run this too, perhaps on machines without scapegoat: it imports nothing of ours unless told to.
_CLIENT = '''"""Generated: the app's own ClientApp; behind a hostile mod on a node whose configuration names one."""

import pkgutil

from flwr.clientapp import ClientApp

own = pkgutil.resolve_name({reference!r})


class Audited(ClientApp):
    def __call__(self, message, context):
        hostile = context.node_config.get({key!r})
        if not hostile:
            return own(message, context)
        from scapegoat.integrations.flower.live.wrapper import hostile_reply

        return hostile_reply(str(hostile), message, context, own)


app = Audited()
'''

_SERVER = '''"""Generated: the app's own ServerApp; its rounds are written down where scapegoat is installed."""

import pkgutil
from pathlib import Path

from flwr.serverapp import ServerApp

own = pkgutil.resolve_name({reference!r})


class Audited(ServerApp):
    def __call__(self, grid, context):
        try:
            from scapegoat.integrations.flower.live.recorder import run_recorded
        except ImportError:
            own(grid, context)
        else:
            run_recorded(own, grid, context, Path({rounds!r}), {replies!r})


app = Audited()
'''


def read_app(app: Path) -> dict[str, Any]:
    """The app's `pyproject.toml`, checked for what an audit needs."""
    path = app / "pyproject.toml"
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name the folder of a Flower app") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML ({error})") from None
    components = config.get("tool", {}).get("flwr", {}).get("app", {}).get("components", {})
    for name in ("serverapp", "clientapp"):
        if not isinstance(components.get(name), str) or ":" not in components[name]:
            raise InputError(f"{path}: tool.flwr.app.components.{name} is missing; a Flower app names it as module:app")
    return config


def write_app(
    directory: Path, server: str, client: str, rounds: Path, replies: ReplyKind, config: dict[str, Any]
) -> Path:
    """An app of our own components, `server` and `client` by reference, with its rounds written down."""
    import tomli_w

    directory.mkdir(parents=True)
    project = {
        "project": {
            "name": PACKAGE.replace("_", "-"),
            "version": "1.0.0",
            "description": "A federation under audit",
            "license": "Apache-2.0",
        },
        "tool": {"flwr": {"app": {"publisher": "scapegoat", "config": config}}},
    }
    (directory / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")
    _write_components(directory, server, client, rounds, replies)
    return directory


def _write_components(directory: Path, server: str, client: str, rounds: Path, replies: ReplyKind) -> None:
    import tomli_w

    path = directory / "pyproject.toml"
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    section = config["tool"]["flwr"]["app"]
    section["components"] = {"serverapp": f"{PACKAGE}.server:app", "clientapp": f"{PACKAGE}.client:app"}
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    package = directory / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text('"""Generated for an audit."""\n', encoding="utf-8")
    (package / "client.py").write_text(_CLIENT.format(reference=client, key=HOSTILE_KEY), encoding="utf-8")
    (package / "server.py").write_text(
        _SERVER.format(reference=server, rounds=str(rounds), replies=replies), encoding="utf-8"
    )


def shipped_files(app: Path, earlier: Path) -> dict[str, bytes]:
    """The files that Flower would ship, by path, without those of `earlier` audits in a folder of the app's."""
    place = app.resolve()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(_bundle(app, Path(folder))) as bundle:
        names = [name for name in bundle.namelist() if not (place / name).is_relative_to(earlier.resolve())]
        return {name: bundle.read(name) for name in names}


def code_hash(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the app's code: its Python files and which components it names; its configuration is told apart."""
    digest = hashlib.sha256()
    for name in sorted(name for name in files if name.endswith(".py")):
        digest.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    components = tomllib.loads(files["pyproject.toml"].decode())["tool"]["flwr"]["app"]["components"]
    digest.update(f"{components['serverapp']} {components['clientapp']}\n".encode())
    return digest.hexdigest()


def wrap_app(
    app: Path,
    files: Mapping[str, bytes],
    directory: Path,
    rounds: Path,
    replies: ReplyKind,
    run_config: dict[str, Any],
) -> Path:
    """The app's shipped files in `directory`, with our components around its own.

    `run_config` overrides keys of `[tool.flwr.app.config]`; a key that the app does not have is refused.
    """
    import tomli_w

    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    path = directory / "pyproject.toml"
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    section = config["tool"]["flwr"]["app"]
    client, server = section["components"]["clientapp"], section["components"]["serverapp"]
    if "fab-include" in section:
        section["fab-include"] = [*section["fab-include"], f"{PACKAGE}/**/*.py"]
    _override(section.setdefault("config", {}), run_config, app)
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    _write_components(directory, server, client, rounds, replies)
    return directory


def _bundle(app: Path, directory: Path) -> Path:
    """Flower's own bundle of the app: exactly the files that it would ship."""
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(app.resolve())]
    built = subprocess.run(
        command, cwd=directory, env={**minimal(), **quiet(directory)}, capture_output=True, text=True, check=False
    )
    bundles = list(directory.glob("*.fab"))
    if built.returncode != 0 or len(bundles) != 1:
        said = " ".join((built.stderr + built.stdout).split())
        raise InputError(f"{app}: flwr build refuses it ({said[:300]})")
    return bundles[0]


def _override(config: dict[str, Any], overrides: dict[str, Any], app: Path) -> None:
    for key, value in overrides.items():
        *path, last = key.split(".")
        node = config
        for part in path:
            node = node.get(part, {}) if isinstance(node.get(part, {}), dict) else {}
        if last not in node:
            raise InputError(f"--run-config {key}: {app / 'pyproject.toml'} has no such key in [tool.flwr.app.config]")
        node[last] = value


def hostile_reply(path: str, message: Message, context: Context, own: Callable[[Message, Context], Message]) -> Message:
    """The reply of a hostile node: called by the generated ClientApp."""
    from scapegoat.integrations.flower.live.hostile import hostile_mod
    from scapegoat.integrations.shared.audit_inputs import read_hostile

    return hostile_mod(read_hostile(Path(path)))(message, context, own)
