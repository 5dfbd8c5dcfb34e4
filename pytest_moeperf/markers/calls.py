"""What a test's own lines say to ``measure``: a mistyped name is told before anything is launched, not after."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.read import WORKLOAD_FIELDS


def check_measure_calls(item: pytest.Item) -> None:
    """Calls through another name, or in a helper, are seen when they are made.

    :raises UsageProblem: ``moeperf.measure(concurency=4)``.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(item, "function", None))))  # type: ignore[arg-type]
    except (TypeError, OSError, SyntaxError):
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "moeperf.measure":
            names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
            unknown = [name for name in names if name not in WORKLOAD_FIELDS]
            if unknown:
                raise UsageProblem(
                    where=f"{item.nodeid}: measure()",
                    problem=f"unknown argument {unknown[0]!r}",
                    allowed=", ".join(WORKLOAD_FIELDS),
                )
