"""Whether this invocation is about performance at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_moeperf.markers.described import PERF

if TYPE_CHECKING:
    import ast

SKIP_REASON = "performance test: run it with -m perf or --backend=NAME"


def asks_for_perf(config: pytest.Config) -> bool:
    """``--backend`` was given, or ``-m`` wants the ``perf`` marker (not merely mentions it: ``-m "not perf"``)."""
    if config.option.moeperf_backends is not None:
        return True
    expression = getattr(config.option, "markexpr", "")
    return bool(expression) and wants(expression, PERF)


def wants(expression: str, marker: str) -> bool:
    """True if ``marker`` stands in the expression outside of every ``not``. An expression that pytest will refuse
    wants nothing."""
    import ast

    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return False
    return _wanted(tree.body, marker, positive=True)


def _wanted(node: ast.expr, marker: str, *, positive: bool) -> bool:
    import ast

    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _wanted(node.operand, marker, positive=not positive)
    if isinstance(node, ast.BoolOp):
        return any(_wanted(operand, marker, positive=positive) for operand in node.values)
    if isinstance(node, ast.Call):
        return _wanted(node.func, marker, positive=positive)
    return positive and isinstance(node, ast.Name) and node.id == marker
