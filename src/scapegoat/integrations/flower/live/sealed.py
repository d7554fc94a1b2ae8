"""Flower's commands behind a key of the audit's own: no other process can submit an app, join or watch.

A SuperLink runs every app that it is sent, and asks nobody who they are; its SuperNodes' runtime servers neither. Here
every server of an audit answers only requests that carry a key from a file that its owner alone can read, and every
client of the audit sends it, over TLS with a certificate made for this audit: to nobody but the audit's own servers.
"""

from __future__ import annotations

import datetime
import hmac
import http.client
import importlib
import importlib.metadata
import ipaddress
import os
import secrets
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ENVIRONMENT = "SCAPEGOAT_SEAL"
HEADER = "x-scapegoat-key"
COMMANDS = ("flower-superlink", "flower-supernode", "flower-superexec", "flwr-serverapp", "flwr-clientapp", "flwr")
LIFETIME = datetime.timedelta(days=30)

_SHIM = """#!{python}
from scapegoat.integrations.flower.live.sealed import main
main({name!r})
"""

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


class Seal:
    """The key and the certificate of one audit, in a folder that only its owner can read."""

    def __init__(self, folder: Path, host: str) -> None:
        self.key_file = folder / "key"
        self.authority = folder / "authority.pem"
        self._certificate = folder / "server.pem"
        self._server_key = folder / "server.key"
        _write(self.key_file, secrets.token_hex(32).encode())
        authority, certificate, key = _certificates(host)
        for path, content in ((self.authority, authority), (self._certificate, certificate), (self._server_key, key)):
            _write(path, content)
        for name in COMMANDS:
            shim = folder / name
            shim.write_text(_SHIM.format(python=sys.executable, name=name), encoding="utf-8")
            shim.chmod(0o700)

    def server(self) -> list[str]:
        """Arguments of a Flower server that presents the certificate."""
        return [
            *("--ssl-ca-certfile", str(self.authority)),
            *("--ssl-certfile", str(self._certificate)),
            *("--ssl-keyfile", str(self._server_key)),
        ]


class Gate:
    """An application that answers only requests with the key; all others get 401 and nothing of them is read."""

    def __init__(self, application: Application, key: str) -> None:
        self._application = application
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "lifespan":
            given = [value for name, value in scope["headers"] if name.lower() == HEADER.encode()]
            if scope["type"] != "http" or len(given) != 1 or not hmac.compare_digest(given[0], self._key):
                await _refuse(scope, send)
                return
        await self._application(scope, receive, send)


async def _refuse(scope: Scope, send: Any) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    words = b"this SuperLink belongs to an audit and takes nothing from other processes"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(words)).encode())]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": words})


def seal() -> None:
    """Put the gate before every HTTP server of this process, and give its HTTP clients the key.

    Flower serves with uvicorn and asks with httpx; it has no place of its own to put either. Both are reached by their
    public classes, no module of Flower's is touched.
    """
    place = os.environ.get(ENVIRONMENT)
    if not place:
        return
    key = Path(place).read_text(encoding="ascii")
    configuration: Any = importlib.import_module("uvicorn").Config
    httpx: Any = importlib.import_module("httpx")
    configure = configuration.__init__

    def gated(self: Any, app: Any, *arguments: Any, **keywords: Any) -> None:
        configure(self, Gate(app, key), *arguments, **keywords)

    def present(request: Any) -> None:
        request.headers.pop(HEADER, None)  # a redirect may have brought it along
        if ours(str(request.url)):
            request.headers[HEADER] = key

    class Keyed(httpx.Client):  # type: ignore[misc]
        """A client that shows the key to this audit's servers, and to nobody else."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            hooks = dict(keywords.pop("event_hooks", None) or {})
            hooks["request"] = [*hooks.get("request", ()), present]
            super().__init__(*arguments, event_hooks=hooks, **keywords)

    configuration.__init__, httpx.Client = gated, Keyed


def ours(address: str) -> bool:
    """A server of this audit: on this machine's loopback interface, and over TLS, so that no impostor gets the key."""
    parts = urlsplit(address)
    try:
        return parts.scheme == "https" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def refuses_strangers(host: str, port: int, authority: Path) -> bool:
    """The server on that port has the audit's certificate and does not answer a request without the key."""
    connection = http.client.HTTPSConnection(
        host, port, timeout=30, context=ssl.create_default_context(cafile=str(authority))
    )
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 401
    except OSError:
        return False
    finally:
        connection.close()


def main(name: str) -> None:
    """Run one of Flower's commands, sealed."""
    seal()
    (script,) = importlib.metadata.entry_points(group="console_scripts", name=name)
    sys.argv[0] = name
    sys.exit(script.load()())


def _write(path: Path, content: bytes) -> None:
    """Readable by its owner alone from the first moment on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _certificates(host: str) -> tuple[bytes, bytes, bytes]:
    """An authority of one's own, a certificate for `host` that it signed, and its key, as PEM.

    The authority's key is forgotten at once: it signs nothing else.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def signed(subject: str, public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        begun = x509.CertificateBuilder(named("scapegoat audit"), named(subject), public, x509.random_serial_number())
        dated = begun.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + LIFETIME)
        certificate = dated.add_extension(extension, critical=True).sign(root, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    authority = signed("scapegoat audit", root.public_key(), x509.BasicConstraints(ca=True, path_length=0))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    server = signed("scapegoat audit server", own.public_key(), address)
    key = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority, server, key
