"""What a bench knows before a launch: how long it may take, and what can't be compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.bench import server_bench
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.live import MeasuringRules
from pytest_moeperf.bench.place import Place
from pytest_moeperf.bench.server_bench import ASSUMED_LAUNCH_S, ServerBench
from pytest_moeperf.fingerprint import build_fingerprint
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.environment import EnvironmentFacts
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Evidence
from pytest_moeperf.model.spec import NO_MODEL, ServerSpec
from pytest_moeperf.model.workload import Cell, Workload

RULES = MeasuringRules(
    slo_ms={},
    min_window_s=0.0,
    strict_evidence=False,
    profile_kernels=False,
    request_timeout_s=1.0,
    label="test",
    wait_until=None,
    software={},
)


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
    return bench_of("simulated", tmp_path / "baselines")


def bench_of(engine: str, baselines: Path) -> ServerBench:
    return ServerBench(
        candidate=ServerSpec(engine=engine, backend="new"),
        reference=ServerSpec(engine=engine, backend="old"),
        reference_backend="",
        session="now",
        keep_server_s=0.0,
        store=FileStore(baselines),
        rules=RULES,
        listener=Listener(on_run=nobody, on_progress=nobody, on_start=nobody, on_wait=nobody, on_ready=nobody),
        node_command=nobody,  # type: ignore[arg-type]
    )


def test_an_arm_that_was_never_launched_is_expected_to_take_what_the_other_took(bench: ServerBench) -> None:
    """An assumption of three minutes a launch would refuse a budget that is enough."""
    assert bench.expected_launch_s(REFERENCE) == ASSUMED_LAUNCH_S["simulated"]
    bench.live()
    assert bench.expected_launch_s(REFERENCE) == bench.expected_launch_s(CANDIDATE) == 7.0


@pytest.mark.parametrize(
    ("engine", "gpus", "foreseen"),
    [("sglang", 2, ["hardware.gpu_count"]), ("sglang", 1, []), ("simulated", 2, [])],
)
def test_another_machine_is_known_before_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, gpus: int, foreseen: list[str]
) -> None:
    """But for the simulated engine, which imagines its own."""
    cell = Cell(backend="new", workload=Workload(concurrency=10))
    stored = build_fingerprint(
        workload=cell.workload.as_fields(),
        server_info={"tp_size": 1},
        env={},
        software={"torch": "2.14.1"},
        hardware={"gpu_name": "NVIDIA H200", "gpu_count": 1},
        environment={"kernel": "6.8.0"},
    )
    run = StoredRun(id="1", session="s", launch="l", started_at="", values={"throughput": 10.0})
    baseline = Baseline(
        engine=engine, model=NO_MODEL, cell=cell, fingerprint=stored, evidence=Evidence(), runs=(run,), anchor=(run,)
    )
    FileStore(tmp_path).save(baseline)
    facts = EnvironmentFacts(hardware={"gpu_name": "NVIDIA H200", "gpu_count": gpus}, software={}, environment={})
    monkeypatch.setattr(server_bench, "place_of", lambda spec, **_: Place(spec=spec, facts=facts, gpus=()))
    match = bench_of(engine, tmp_path).foreseen(cell)
    assert match.baseline is not None
    assert [difference.field for difference in match.differences if difference.blocking] == foreseen
    assert match.comparable is (not foreseen)
    assert bench_of(engine, tmp_path).foreseen(replace(cell, backend="other")).baseline is None


def test_nobody_waits_for_others_beyond_the_budget() -> None:
    assert RULES.wait_timeout_s == 4 * 3600.0
    now = time.monotonic()
    assert replace(RULES, wait_until=now - 1.0).wait_timeout_s == 0.0
    assert 50.0 < replace(RULES, wait_until=now + 60.0).wait_timeout_s <= 60.0
