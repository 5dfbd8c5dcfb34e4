"""One sweep of GLM-5-NVFP4 on eight RTX PRO 6000: flashinfer_cutedsl held against flashinfer_cutlass."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import (
    CANDIDATE,
    REFERENCE,
    Check,
    Distribution,
    Evidence,
    EvidenceItem,
    Fingerprint,
    Launch,
    Metrics,
    Plain,
    Run,
)
from pytest_moeperf.model.settings import GateSettings, ServerSettings, Settings
from pytest_moeperf.model.verdict import BoundResult, Decision, Difference, Interval, Outcome, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.reporting.view import Heading, View, build_view

BACKEND = "flashinfer_cutedsl"
REFERENCE_BACKEND = "flashinfer_cutlass"
STARTED = "2026-11-28T01:52:07+00:00"
COMMAND = "pytest -m perf --backend=flashinfer_cutedsl"
CEILING_TOK_S = 309.0

CUTLASS = {1: 10.36, 2: 19.29, 10: 38.46, 64: 218.74, 256: 718.83, 1024: 1603.04}
CUTEDSL = {1: 10.07, 2: 19.24, 10: 64.29, 64: 249.23, 256: 515.58, 1024: 796.93}
TPOT_MS = {1: 97.64, 2: 101.9, 10: 128.95, 64: 239.1, 256: 463.2, 1024: 1174.8}

THROUGHPUT = Bound(metric="throughput")
TPOT = Bound(metric="tpot")

CONFIRMED = Evidence(
    status="confirmed",
    requested=BACKEND,
    runner=BACKEND,
    items=(
        EvidenceItem(
            source="server log line 32",
            text="Using flashinfer_cutedsl MoE runner",
            runner=BACKEND,
            says="confirmed",
            rule="sglang.log.runner",
        ),
        EvidenceItem(
            source="/server_info moe_runner_backend",
            text=BACKEND,
            runner=None,
            says="unknown",
            rule="sglang.server_info",
        ),
    ),
)

BACKEND_DIFFERS = Difference(
    field="server.moe_runner_backend", baseline=REFERENCE_BACKEND, here=BACKEND, blocking=False
)


def cell(concurrency: int, backend: str = BACKEND) -> Cell:
    return Cell(backend=backend, workload=Workload(concurrency=concurrency))


def interval(change: float, lower: float, upper: float, *, n: int = 4, level: float = 0.95) -> Interval:
    """Of a throughput, from relative changes."""
    return Interval(
        estimate=math.log1p(change),
        lower=math.log1p(lower),
        upper=math.log1p(upper),
        level=level,
        n=n,
        method="paired, look 1 of 3" if n > 1 else "prediction interval, 4 sessions x 2 launches stored",
    )


def distribution(mean: float, *, n: int, spread: float = 0.06) -> Distribution:
    return Distribution(
        n=n,
        mean=mean,
        p50=mean * 0.99,
        p90=mean * (1 + 1.3 * spread),
        p99=mean * (1 + 2.6 * spread) if n >= 40 else None,
        minimum=mean * (1 - 1.5 * spread),
        maximum=mean * (1 + 3 * spread),
    )


def metrics(*, concurrency: int, tok_s: float, tpot_ms: float) -> Metrics:
    prompts = 4 * concurrency
    duration_s = prompts * 128 / tok_s
    return Metrics(
        completed=prompts,
        failed=0,
        output_tokens=prompts * 128,
        duration_s=duration_s,
        out_tps=tok_s * 0.97,
        out_tps_steady=tok_s,
        steady_window_s=duration_s * 0.9,
        steady_share=0.9,
        request_rate=tok_s / 128,
        effective_concurrency=concurrency * 0.99,
        ttft_ms=distribution(180 + 3.1 * concurrency, n=prompts, spread=0.2),
        tpot_ms=distribution(tpot_ms, n=prompts),
        ntpot_ms=distribution(tpot_ms * 1.02, n=prompts),
        itl_ms=distribution(tpot_ms * 0.98, n=prompts * 127),
        icl_ms=distribution(tpot_ms * 0.98, n=prompts * 127),
        e2el_ms=distribution(tpot_ms * 128, n=prompts),
        tokens_per_event=1.0,
        cached_tokens=0,
        prompt_tokens=prompts * 512,
    )


def fingerprint(backend: str, *, kernel: str = "6.14.11", changes: Mapping[str, Plain] | None = None) -> Fingerprint:
    server: dict[str, Plain] = {
        "moe_runner_backend": backend,
        "tensor_parallel": 8,
        "quantization": "modelopt_fp4",
        "num_continuous_decode_steps": 16,
    }
    return Fingerprint(
        workload={"input_len": 512, "output_len": 128, "dataset": "random-ids"},
        server={**server, **(changes or {})},
        software={"sglang": "0.5.14", "flashinfer": "0.6.3", "torch": "2.11.0+cu130"},
        hardware={"gpu": "RTX PRO 6000 Blackwell", "gpu_count": 8, "driver": "580.95"},
        environment={"kernel": kernel, "governor": "performance", "pcie_max_read_req": 4096},
    )


def runs(
    concurrency: int,
    *,
    tok_s: float,
    launches: int,
    arm: str = CANDIDATE,
    checks: tuple[Check, ...] = (),
    runs_per_launch: int = 3,
) -> tuple[Run, ...]:
    backend = BACKEND if arm == CANDIDATE else REFERENCE_BACKEND
    noise = random.Random(f"{arm} {concurrency}")
    made = []
    for number in range(launches):
        launch_factor = math.exp(noise.gauss(0, 0.008))
        launch = Launch(
            id=f"{arm}-{number + 1}",
            session="20261128-015207",
            arm=arm,
            engine="sglang",
            backend=backend,
            command=("python", "-m", "sglang.launch_server", "--moe-runner-backend", backend, "--api-key", "sk-1234"),
            started_at=f"2026-11-28T0{2 + number}:{10 if arm == CANDIDATE else 30}:00+00:00",
            start_s=181.0,
        )
        for index in range(runs_per_launch):
            value = tok_s * launch_factor * math.exp(noise.gauss(0, 0.004))
            made.append(
                Run(
                    id=f"{launch.id}-c{concurrency}-{index}",
                    cell=cell(concurrency, backend),
                    launch=launch,
                    index=index,
                    started_at=launch.started_at.replace(":00+", f":{10 * index + 5:02d}+"),
                    metrics=metrics(
                        concurrency=concurrency,
                        tok_s=value,
                        tpot_ms=TPOT_MS[concurrency] * CUTEDSL[concurrency] / value,
                    ),
                    client=ClientReport(clock="kernel", stamp_delay_ms_p50=0.008, stamp_delay_ms_p99=0.031),
                    checks=checks if index == 0 else (),
                    evidence=CONFIRMED if arm == CANDIDATE else Evidence(),
                    fingerprint=fingerprint(backend),
                    ceiling_tok_s=CEILING_TOK_S if concurrency == 1 else None,
                )
            )
    return tuple(made)


def outcome(
    concurrency: int,
    verdict: Verdict,
    *,
    results: Sequence[BoundResult] = (),
    pairs: int = 0,
    differences: tuple[Difference, ...] = (BACKEND_DIFFERS,),
    reasons: tuple[str, ...] = (),
    odd: tuple[str, ...] = (),
    next_steps: tuple[str, ...] = (),
    evidence: Evidence = CONFIRMED,
    made: tuple[Run, ...] | None = None,
    phase: str = "",
) -> Outcome:
    if made is None:
        made = runs(concurrency, tok_s=CUTEDSL[concurrency], launches=pairs + 1)
        if pairs:
            made += runs(concurrency, tok_s=CUTLASS[concurrency], launches=pairs, arm=REFERENCE)
    return Outcome(
        decision=Decision(
            cell=cell(concurrency),
            verdict=verdict,
            results=tuple(results),
            reasons=reasons,
            odd=odd,
            next_steps=next_steps,
            differences=differences,
            candidate_launches=pairs + 1,
            reference_launches=pairs,
            pairs=pairs,
            phase=phase or ("confirm" if pairs else "screen"),
        ),
        runs=made,
        node_id=f"tests/perf/test_moe.py::test_decode[{BACKEND}-{concurrency}]",
        evidence=evidence,
        ceiling_tok_s=CEILING_TOK_S if concurrency == 1 else None,
        efficiency=CUTEDSL[1] / CEILING_TOK_S if concurrency == 1 else None,
    )


def result(
    concurrency: int, verdict: Verdict, found: Interval | None = None, *, bound: Bound = THROUGHPUT, reason: str = ""
) -> BoundResult:
    return BoundResult(
        bound=bound,
        verdict=verdict,
        measured=CUTEDSL[concurrency],
        baseline=CUTLASS[concurrency],
        interval=found,
        reason=reason,
    )


def equivalent(concurrency: int = 1) -> Outcome:
    change = CUTEDSL[concurrency] / CUTLASS[concurrency] - 1
    found = interval(change, change - 0.012, change + 0.012, n=1)
    return outcome(concurrency, Verdict.EQUIVALENT, results=[result(concurrency, Verdict.EQUIVALENT, found)])


def incomparable() -> Outcome:
    return outcome(
        10,
        Verdict.INCOMPARABLE,
        results=[replace(result(10, Verdict.INCOMPARABLE), baseline=None)],
        differences=(
            Difference(field="workload.num_prompts", baseline="20", here="40", blocking=True),
            Difference(field="environment.kernel", baseline="6.8.0", here="6.14.11", blocking=True),
            BACKEND_DIFFERS,
        ),
    )


def unverified_win() -> Outcome:
    return outcome(
        64,
        Verdict.UNVERIFIED_WIN,
        results=[result(64, Verdict.UNVERIFIED_WIN, interval(0.1394, 0.121, 0.158))],
        pairs=4,
        odd=("the neighbours c=2 and c=256 did not move the same way.",),
        next_steps=("{pytest} --perf-verify-wins -k {node}    (4 pairs, about 52 min)",),
    )


def regression(concurrency: int = 1024) -> Outcome:
    change = CUTEDSL[concurrency] / CUTLASS[concurrency] - 1
    tpot = BoundResult(
        bound=TPOT,
        verdict=Verdict.REGRESSION,
        measured=TPOT_MS[concurrency],
        baseline=TPOT_MS[concurrency] * (1 + change),
        interval=interval(change, change - 0.02, change + 0.03),
    )
    found = interval(change, change - 0.012, change + 0.013)
    return outcome(
        concurrency, Verdict.REGRESSION, results=[result(concurrency, Verdict.REGRESSION, found), tpot], pairs=4
    )


def invalid() -> Outcome:
    check = Check(
        name="no_failed_requests", status="fail", message="3 of 1024 requests failed (http 503), 0 are allowed."
    )
    made = runs(256, tok_s=CUTEDSL[256], launches=1, checks=(check,))
    return outcome(256, Verdict.INVALID, made=made)


def no_baseline() -> Outcome:
    return outcome(2, Verdict.NO_BASELINE, differences=())


def settings() -> Settings:
    return Settings(
        active=True,
        engine="sglang",
        model="zai-org/GLM-5-NVFP4",
        tensor_parallel=8,
        backends=(BACKEND,),
        reference=REFERENCE_BACKEND,
        server=ServerSettings(args=("--quantization=modelopt_fp4", "--api-key=sk-1234"), env={"HF_TOKEN": "hf_abc"}),
        gate=GateSettings(),
        report_dir="moeperf-report",
        provenance={
            "engine": "pyproject.toml",
            "model": "pyproject.toml",
            "tensor_parallel": "pyproject.toml",
            "backends": "command line",
            "report_dir": "MOEPERF_REPORT",
        },
    )


def heading() -> Heading:
    return Heading(
        engine="sglang",
        model="zai-org/GLM-5-NVFP4",
        hardware="8x RTX PRO 6000 Blackwell",
        candidates=(BACKEND,),
        reference=REFERENCE_BACKEND,
        launches=9,
        elapsed_s=3540.0,
    )


ENVIRONMENT = {"gpu": "8x NVIDIA RTX PRO 6000 Blackwell", "kernel": "6.14.11", "governor": "performance"}


def sweep() -> tuple[Outcome, ...]:
    return (equivalent(1), equivalent(2), incomparable(), unverified_win(), regression(256), regression(1024))


def sweep_view() -> View:
    return build_view(
        sweep(),
        heading=heading(),
        settings=settings(),
        started_at=STARTED,
        pytest_command=COMMAND,
        environment=ENVIRONMENT,
        orphans=("flashinfer_cutedsl/c512-in512-out128",),
    )


def no_change_seen() -> Outcome:
    found = interval(-0.003, -0.062, 0.06, n=1, level=0.98)
    reason = "A regression of 9.1 % or more would have been seen with 95 %."
    return outcome(
        2, Verdict.NO_CHANGE_SEEN, results=[result(2, Verdict.NO_CHANGE_SEEN, found, reason=reason)], reasons=(reason,)
    )


def non_inferior() -> Outcome:
    return outcome(
        2, Verdict.NON_INFERIOR, results=[result(2, Verdict.NON_INFERIOR, interval(-0.003, -0.03, 0.041, n=6))], pairs=6
    )


def verified_win() -> Outcome:
    return outcome(
        64,
        Verdict.VERIFIED_WIN,
        results=[result(64, Verdict.VERIFIED_WIN, interval(0.1394, 0.121, 0.158))],
        pairs=4,
        phase="verify",
        next_steps=('{pytest} --update-baselines --perf-reason="autotuned tiles" -k {node}',),
    )


def inconclusive() -> Outcome:
    found = replace(
        interval(-0.021, -0.071, 0.032, n=8), launches_to_decide=14, warnings=("Two launches are bimodal.",)
    )
    return outcome(2, Verdict.INCONCLUSIVE, results=[result(2, Verdict.INCONCLUSIVE, found)], pairs=8)


def contradicted() -> Outcome:
    evidence = Evidence(
        status="contradicted",
        requested=BACKEND,
        runner="triton",
        items=(
            EvidenceItem(
                source="server log line 32",
                text="\x1b[33mFalling back\x1b[0m to triton\n(api_key='sk-1234')",
                runner="triton",
                says="contradicted",
            ),
        ),
    )
    return outcome(64, Verdict.INVALID, evidence=evidence)


def above_limit() -> Outcome:
    bound = Bound(metric="ttft", percentile="p99", at_most_ms=500)
    judged = BoundResult(bound=bound, verdict=Verdict.REGRESSION, measured=612.4)
    return outcome(64, Verdict.REGRESSION, results=[judged])


def samples() -> dict[str, Outcome]:
    """An outcome of every verdict."""
    return {
        "equivalent": equivalent(),
        "no_change_seen": no_change_seen(),
        "non_inferior": non_inferior(),
        "verified_win": verified_win(),
        "regression": regression(),
        "above_limit": above_limit(),
        "unverified_win": unverified_win(),
        "inconclusive": inconclusive(),
        "invalid": invalid(),
        "contradicted": contradicted(),
        "incomparable": incomparable(),
        "no_baseline": no_baseline(),
    }
