"""A suite's own code, asked while things are set up: what it raises is told in a line that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pytest_moeperf.errors import MoeperfError, UsageProblem

Answer = TypeVar("Answer")


def asked(where: str, call: Callable[[], Answer]) -> Answer:
    """:raises UsageProblem: it raised something of its own."""
    try:
        return call()
    except MoeperfError:
        raise
    except Exception as error:
        raise UsageProblem(where=where, problem=f"raised {type(error).__name__}: {error}") from error
