"""Fetching a data set from its public home: with resume, and never half there.

Bytes go to a `.part` file beside the target. An interrupted transfer leaves it, and the next attempt asks the server
for the rest. Only a file with the published checksum is renamed to its real name; any other is removed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from scapegoat.data.inventory import published_spec
from scapegoat.data.locate import Download, roots
from scapegoat.data.progress import progress
from scapegoat.data.streams import digest, reading, wrong
from scapegoat.errors import DataError

_ATTEMPTS = 4
_TIMEOUT = 30.0
_CHUNK = 1 << 16
_PAUSE = 0.5


def fetch(name: str, root: str | Path | None = None, url: str | None = None) -> Path:
    """Get a data set's file into the first data root and return its path; what is there and whole is not fetched again.

    `url` names another server with the same file: the published checksum holds for it too.
    """
    spec = published_spec(name)
    download = spec.publication.download
    if download is None:
        raise DataError(
            f"{name}: has no file that can be fetched by itself; get it from {spec.publication.home} "
            f"and run `scapegoat data import {name} FILE`"
        )
    source = _checked_url(url or download.url)
    folder = roots(root)[0] / spec.name
    target = folder / download.file
    if target.is_file() and digest(target) == download.sha256:
        return target
    with reading(folder):
        folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{download.file}.part"
    with _alone(part):
        _complete(source, part, download)
        os.replace(part, target)
    return target


def _checked_url(url: str) -> str:
    pieces = urllib.parse.urlsplit(url)
    if pieces.scheme not in ("http", "https") or not pieces.netloc:
        raise DataError(f"--url {url}: an address that starts with https:// or http:// is wanted")
    return url


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Refuse a second fetch of the same file at the same time, where the system has locks."""
    with contextlib.ExitStack() as stack:
        with reading(part):
            stream = stack.enter_context(part.open("ab"))
        try:
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on Windows
            pass
        except OSError:
            raise wrong(part, "another fetch of this file is under way") from None
        yield


def _complete(url: str, part: Path, download: Download) -> None:
    """Fill `part` until it has the published size and checksum; without them nothing of it stays."""
    trouble = "the transfer was cut short"
    with progress(f"fetching {download.file}", download.size, bytes_=True) as advance:
        advance(_size(part))
        for attempt in range(_ATTEMPTS):
            before = _size(part)
            if before < download.size:
                time.sleep(_PAUSE * attempt)
                trouble = _transfer(url, part, download.size, advance) or "the transfer was cut short"
            if _size(part) < download.size:
                continue
            if _size(part) == download.size and digest(part) == download.sha256:
                return
            advance(-_size(part))
            os.truncate(part, 0)
            if before == 0:  # else what an earlier attempt left may be at fault: once more, from the start
                part.unlink()
                raise wrong(url, f"sent a file without the published checksum (sha256 {download.sha256}); not kept")
    kept = _size(part)
    if not kept:
        part.unlink()
        raise wrong(url, f"{trouble}; nothing was transferred, try again later or name a mirror with --url")
    raise wrong(url, f"{trouble}; {kept:,} of {download.size:,} bytes are kept, run the command again to go on")


def _transfer(url: str, part: Path, size: int, advance: Callable[[int], None]) -> str | None:
    """One request for what is missing in `part`. Returns what went wrong if it may be different next time."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "scapegoat", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            if have and not _continues(response, have):
                advance(-have)
                os.truncate(part, 0)
                if response.status == 206:
                    return "the server sent another part of the file than was asked for"
            _append(response, part, size, advance)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing there beyond what we have: it is not the same file
            advance(-have)
            os.truncate(part, 0)
        elif error.code < 500 and error.code not in (408, 429):
            if not have:
                part.unlink()
            raise wrong(url, f"the server answered {error.code} {error.reason}") from error
        return f"the server answered {error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", None) or error) or type(error).__name__
    return None


def _continues(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the answer starts where our part ends. A server may ignore the request for a range."""
    stated = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return response.status == 206 and stated is not None and int(stated[1]) == have


def _append(response: http.client.HTTPResponse, part: Path, size: int, advance: Callable[[int], None]) -> None:
    """Append the answer to `part`, but never much more than the published size, whatever is sent."""
    room = size + 1 - _size(part)
    while room > 0 and (chunk := response.read(min(_CHUNK, room))):
        try:
            with part.open("ab") as stream:
                stream.write(chunk)
        except OSError as error:
            raise wrong(part, f"cannot be written ({error})") from error
        room -= len(chunk)
        advance(len(chunk))


def _size(part: Path) -> int:
    return part.stat().st_size
