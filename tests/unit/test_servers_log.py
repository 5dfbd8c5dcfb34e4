"""Reading a log that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers.logfile import ServerLog


def test_new_lines_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = ServerLog(path)
    assert log.new_lines() == []
    path.write_bytes(b"one\ntw")
    assert log.new_lines() == ["one"]
    with path.open("ab") as file:
        file.write(b"o\n\n10%\r20%\r")
    assert log.new_lines() == ["two", "10%", "20%"]
    assert log.new_lines() == []


def test_the_tail_is_what_a_terminal_would_show(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\r\n\n 10%|#\r 90%|####\r100%|#####\n\x1b[31mred\x1b[0m\nno end")
    assert ServerLog(path).tail() == ("first", "100%|#####", "red", "no end")
    assert ServerLog(path).tail(2) == ("red", "no end")


def test_a_line_is_what_was_written_over_it_last(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"loading\r\r10%\r20%\r\nnext\r")
    assert ServerLog(path).text() == "20%\nnext\n"


def test_a_line_of_a_million_characters_is_read_in_one_go(tmp_path: Path) -> None:
    """SGLang prints its arguments in one line of 12 700, and each run's evidence reads the log: a search from each
    character to the end of the line took 0.4 s a run. Of this one it would take half an hour."""
    path = tmp_path / "log"
    path.write_bytes(b"server_args=" + b"x" * 1_000_000 + b"\n0%\r1%\n")
    log = ServerLog(path)
    assert len(log.text()) == 12 + 1_000_000 + 1 + 3
    assert log.tail()[-1] == "1%"


def test_secrets_are_blanked_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a s3cret\n")
    log = ServerLog(path)
    ApiKey("s3cret")  # whoever holds one
    assert log.text() == "a ***\n"
    assert log.tail() == ("a ***",)
    assert log.new_lines() == ["a ***"]


def test_long_lines_and_bad_bytes_are_bearable(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000 + b"\n\xff\xfe\n")
    long_line, bad = ServerLog(path).tail()
    assert long_line == "x" * 397 + "..."
    assert bad == "\ufffd\ufffd"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        ServerLog(tmp_path / "log").text()
