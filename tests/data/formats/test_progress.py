import io
import sys

from scapegoat.data.formats.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_what_is_going_on(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("decoding faces", 10) as advance:
        advance(4)
        advance(6)
    assert "decoding faces" in screen.getvalue()


def test_elsewhere_nothing_is_printed(capsys):
    with progress("decoding faces", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")
