"""A small store and reports for the command line's tests, made by the product's own code with seeded noise."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_moeperf.baselines import FileStore, Refusal, propose_update, stored_runs
from pytest_moeperf.cli import main
from pytest_moeperf.fingerprint import build_fingerprint
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import Check, Distribution, Evidence, EvidenceItem, Fingerprint, Launch, Metrics, Run
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import BoundResult, Decision, Interval, Outcome, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.reporting.json import write_json
from pytest_moeperf.reporting.view import Heading, build_view

ENGINE, MODEL = "simulated", "moe-64x8"
BOUNDS = (Bound(metric="throughput"), Bound(metric="tpot"))
LEVELS = {1: 361.0, 10: 2210.0, 64: 11_700.0}


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str


def moeperf(*arguments: str) -> Ran:
    """Run ``moeperf`` in this process, as its entry point does."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def cell(concurrency: int = 10, backend: str = "triton") -> Cell:
    return Cell(backend=backend, workload=Workload(concurrency=concurrency))


def fingerprint(of: Cell, *, kernel: str = "6.14.11", driver: str = "580.95") -> Fingerprint:
    return build_fingerprint(
        workload=of.workload.as_fields(),
        server_info={"moe_runner_backend": of.backend, "tp_size": 8, "num_continuous_decode_steps": 1},
        env={},
        software={"engine": ENGINE, "engine_version": "0.5.14"},
        hardware={"gpu_name": "RTX PRO 6000", "gpu_count": 8, "driver": driver},
        environment={"kernel": kernel, "cpu_governor": "performance"},
    )


def evidence(of: Cell) -> Evidence:
    item = EvidenceItem(
        source="server log line 32", text="Using default MoE kernel config", runner=of.backend, says="confirmed"
    )
    return Evidence(status="confirmed", requested=of.backend, runner=of.backend, items=(item,))


def runs(
    of: Cell,
    *,
    day: int,
    launches: int = 2,
    factor: float = 1.0,
    session_sd: float = 0.004,
    launch_sd: float = 0.003,
    given: Fingerprint | None = None,
    checks: Sequence[Check] = (),
) -> tuple[Run, ...]:
    """One session of a day: some launches, three runs each."""
    noise = random.Random(f"{of.key} {day}")
    session = LEVELS[of.workload.concurrency] * factor * (1 + noise.gauss(0, session_sd))
    found = []
    for number in range(1, launches + 1):
        launch = session * (1 + noise.gauss(0, launch_sd))
        for index in range(3):
            tok_s = launch * (1 + noise.gauss(0, 0.001))
            found.append(
                Run(
                    id=f"d{day}-{number}-{index}",
                    cell=of,
                    launch=Launch(id=f"d{day}-{number}", session=f"d{day}", start_s=12.0 + number / 10),
                    index=index,
                    started_at=f"2024-11-{day:02}T10:{number:02}:{index:02}+00:00",
                    metrics=_metrics(of, tok_s),
                    client=ClientReport(clock="kernel"),
                    checks=tuple(checks),
                    evidence=evidence(of),
                    fingerprint=given or fingerprint(of),
                )
            )
    return tuple(found)


def _metrics(of: Cell, tok_s: float) -> Metrics:
    workload = of.workload
    tpot_ms = 1000 * workload.concurrency / tok_s
    nothing = Distribution(n=workload.num_prompts)
    duration_s = workload.num_prompts * workload.output_len / (0.97 * tok_s)
    return Metrics(
        completed=workload.num_prompts,
        failed=0,
        output_tokens=workload.num_prompts * workload.output_len,
        duration_s=duration_s,
        out_tps=tok_s * 0.97,
        out_tps_steady=tok_s,
        steady_window_s=0.9 * duration_s,
        steady_share=0.9,
        request_rate=None,
        effective_concurrency=float(workload.concurrency),
        ttft_ms=nothing,
        tpot_ms=replace(nothing, mean=tpot_ms),
        ntpot_ms=nothing,
        itl_ms=nothing,
        icl_ms=nothing,
        e2el_ms=nothing,
    )


def decided(of: Cell, verdict: Verdict, *, estimate: float = 0.0) -> Decision:
    """A decision on throughput with this log-ratio effect."""
    interval = Interval(
        estimate=estimate, lower=estimate - 0.01, upper=estimate + 0.01, level=0.95, n=4, method="paired, look 1 of 3"
    )
    result = BoundResult(bound=BOUNDS[0], verdict=verdict, measured=1.0, baseline=1.0, interval=interval)
    return Decision(cell=of, verdict=verdict, results=(result,), pairs=4, phase="confirm")


def record(
    folder: Path, of: Cell, *, days: Sequence[int], factor: float = 1.0, given: Fingerprint | None = None
) -> str:
    """Store a session a day, as ``--update-baselines`` does. Returns the path."""
    store = FileStore(folder)
    stored: Baseline | None = None
    path = ""
    for day in days:
        update = propose_update(
            stored,
            stored_runs(runs(of, day=day, factor=factor, given=given)),
            engine=ENGINE,
            model=MODEL,
            bounds=BOUNDS,
            decision=decided(of, Verdict.EQUIVALENT if stored else Verdict.NO_BASELINE),
            fingerprint=given or fingerprint(of),
            evidence=evidence(of),
            max_drift=0.1,
            by="--update-baselines",
            at=f"2024-11-{day:02}T11:00:00+00:00",
        )
        assert not isinstance(update, Refusal), update
        path, stored = store.save(update.baseline)
    return path


def outcome(decision: Decision, made: Sequence[Run]) -> Outcome:
    return Outcome(
        decision=decision,
        runs=tuple(made),
        node_id=f"test_serving.py::test_decode[{decision.cell.backend}-{decision.cell.workload.concurrency}]",
        evidence=evidence(decision.cell),
        session={"engine": ENGINE, "model": MODEL, "hardware": "8x RTX PRO 6000"},
    )


def report(folder: Path, *outcomes: Outcome) -> Path:
    """Write ``moeperf.json`` as ``--perf-report`` does."""
    view = build_view(
        outcomes,
        heading=Heading(engine=ENGINE, model=MODEL),
        settings=Settings(),
        started_at="2024-11-20T10:00:00+00:00",
    )
    return write_json(view, folder)
