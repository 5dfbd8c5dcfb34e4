"""What a bench expects launches to take, before it has seen them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.bench import server_bench
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.live import MeasuringRules
from pytest_moeperf.bench.server_bench import ASSUMED_LAUNCH_S, ServerBench
from pytest_moeperf.model.run import CANDIDATE, REFERENCE
from pytest_moeperf.model.spec import ServerSpec


def nobody(*_: object) -> None:
    pass


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerBench:
    @contextmanager
    def up_after_7_s(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace(
            launch_id="A",
            name="fast",
            start_s=7.0,
            started_here=True,
            log_path="",
            url="http://127.0.0.1:9",
            api_key=None,
            pid=1,
            log_text=str,
            same_process=lambda: True,
        )

    monkeypatch.setattr(server_bench, "lease", up_after_7_s)
    return ServerBench(
        candidate=ServerSpec(engine="simulated", backend="new"),
        reference=ServerSpec(engine="simulated", backend="old"),
        reference_backend="",
        session="now",
        keep_server_s=0.0,
        store=FileStore(tmp_path / "baselines"),
        rules=MeasuringRules(
            slo_ms={},
            min_window_s=0.0,
            strict_evidence=False,
            profile_kernels=False,
            request_timeout_s=1.0,
            label="test",
            software={},
        ),
        listener=Listener(on_run=nobody, on_progress=nobody, on_start=nobody, on_wait=nobody, on_ready=nobody),
        node_command=nobody,  # type: ignore[arg-type]
    )


def test_an_arm_that_was_never_launched_is_expected_to_take_what_the_other_took(bench: ServerBench) -> None:
    """An assumption of three minutes a launch would refuse a budget that is enough."""
    assert bench.expected_launch_s(REFERENCE) == ASSUMED_LAUNCH_S["simulated"]
    bench.live()
    assert bench.expected_launch_s(REFERENCE) == bench.expected_launch_s(CANDIDATE) == 7.0
