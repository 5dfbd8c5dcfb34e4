"""Engine names to engines."""

from __future__ import annotations

from pytest_moeperf.engines.adapter import Engine


def engine_named(name: str) -> Engine:
    """``name`` is one of ``model.workload.ENGINES``. Each is imported only when it is used."""
    if name == "sglang":
        from pytest_moeperf.engines.sglang import SglangEngine

        return SglangEngine()
    if name == "attached":
        from pytest_moeperf.engines.attached import AttachedEngine

        return AttachedEngine()
    from pytest_moeperf.engines.embedded import SimulatedEngine

    return SimulatedEngine()
