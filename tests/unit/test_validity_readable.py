"""A server that can't be read is not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_samples import steady_run

from pytest_moeperf.asking import ABSENT, LATE, Answer
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import cache_flushed, server_readable

WORKLOAD = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16)
INFO = Answer(path="/server_info", status=200, data={"disable_radix_cache": False})
OFF = replace(INFO, data={"disable_radix_cache": True})
FLUSHED = Answer(path="/flush_cache", status=200)
LATE_INFO = Answer(path="/server_info").refused(LATE, "no whole answer came within 10 s")
NOT_FLUSHED = Answer(path="/flush_cache", status=400).refused("status", "status 400: busy")


def run(*, cached: int | None) -> LoadResult:
    result = steady_run()
    return replace(result, records=tuple(replace(record, cached_tokens=cached) for record in result.records))


def test_what_the_server_runs_with() -> None:
    assert server_readable(INFO, needed=True).status == "pass"
    check = server_readable(LATE_INFO, needed=True)
    assert (check.name, check.status, check.repeatable) == ("server_readable", "fail", False)
    assert check.message == (
        "not shown: what the server runs with could not be read (/server_info: no whole answer came within 10 s), so "
        "nothing of it can be compared; see that the server answers GET /server_info directly, without a proxy"
    )
    absent = Answer(path="/server_info").refused(ABSENT, "there is no such endpoint (404)")
    assert server_readable(absent, needed=False).status == "unknown"
    broken = Answer(path="/server_info", status=500).refused("status", "status 500")
    assert server_readable(broken, needed=False).status == "fail"


@pytest.mark.parametrize(
    ("flushed", "info", "cached_of_prefix", "needed", "status"),
    [
        (FLUSHED, INFO, (None, 0), True, "pass"),
        (NOT_FLUSHED, OFF, (None, 0), True, "pass"),
        (NOT_FLUSHED, INFO, (0, 0), True, "unknown"),  # the answers say it: another check reads them
        (NOT_FLUSHED, INFO, (None, 0), True, "fail"),
        (NOT_FLUSHED, INFO, (8, 8), True, "fail"),  # how much of a declared prefix was warm decides the first requests
        (NOT_FLUSHED, LATE_INFO, (None, 0), True, "fail"),
        (NOT_FLUSHED, LATE_INFO, (None, 0), False, "unknown"),
    ],
)
def test_the_prefix_cache(
    flushed: Answer, info: Answer, cached_of_prefix: tuple[int | None, int], needed: bool, status: str
) -> None:
    cached, prefix = cached_of_prefix
    workload = replace(WORKLOAD, shared_prefix_len=prefix)
    check = cache_flushed(flushed, info, run(cached=cached), workload, needed=needed)
    assert (check.name, check.status) == ("cache_flushed", status)
    if status != "pass":
        assert "(/flush_cache: status 400: busy)" in check.message
