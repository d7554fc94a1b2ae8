"""Fetching a data set from its public home: checked against the published checksum, and never half there."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any, BinaryIO

from scapegoat.data.files.inventory import published_spec
from scapegoat.data.files.locate import Download, roots
from scapegoat.data.formats.progress import progress
from scapegoat.data.formats.safe_io import digest, reading, wrong
from scapegoat.errors import DataError

_RETRIES = 2
_TIMEOUT = 30.0


def fetch(name: str, root: str | Path | None = None, url: str | None = None) -> Path:
    """Get a data set's file into the first data root and return its path; what is there and whole is not fetched again.

    `url` names another server with the same file: the published checksum holds for it too.
    """
    spec = published_spec(name)
    download = spec.publication.download
    if download is None:
        raise DataError(
            f"{name}: has no file that can be fetched automatically; get it from {spec.publication.home} "
            f"and run `scapegoat data import {name} FILE`"
        )
    source = _checked_url(url or download.url)
    folder = roots(root)[0] / spec.name
    target = folder / download.file
    if target.is_file() and digest(target) == download.sha256:
        return target
    with reading(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _get(source, folder, download)
        target.chmod(0o644)  # public, whoever fetched it
    return target


def _checked_url(url: str) -> str:
    pieces = urllib.parse.urlsplit(url)
    if pieces.scheme not in ("http", "https") or not pieces.netloc:
        raise DataError(f"--url {url}: an address that starts with https:// or http:// is expected")
    return url


class _FinalError(Exception):
    """What another attempt would not change."""


class _Limited:
    """A file that takes no more than the published size, whatever a server sends."""

    def __init__(self, stream: BinaryIO, room: int, advance: Any) -> None:
        self._stream = stream
        self._room = room
        self._advance = advance
        self.flush = stream.flush

    def write(self, chunk: bytes) -> int:
        self._room -= len(chunk)
        if self._room < 0:
            raise _FinalError("sent more than the published file, which has another checksum; not kept")
        self._advance(len(chunk))
        return self._stream.write(chunk)


def _get(url: str, folder: Path, download: Download) -> None:
    """By way of a temporary file in `folder`, which takes its name once the checksum agrees."""
    import pooch
    import requests

    def transfer(address: str, path: str, _: Any) -> None:
        with (
            Path(path).open("wb") as stream,
            progress(f"fetching {download.file}", download.size, bytes_=True) as advance,
        ):
            try:
                http(address, _Limited(stream, download.size, advance), None)
            except requests.HTTPError as error:
                answer = f"the server answered {error.response.status_code} {error.response.reason}"
                if error.response.status_code < 500:
                    raise _FinalError(answer) from error
                raise requests.RequestException(answer) from error

    http = pooch.HTTPDownloader(timeout=_TIMEOUT, headers={"User-Agent": "scapegoat", "Accept-Encoding": "identity"})
    known = {download.file: f"sha256:{download.sha256}"}
    store = pooch.create(folder, base_url="", registry=known, urls={download.file: url}, retry_if_failed=_RETRIES)
    pooch.get_logger().setLevel("WARNING")
    try:
        store.fetch(download.file, downloader=transfer)
    except _FinalError as error:
        raise wrong(url, str(error)) from error
    except requests.RequestException as error:
        raise wrong(url, f"{_reason(error)}; try again later or name a mirror with --url") from error
    except ValueError as error:
        raise wrong(url, f"sent a file without the published checksum (sha256 {download.sha256}); not kept") from error


def _reason(error: Exception) -> str:
    """The innermost reason: "Connection refused" rather than the pool's description of its attempt."""
    inner: Any = error
    while True:
        cause = getattr(inner, "reason", None) or next((a for a in inner.args if isinstance(a, Exception)), None)
        if not isinstance(cause, Exception):
            return str(inner) or type(inner).__name__
        inner = cause
