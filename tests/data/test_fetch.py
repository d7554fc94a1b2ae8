"""Fetching from a real HTTP server on loopback: whole, interrupted, resumed, lying, hostile."""

import hashlib
import re
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scapegoat.data import fetch as module
from scapegoat.data.fetch import fetch
from scapegoat.data.location30 import Location30
from scapegoat.errors import DataError
from tests.data import build
from tests.data.test_published_records import one_line


class Server:
    """Serves one file; `behaviour(request number)` says how. Keeps the Range header of every request."""

    def __init__(self, content):
        self.content = content
        self.behave = lambda number: "range"
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # a client that hangs up is part of the tests
        self.url = f"http://127.0.0.1:{self.http.server_port}/dataset_location.tgz"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def answer(self, handler):
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        how = self.behave(len(self.asked))
        start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted else 0
        if isinstance(how, int):
            handler.send_error(how)
            return
        if how == "ignores range":
            start, wanted = 0, None
        body = self.content[start:]
        if wanted and not body:
            handler.send_error(416)
            return
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Length", str(len(body)))
        if wanted:
            begin = start + 10 if how == "another range" else start
            handler.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if how == "breaks off" else body)
        if how == "breaks off":
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server(monkeypatch, tmp_path):
    x, y = build.records(500, 446, 30)
    content = build.tar(tmp_path / "original.tgz", {"bangkok": build.rows(x, y + 1)}).read_bytes()
    serving = Server(content)
    download = replace(
        Location30.publication.download, url=serving.url, size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )
    monkeypatch.setattr(Location30, "publication", replace(Location30.publication, download=download))
    monkeypatch.setattr(module, "_PAUSE", 0)
    yield serving
    serving.http.shutdown()
    serving.http.server_close()
    serving.thread.join()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "root" / "location30"


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_file_arrives_whole(server, tmp_path, folder):
    path = fetch("location30", tmp_path / "root")
    assert path == folder / "dataset_location.tgz"
    assert path.read_bytes() == server.content
    assert names(folder) == ["dataset_location.tgz"]
    assert server.asked == [None]


def test_what_is_there_is_not_fetched_again(server, tmp_path, folder):
    for _ in range(2):
        fetch("location30", tmp_path / "root")
    assert len(server.asked) == 1


def test_a_damaged_file_is_fetched_again(server, tmp_path, folder):
    folder.mkdir(parents=True)
    (folder / "dataset_location.tgz").write_bytes(b"damaged")
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content


def test_a_broken_transfer_goes_on_where_it_was(server, tmp_path, folder):
    server.behave = lambda number: "breaks off" if number == 1 else "range"
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked == [None, f"bytes={len(server.content) // 2}-"]
    assert names(folder) == ["dataset_location.tgz"]


def test_an_interrupted_command_is_resumed_by_the_next(server, tmp_path, folder):
    server.behave = lambda number: "breaks off" if number == 1 else 503
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path / "root")
    half = len(server.content) // 2
    one_line(caught, "503", f"{half:,} of {len(server.content):,} bytes are kept", "run the command again")
    assert names(folder) == [".dataset_location.tgz.part"]
    server.asked.clear()
    server.behave = lambda number: "range"
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked == [f"bytes={half}-"]


def test_a_server_that_ignores_ranges_is_read_from_the_start(server, tmp_path, folder):
    server.behave = lambda number: "breaks off" if number == 1 else "ignores range"
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert len(server.asked) == 2


def test_a_server_that_sends_another_range_is_read_from_the_start(server, tmp_path, folder):
    server.behave = lambda number: {1: "breaks off", 2: "another range"}.get(number, "range")
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked[-1] is None


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * 10_000_000])
def test_a_part_of_something_else_is_thrown_away(server, tmp_path, folder, left):
    folder.mkdir(parents=True)
    (folder / ".dataset_location.tgz.part").write_bytes(left)
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked[-1] is None


def test_a_part_that_was_whole_needs_no_request(server, tmp_path, folder):
    folder.mkdir(parents=True)
    (folder / ".dataset_location.tgz.part").write_bytes(server.content)
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked == []


@pytest.mark.parametrize("other", [lambda c: b"x" * len(c), lambda c: c + b"x" * 5_000_000])
def test_a_wrong_checksum_leaves_nothing(server, tmp_path, folder, other):
    server.content = other(server.content)
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path / "root")
    one_line(caught, server.url, "published checksum", "not kept")
    assert names(folder) == []


def test_a_wrong_file_does_not_replace_what_was_there(server, tmp_path, folder):
    folder.mkdir(parents=True)
    (folder / "dataset_location.tgz").write_bytes(b"older")
    server.content = b"x" * len(server.content)
    with pytest.raises(DataError):
        fetch("location30", tmp_path / "root")
    assert (folder / "dataset_location.tgz").read_bytes() == b"older"


def test_a_file_that_ends_early_is_not_taken_for_whole(server, tmp_path, folder):
    server.content = server.content[:-1]
    with pytest.raises(DataError):
        fetch("location30", tmp_path / "root")
    assert "dataset_location.tgz" not in names(folder)


def test_an_address_without_the_file_says_so_at_once(server, tmp_path, folder):
    server.behave = lambda number: 404
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path / "root")
    one_line(caught, server.url, "404")
    assert len(server.asked) == 1
    assert names(folder) == []


def test_nobody_listening_is_one_line(server, tmp_path, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        with pytest.raises(DataError) as caught:
            fetch("location30", tmp_path / "root", url=url)
    one_line(caught, url, "refused")
    assert names(folder) == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/a", "dataset.tgz", "http://"])
def test_other_kinds_of_addresses_are_refused(tmp_path, url):
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path, url=url)
    one_line(caught, "https://")


def test_two_at_once_are_refused(server, tmp_path, folder):
    fcntl = pytest.importorskip("fcntl")
    folder.mkdir(parents=True)
    with (folder / ".dataset_location.tgz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="under way"):
            fetch("location30", tmp_path / "root")


def test_only_what_can_be_fetched_is_fetched(tmp_path):
    with pytest.raises(DataError) as caught:
        fetch("texas100", tmp_path)
    one_line(caught, "privacytrustlab", "scapegoat data import texas100")
