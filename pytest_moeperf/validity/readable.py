"""A server that can't be read is not measured: what it would have said could not contradict anything."""

from __future__ import annotations

from pytest_moeperf.asking import LATE, Answer
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.result import failed, passed, unknown

BROKEN_SERVER = 500


def server_readable(info: Answer, *, needed: bool) -> Check:
    """Its arguments and version could be read.

    :param needed: it is of an engine that has ``/server_info``, so that one which is not there is a fault. One that
        breaks or comes late is a fault of any server: what it would say may have to be equal.
    """
    name = "server_readable"
    if info.good:
        return passed(name)
    broken = info.cause == LATE or (not info.absent and (info.status or 0) >= BROKEN_SERVER)
    if needed or broken:
        return failed(
            name,
            f"not shown: what the server runs with could not be read ({info.problem}), so nothing of it can be "
            f"compared; see that the server answers GET {info.path} directly, without a proxy",
        )
    return unknown(name, f"what the server runs with could not be read ({info.problem})")


def cache_flushed(flushed: Answer, info: Answer, result: LoadResult, workload: Workload, *, needed: bool) -> Check:
    """The prefix cache was empty when the run began: it was flushed, or it is off, or every answer says how much of
    its prompt came from it (``cached_tokens_as_declared`` looks at that)."""
    name = "cache_flushed"
    if flushed.good or (info.good and info.data.get("disable_radix_cache") is True):
        return passed(name)
    told = all(record.cached_tokens is not None for record in result.records)
    if needed and not (told and workload.shared_prefix_len == 0):
        return failed(
            name,
            f"not shown: whether prompts of earlier runs were still in the prefix cache, which could not be flushed "
            f"({flushed.problem}); or switch it off with --disable-radix-cache in [server] args",
            repeatable=True,
        )
    return unknown(name, f"the prefix cache was not flushed ({flushed.problem})")
