"""Text from elsewhere moves no cursor, hides nothing and commands no CI runner."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.cli.output import print_json, print_lines
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.outgoing import printable, printable_line, told
from pytest_moeperf.servers.logfile import ServerLog

HOSTILE = {
    "colours": ("\x1b[31mred\x1b[0m", "red"),
    "cursor and screen": ("a\x1b[2J\x1b[Hb", "ab"),
    "CSI of one byte": ("a\x9b31mb", "ab"),
    "title": ("a\x1b]0;owned\x07b", "ab"),
    "link": ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
    "clipboard": ("a\x1b]52;c;cm0gLXJm\x9cb", "ab"),
    "OSC of one byte": ("a\x9d52;c;cm0gLXJm\x9cb", "ab"),
    "OSC without an end": ("a\x1b]0;rest stays", "a0;rest stays"),
    "device control": ("a\x1bP1$r0m\x1b\\b", "ab"),
    "application command": ("a\x1b_G1\x1b\\\x9fb", "a b"),
    "reset": ("a\x1bcb", "ab"),
    "character set": ("a\x1b(0b", "ab"),
    "escape at the end": ("a\x1b", "a"),
    "bell, backspace, return, tab, null": ("a\x07\b\r\t\0b", "a     b"),
    "next line and other C1": ("a\x85\x84b", "a  b"),
    "line separator": ("a\u2028b\u2029c", "a b c"),
    "right to left": ("a\u202etxt.exe\u202c\u2066b\u2069", "atxt.exeb"),
    "invisible": ("to\u200bk\u200den\ufeff\u00ad", "token"),
    "tags": ("a\U000e0041b", "ab"),
    "half a surrogate": ("a\ud800b", "a\ufffdb"),
    "workflow command": ("::error file=a.py::b", ": :error file=a.py::b"),
    "workflow command behind a blank": ("x\n \t::set-env name=A::b", "x\n  : :set-env name=A::b"),
    "workflow command behind an escape": ("\x1b[1m\u200b::stop-commands::x", ": :stop-commands::x"),
    "older workflow command": ("a##[error]b", "a# #[error]b"),
    "older workflow command, three": ("###[group]b", "## #[group]b"),
    "Azure": ("##vso[task.setvariable]x", "# #vso[task.setvariable]x"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_shown_harmless(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tests/test_a.py::test_b[x-1]",
        "a::b",
        "## heading",
        "µs ≤ 3, déjà vu, 日本語, 🙂",
        "  indented\n\nlines\n",
        "",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert printable(text) == text


def test_one_line() -> None:
    assert printable_line(" a\n\x1b[1m::error::b\t c ") == "a : :error::b c"


@given(st.text(st.characters() | st.sampled_from("\x1b\x9b\x9d\x07:#[];m \n\u202e"), max_size=40))
def test_whatever_comes_is_printable_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert not re.search(r"##\w*\[|^\s*::\S", shown, re.MULTILINE)
    assert printable(shown) == shown


def test_a_long_hostile_text_takes_linear_time() -> None:
    for piece in ("\x9d", "\x1b]", "\x1b[", "\x1b[0;", "::", "##", "\x1bP1"):
        assert len(printable(piece * 100_000)) <= 400_000


def test_what_commands_print_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["a\x1b]0;t\x07b\n::error::c"])
    print_json({"\u202ename": ["##[error]x\x9b1m", "api_key=abcdefgh"]})
    assert capsys.readouterr().out == 'ab : :error::c\n{\n  "name": [\n    "# #[error]x",\n    "api_key=***"\n  ]\n}\n'


def test_an_error_is_clean() -> None:
    error = UsageProblem(where="x", problem="\x1b[2Jsaid\n::error::Authorization: Bearer abcdefgh")
    assert str(error) == "x: said\n: :error::Authorization: Bearer ***"


def test_a_log_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("\x1b]52;c;x\x07one\n##[error]two\x1bc\n\u202ethree".encode())
    assert ServerLog(path).tail() == ("one", "# #[error]two", "three")
    assert ServerLog(path).text() == "one\n# #[error]two\nthree"


def test_a_key_with_something_invisible_in_it_is_one() -> None:
    assert told({"a": "api_\u200bkey=abc\x1b[0mdefgh"}) == {"a": "api_key=***"}


def test_values_that_are_no_text_stay() -> None:
    value = {"a": (1, [None, 2.5]), "b": SimpleNamespace()}
    assert told(value) == value
