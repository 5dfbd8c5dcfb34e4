"""Quantities and errors."""

from __future__ import annotations

import pickle

import pytest

from pytest_moeperf.errors import BaselineError, LoadError, MoeperfError, ServerError, UsageProblem
from pytest_moeperf.units import (
    format_change,
    format_duration,
    format_level,
    format_quantity,
    parse_duration_s,
    parse_percent,
)


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), (" 1.5 % ", 0.015), ("0%", 0.0), ("99.9%", 0.999)])
def test_percentages(text: str, value: float) -> None:
    assert parse_percent(text) == pytest.approx(value)


@pytest.mark.parametrize("bad", ["5", 5, 0.05, "-5%", "five%", "100%", "", None, "5 % 6 %"])
def test_what_is_no_percentage(bad: object) -> None:
    with pytest.raises(ValueError, match=r"is not a percentage such as '5%'|must be at least 0% and below 100%"):
        parse_percent(bad)


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("30min", 1800), ("1h30min", 5400), ("1 h 5 min", 3900), ("250ms", 0.25)]
)
def test_durations(text: str, value: float) -> None:
    assert parse_duration_s(text) == pytest.approx(value)


@pytest.mark.parametrize("bad", ["30", 30, "min", "30 minutes", "-5s", "", None])
def test_what_is_no_duration(bad: object) -> None:
    with pytest.raises(ValueError, match="is not a duration such as '90s'"):
        parse_duration_s(bad)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.07312, "0.0731"), (64.29, "64.3"), (731.2, "731"), (1603.04, "1603"), (11749.0, "11.7k"), (1.2e6, "1.2M")],
)
def test_quantities(value: float, text: str) -> None:
    assert format_quantity(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (4.24, "4.2 s"), (42, "42 s"), (840, "14 min"), (3900, "65 min"), (7500, "2 h 5 min")],
)
def test_duration_texts(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_changes_carry_their_sign() -> None:
    assert [format_change(value) for value in (0.0161, -0.0523, 1.02, -0.5)] == ["+1.6 %", "-5.2 %", "+102 %", "-50 %"]
    assert format_change(-0.0001) == "+0.0 %", "nothing has no minus"


@pytest.mark.parametrize(
    "error",
    [
        UsageProblem(where="--x", problem="'y' is wrong", allowed="z", next_step="mend it"),
        ServerError(what="it died", hint="out of memory", log_path="/log", log_tail=("one", "two")),
        ServerError(what="it died", log_path="/log"),
        LoadError(what="no connection", next_step="start the server"),
        BaselineError(path="b.json", problem="cut in half", next_step="git checkout b.json"),
    ],
)
def test_errors_survive_the_wire_of_xdist(error: MoeperfError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert str(error).count("\n") >= 1


def test_a_server_error_shows_the_tail_of_the_log() -> None:
    error = ServerError(what="triton exited with code 1", hint="out of memory", log_path="/log", log_tail=("a", "b"))
    assert str(error) == ("triton exited with code 1\n  hint: out of memory\n  last lines of /log:\n    | a\n    | b")


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (0.95, "95 %"),
        (0.978472, "97.8 %"),
        (0.999, "99.9 %"),
        (0.9995, "99.95 %"),
        (0.999996, "99.9996 %"),
        (1 - 1e-9, "99.9999999 %"),
    ],
)
def test_no_interval_is_a_hundred_percent(level: float, text: str) -> None:
    assert format_level(level) == text
