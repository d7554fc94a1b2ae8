"""Fetching from a real HTTP server on loopback: whole, interrupted, lying, hostile."""

import hashlib
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scapegoat.data.files.fetch import fetch
from scapegoat.data.sets.location30 import Location30
from scapegoat.errors import DataError
from tests.data import build
from tests.data.sets.test_published_records import one_line


class Server:
    """Serves one file; `behave(request number)` says how."""

    def __init__(self, content):
        self.content = content
        self.behave = lambda number: "well"
        self.asked = 0
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
        self.asked += 1
        how = self.behave(self.asked)
        if isinstance(how, int):
            handler.send_error(how)
            return
        handler.send_response(200)
        if how != "without length":
            handler.send_header("Content-Length", str(len(self.content)))
        handler.end_headers()
        handler.wfile.write(self.content[: len(self.content) // 2] if how == "breaks off" else self.content)
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
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
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
    assert server.asked == 1
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_is_there_is_not_fetched_again(server, tmp_path, folder):
    for _ in range(2):
        fetch("location30", tmp_path / "root")
    assert server.asked == 1


def test_a_damaged_file_is_fetched_again(server, tmp_path, folder):
    folder.mkdir(parents=True)
    (folder / "dataset_location.tgz").write_bytes(b"damaged")
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content


@pytest.mark.parametrize("trouble", ["breaks off", 503])
def test_a_transfer_that_fails_is_tried_again(server, tmp_path, folder, trouble):
    server.behave = lambda number: trouble if number < 3 else "well"
    assert fetch("location30", tmp_path / "root").read_bytes() == server.content
    assert server.asked == 3
    assert names(folder) == ["dataset_location.tgz"]


@pytest.mark.parametrize("trouble", ["breaks off", 503])
def test_a_transfer_that_fails_each_time_leaves_nothing(server, tmp_path, folder, trouble):
    server.behave = lambda number: trouble
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path / "root")
    one_line(caught, server.url, "503" if trouble == 503 else "", "try again later", "--url")
    assert names(folder) == []


@pytest.mark.parametrize("other", [lambda c: b"x" * len(c), lambda c: c + b"x" * 5_000_000])
@pytest.mark.parametrize("how", ["well", "without length"])
def test_another_file_leaves_nothing(server, tmp_path, folder, other, how):
    server.content = other(server.content)
    server.behave = lambda number: how
    with pytest.raises(DataError) as caught:
        fetch("location30", tmp_path / "root")
    one_line(caught, server.url, "checksum", "not kept")
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
    assert server.asked == 1
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


def test_only_what_can_be_fetched_is_fetched(tmp_path):
    with pytest.raises(DataError) as caught:
        fetch("texas100", tmp_path)
    one_line(caught, "privacytrustlab", "scapegoat data import texas100")
