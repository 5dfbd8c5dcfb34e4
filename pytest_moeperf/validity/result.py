"""How a check says its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check


def passed(name: str) -> Check:
    return Check(name=name, status="pass")


def failed(name: str, message: str, *, repeatable: bool = False) -> Check:
    return Check(name=name, status="fail", message=message, repeatable=repeatable)


def unknown(name: str, why: str) -> Check:
    return Check(name=name, status="unknown", message=why)


def none_of(
    name: str,
    records: Sequence[RequestRecord],
    *,
    wrong: Callable[[RequestRecord], bool],
    what: str,
    detail: Callable[[RequestRecord], str],
) -> Check:
    """Fails with the number of wrong requests and the first one's story."""
    found = [record for record in records if wrong(record)]
    if not found:
        return passed(name)
    first = found[0]
    return failed(name, f"{len(found)} of {len(records)} requests {what}; request {first.index}: {detail(first)}")
