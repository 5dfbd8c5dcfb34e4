"""Which stored runs share a session."""

from __future__ import annotations

import pytest

from pytest_moeperf.baselines.sessions import joined
from pytest_moeperf.model.baseline import StoredRun


def run(session: str, at: str) -> StoredRun:
    return StoredRun(id=f"{session} {at}", session=session, launch=session, started_at=at, values={"throughput": 1.0})


STORED = (run("first", "2026-11-30T06:00:00.000+00:00"), run("first", "2026-11-30T06:10:00.000+00:00"))


@pytest.mark.parametrize(
    ("at", "session"),
    [
        ("2026-11-30T07:09:59.000+00:00", "first"),
        ("2026-11-30T07:10:00.000+00:00", "new"),
        ("2026-11-30T08:05:00.000+01:00", "first"),
        ("2026-11-30T07:05:00", "first"),
        ("2026-11-30T06:05:00.000+00:00", "first"),
        ("2026-11-30T05:00:01.000+00:00", "first"),
        ("2026-11-30T04:59:00.000+00:00", "new"),
        ("", "new"),
    ],
)
def test_less_than_an_hour_apart_is_one_session(at: str, session: str) -> None:
    assert [item.session for item in joined(STORED, [run("new", at)])] == [session]


def test_a_chain_of_invocations_is_one_session_however_long() -> None:
    added = [run(name, f"2026-11-30T{hour}:00:00.000+00:00") for name, hour in (("c", "08"), ("b", "07"), ("d", "10"))]
    near = [run("a", "2026-11-30T06:30:00.000+00:00"), *added[1:2], *added[:1]]
    assert [item.session for item in joined(STORED, near)] == ["first", "first", "c"]
    within = [run("a", "2026-11-30T06:30:00.000+00:00"), run("b", "2026-11-30T07:20:00.000+00:00")]
    assert [item.session for item in joined(STORED, within)] == ["first", "first"]
    assert [item.session for item in joined((), [*added, run("e", "2026-11-30T10:59:00.000+00:00")])] == [
        *("c", "b", "d"),
        "d",
    ]


def test_recordings_around_the_clock_are_a_session_a_day() -> None:
    half_hours = [
        run(f"{day}-{number}", f"2026-11-{day:02}T{number // 2:02}:{30 * (number % 2):02}:00+00:00")
        for day in (10, 11, 12)
        for number in range(48)
    ]
    assert len({item.session for item in joined((), half_hours)}) == 3


def test_a_session_keeps_its_runs_together() -> None:
    """The first is near a stored session, the last is not: they are of one invocation."""
    long = [run("new", f"2026-11-30T{hour}:00:00.000+00:00") for hour in ("07", "08", "09")]
    assert [item.session for item in joined(STORED, long)] == ["first"] * 3
