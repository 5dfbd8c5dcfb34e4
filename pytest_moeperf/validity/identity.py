"""The server that was measured is the one that was launched, or attached to: one process, with one set of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pytest_moeperf.model.run import Check, Plain
from pytest_moeperf.validity.result import failed, passed, unknown

Marks = Mapping[str, Plain]
"""What the server says of itself (``Identity.marks``). A key that is missing or None tells nothing."""
Counts = Mapping[str, float | None]
"""Its totals since its start."""

PROCESS = ("pid", "start time")
GROWING = ("requests", "generated_tokens", "prompt_tokens")


def identity_checks(
    launched: Marks, now: Marks, counts: Sequence[Counts], *, process_known: bool
) -> tuple[Check, Check]:
    """
    :param launched: as read when the server became ready.
    :param counts: readings of its counters, the launch's first, in the order they were made.
    :param process_known: its process is watched by other means.
    """
    return _same_process(launched, now, counts, process_known=process_known), _same_arguments(launched, now)


def _same_process(launched: Marks, now: Marks, counts: Sequence[Counts], *, process_known: bool) -> Check:
    name = "same_server_process"
    changed = _changed({key: launched.get(key) for key in PROCESS}, now)
    if changed:
        return failed(name, f"this is not the server that was there when measuring began: {changed}")
    counted = False
    for key in GROWING:
        readings = [value for reading in counts if (value := reading.get(key)) is not None]
        counted |= len(readings) > 1
        for earlier, later in pairwise(readings):
            if later < earlier:
                return failed(
                    name,
                    f"its total of {key.replace('_', ' ')} fell from {earlier:g} to {later:g}: it was started again, "
                    "or several servers share the address",
                )
    if process_known or counted or any(launched.get(key) is not None and now.get(key) is not None for key in PROCESS):
        return passed(name)
    return unknown(
        name,
        "not shown: that one process gave all answers; the server tells no pid, no start time and no counters that are "
        "known here",
    )


def _same_arguments(launched: Marks, now: Marks) -> Check:
    name = "same_server_args"
    said = {key: value for key, value in launched.items() if key not in PROCESS}
    if changed := _changed(said, now):
        return failed(name, f"the server changed while it was measured: {changed}")
    if said.get("arguments") is None:
        return unknown(name, "the server does not say with what arguments it runs")
    return passed(name)


def _changed(earlier: Marks, later: Marks) -> str:
    differing = [
        f"{key} was {value}, and is {later[key]}"
        for key, value in earlier.items()
        if value is not None and later.get(key) is not None and value != later[key]
    ]
    return "; ".join(differing)
