"""Whether a ``-m`` expression asks for performance tests."""

from __future__ import annotations

import pytest

from pytest_moeperf.session.activation import wants
from pytest_moeperf.session.scheduling import scope_of


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("perf", True),
        ("perf and not slow", True),
        ("slow or perf", True),
        ("not (not perf)", True),
        ("perf(input_len=512)", True),
        ("not perf", False),
        ("not (perf or slow)", False),
        ("performance", False),
        ("slow", False),
        ("perf and", False),
    ],
)
def test_wants(expression: str, *, wanted: bool) -> None:
    assert wants(expression, "perf") is wanted


@pytest.mark.parametrize(
    ("node_id", "scope"),
    [
        ("tests/test_x.py::test_decode[triton-64]", "triton"),
        ("tests/test_x.py::test_decode[triton_kernel-64]", "triton_kernel"),
        ("tests/test_x.py::test_decode[triton]", "triton"),
        ("tests/test_x.py::test_other[tritonic-64]", "tests/test_x.py::test_other[tritonic-64]"),
        ("tests/test_x.py::test_plain", "tests/test_x.py::test_plain"),
    ],
)
def test_a_backends_tests_stay_on_one_worker(node_id: str, scope: str) -> None:
    assert scope_of(node_id, ["triton", "triton_kernel"]) == scope
