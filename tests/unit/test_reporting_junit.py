"""JUnit properties of a test."""

from __future__ import annotations

from dataclasses import replace

from reporting_samples import no_baseline, regression

from pytest_moeperf.reporting.junit import junit_properties


def test_the_properties_of_a_regression() -> None:
    assert junit_properties(regression(256)) == [
        ("moeperf.verdict", "REGRESSION"),
        ("moeperf.engine", "sglang"),
        ("moeperf.backend", "flashinfer_cutedsl"),
        ("moeperf.cell", "flashinfer_cutedsl/c256-in512-out128"),
        ("moeperf.phase", "confirm"),
        ("moeperf.launches", "1 + 4x2"),
        ("moeperf.evidence", "confirmed"),
        ("moeperf.runner", "flashinfer_cutedsl"),
        ("moeperf.throughput.verdict", "REGRESSION"),
        ("moeperf.throughput.unit", "tok/s"),
        ("moeperf.throughput.measured", "515.58"),
        ("moeperf.throughput.baseline", "718.83"),
        ("moeperf.throughput.change", "-0.282751"),
        ("moeperf.throughput.change.lower", "-0.294751"),
        ("moeperf.throughput.change.upper", "-0.269751"),
        ("moeperf.throughput.change.level", "0.95"),
        ("moeperf.tpot.verdict", "REGRESSION"),
        ("moeperf.tpot.unit", "ms"),
        ("moeperf.tpot.measured", "463.2"),
        ("moeperf.tpot.baseline", "332.23"),
        ("moeperf.tpot.change", "0.394216"),
        ("moeperf.tpot.change.lower", "0.338242"),
        ("moeperf.tpot.change.upper", "0.434208"),
        ("moeperf.tpot.change.level", "0.95"),
    ]


def test_what_is_not_known_has_no_property() -> None:
    names = [name for name, _ in junit_properties(no_baseline())]
    assert names == [
        "moeperf.verdict",
        "moeperf.engine",
        "moeperf.backend",
        "moeperf.cell",
        "moeperf.phase",
        "moeperf.launches",
        "moeperf.evidence",
        "moeperf.runner",
    ]


def test_engine_comes_from_the_session_and_values_are_one_clean_line() -> None:
    outcome = replace(no_baseline(), session={"engine": "simulated"}, refused="worse\n\x1b[31mthan api_key=abc")
    properties = dict(junit_properties(outcome))
    assert properties["moeperf.engine"] == "simulated"
    assert properties["moeperf.refused"] == "worse than api_key=***"
