"""Which backend ran: on the real SGLang's own logs, and on the lines that its silent fallbacks leave on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.evidence import collect, side_effects
from pytest_moeperf.model.run import Evidence

LOGS = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu"
H200_LOGS = LOGS.parent / "sglang-0.5.14-h200"
GPU_RUNNERS = ("triton", "flashinfer_cutlass", "deep_gemm", "cutlass", "marlin", "flashinfer_mxfp4")


def deferred(flag: str, method: str) -> str:
    return (
        f"[2026-11-29 22:25:09] FlashInfer TRTLLM MoE deferred finalize is disabled (moe_runner_backend={flag}, "
        f"quant_method={method})."
    )


TRITON_TUNING = (
    "[2026-11-29 22:25:10] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
    "/x/E=64,N=768,device_name=NVIDIA_H200.json, you can create them with https://github.com/sgl-project/sglang/tree/main"
)


def seen(requested: str, *lines: str, version: str | None = "0.5.23", **changes: Any) -> Evidence:
    facts: dict[str, Any] = {
        "engine": "sglang",
        "engine_version": version,
        "requested": requested,
        "device": "cuda",
        "log_text": "\n".join(("[2026-11-29 22:25:00] a line before", *lines, "[2026-11-29 22:26:00] a line after")),
        "server_info": {"moe_runner_backend": requested, "device": "cuda"},
        "metrics_text": "",
    }
    return collect(**facts | changes)


# ---- the real engine on a CPU ----


@pytest.mark.parametrize("requested", GPU_RUNNERS)
def test_on_a_cpu_every_gpu_runner_is_contradicted(requested: str) -> None:
    log = (LOGS / f"{requested}.log").read_text("utf-8")
    info = json.loads((LOGS / "server_info.json").read_text("utf-8")) | {"moe_runner_backend": requested}
    metrics = (LOGS / "metrics.txt").read_text("utf-8")
    evidence = collect(
        engine="sglang",
        engine_version=None,
        requested=requested,
        device="cpu",
        log_text=log,
        server_info=info,
        metrics_text=metrics,
    )
    assert (evidence.status, evidence.runner) == ("contradicted", "native")
    assert evidence.items[0].source == "/server_info device"
    assert evidence.items[0].text == "cpu"
    assert evidence.looked_for == ()


@pytest.mark.parametrize("requested", GPU_RUNNERS)
def test_the_log_alone_is_enough_for_that_in_any_version(requested: str) -> None:
    log = (LOGS / f"{requested}.log").read_text("utf-8")
    for version in ("0.5.14", "0.9.9", None):
        evidence = seen(requested, version=version, log_text=log, server_info=None)
        assert (evidence.status, evidence.runner) == ("contradicted", "native")
        assert evidence.items[0].source == "server log line 15"
        assert "device='cpu'" in evidence.items[0].text


@pytest.mark.parametrize("requested", ["", "auto", "native", "torch_native"])
def test_what_a_cpu_really_runs_is_confirmed(requested: str) -> None:
    log = (LOGS / "auto.log").read_text("utf-8")
    evidence = seen(requested, version="0.5.14", log_text=log, server_info=None, device="cpu")
    assert (evidence.status, evidence.runner) == ("confirmed", "native")


@pytest.mark.parametrize("requested", ["triton", "triton_kernel"])
def test_what_an_h200_really_runs_is_confirmed_by_its_log(requested: str) -> None:
    log = (H200_LOGS / f"{requested}.log").read_text("utf-8")
    evidence = seen(requested, version="0.5.14", log_text=log)
    assert (evidence.status, evidence.runner) == ("confirmed", requested)
    assert evidence.items[0].source == "server log line 20"
    other = {"triton": "triton_kernel", "triton_kernel": "triton"}[requested]
    assert seen(other, version="0.5.14", log_text=log).status == "contradicted"


def test_a_real_logs_side_effects_are_told_with_their_lines() -> None:
    log = (LOGS / "fail_backend_flashinfer_trtllm.log").read_text("utf-8")
    notes = side_effects(seen("flashinfer_trtllm", version="0.5.14", log_text=log, server_info=None, device="cpu"))
    assert any(note.startswith("shared-experts fusion is off") and "server log line 14" in note for note in notes)
    assert any(note.startswith("attention runs on another backend") and "torch_native" in note for note in notes)


# ---- the table of silent fallbacks ----


@pytest.mark.parametrize(
    ("version", "requested", "line", "status", "runner"),
    [
        # From 0.5.23 on the layer names its own runner.
        ("0.5.23", "triton", deferred("MoeRunnerBackend.TRITON", "UnquantizedFusedMoEMethod"), "confirmed", "triton"),
        ("0.5.23", "cutlass", deferred("MoeRunnerBackend.TRITON", "Fp8MoEMethod"), "contradicted", "triton"),
        (
            *("0.5.23", "triton_kernel", deferred("MoeRunnerBackend.TRITON_KERNELS", "UnquantizedFusedMoEMethod")),
            *("confirmed", "triton_kernel"),
        ),
        ("0.5.23", "marlin", deferred("None", "Fp8MoEMethod"), "unknown", None),
        # Before, it repeated the flag; what the layer makes of it depends on its method.
        (
            "0.5.14",
            "flashinfer_cutlass",
            deferred("flashinfer_cutlass", "UnquantizedFusedMoEMethod"),
            "confirmed",
            None,
        ),
        ("0.5.14", "triton_kernel", deferred("triton_kernel", "UnquantizedFusedMoEMethod"), "confirmed", None),
        ("0.5.14", "cutlass", deferred("cutlass", "UnquantizedFusedMoEMethod"), "contradicted", "triton"),
        ("0.5.22", "marlin", deferred("marlin", "UnquantizedFusedMoEMethod"), "contradicted", "triton"),
        (
            "0.5.18",
            "flashinfer_mxfp4",
            deferred("flashinfer_mxfp4", "UnquantizedFusedMoEMethod"),
            "contradicted",
            "triton",
        ),
        (
            "0.5.14",
            "flashinfer_cutedsl",
            deferred("flashinfer_cutedsl", "ModelOptNvFp4FusedMoEMethod"),
            "confirmed",
            None,
        ),
        ("0.5.14", "flashinfer_cutlass", deferred("flashinfer_cutlass", "W8A8FP8MoEMethod"), "contradicted", "triton"),
        ("0.5.14", "deep_gemm", deferred("deep_gemm", "ModelOptFp8MoEMethod"), "contradicted", "triton"),
        ("0.5.14", "flashinfer_cutlass", deferred("flashinfer_cutlass", "ModelOptFp8MoEMethod"), "unknown", None),
        ("0.5.14", "flashinfer_cutlass", deferred("flashinfer_cutlass", "AMethodNobodyRead"), "unknown", None),
        # Lines of their own.
        (
            *("0.5.23", "flashinfer_cutlass"),
            "[x] Fp8MoEMethod has no FLASHINFER_CUTLASS path; using triton for its fp8 experts.",
            *("contradicted", "triton"),
        ),
        ("0.5.14", "flashinfer_cutlass", TRITON_TUNING, "contradicted", "triton"),
        ("0.5.14", "triton", TRITON_TUNING, "confirmed", "triton"),
        ("0.5.23", "triton", "[x] Using MoE kernel config from /x/E=64.json.", "confirmed", "triton"),
        ("0.5.14", "deep_gemm", "[x] Using CompressedTensorsW4A4Nvfp4MoE", "contradicted", "flashinfer_cutlass"),
        ("0.5.14", "flashinfer_cutlass", "[x] Using CompressedTensorsW4A4Nvfp4MoE", "confirmed", None),
        # What the server says it will do instead.
        (
            *("0.5.23", "triton", "[x] mxfp8 quantization supports only cutlass backends. Overriding 'triton'."),
            *("contradicted", None),
        ),
        (
            *("0.5.23", "deep_gemm"),
            "[x] MiniMax-M3: the deep_gemm MoE runner is unsound; overriding --moe-runner-backend to 'triton'.",
            *("contradicted", "triton"),
        ),
        (
            "0.5.14",
            "triton",
            "[x] Use flashinfer_trtllm as MoE runner backend on sm100 for X",
            "contradicted",
            "flashinfer_trtllm",
        ),
        # Not proof of anything.
        ("0.5.14", "flashinfer_cutlass", "[x] Running FlashInfer autotune with cache: /c", "unknown", None),
        ("0.5.14", "deep_gemm", "[x] Entering DeepGEMM JIT Pre-Compile session. It may take", "unknown", None),
    ],
)
def test_silent_fallbacks(version: str, requested: str, line: str, status: str, runner: str | None) -> None:
    evidence = seen(requested, line, version=version)
    assert evidence.status == status
    assert evidence.runner == (requested if status == "confirmed" else runner)
    if status == "unknown":
        assert evidence.looked_for
    else:
        assert evidence.items[0].source == "server log line 2"


def test_proof_of_two_runners_contradicts_and_names_both() -> None:
    evidence = seen(
        "flashinfer_cutlass",
        deferred("MoeRunnerBackend.FLASHINFER_CUTLASS", "ModelOptNvFp4FusedMoEMethod"),
        TRITON_TUNING,
    )
    assert evidence.status == "contradicted"
    assert evidence.runner == "flashinfer_cutlass + triton"


def test_a_draft_layers_triton_is_no_proof_against_the_experts() -> None:
    nextn = "[x] Use triton fused moe by default for bf16 nextn layer in deepseek fp4 checkpoint."
    assert seen("flashinfer_trtllm", nextn, TRITON_TUNING, version="0.5.14").status == "unknown"


def test_the_engines_own_choice_is_whatever_ran() -> None:
    evidence = seen("auto", TRITON_TUNING)
    assert (evidence.status, evidence.runner) == ("confirmed", "triton")
    assert seen("auto").status == "unknown"


# ---- kernels ----


@pytest.mark.parametrize(
    ("kernel", "runner"),
    [
        ("fused_moe_kernel", "triton"),
        ("_matmul_ogs_NNT_bf16xbf16xbf16_128x128x64x1_swiglu", "triton_kernel"),
        ("_p_matmul_ogs", "triton_kernel"),
        (
            "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<float>(float const*)",
            "flashinfer_cutlass",
        ),
        ("moe::dev::routing::routingDeepSeek::routingMainKernel<>", "flashinfer_trtllm"),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_sm100f", "flashinfer_trtllm"),
        ("kernel_cutlass_kernel_flashinfergemmkernelsgrouped_gemm_masked_blackwell_0", "flashinfer_cutedsl"),
        ("void deep_gemm::sm90_bf16_gemm_impl<0u, 1u, (deep_gemm::GemmType)1, false>(int)", "deep_gemm"),
    ],
)
def test_a_profile_shows_what_executed_in_any_version(kernel: str, runner: str) -> None:
    kernels = ["void at::native::vectorized_elementwise_kernel<4>", "ncclDevKernel_AllReduce", kernel]
    for version in ("0.5.14", "1.2.3", None):
        confirmed = seen(runner, version=version, kernels=kernels)
        assert (confirmed.status, confirmed.runner) == ("confirmed", runner)
        other = "marlin"
        assert seen(other, version=version, kernels=kernels).status == "contradicted"


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(deep_gemm::GemmType)0>(int)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>",
        "moe_align_block_size_kernel",
        "_fwd_kernel_stage1",
    ],
)
def test_a_kernel_of_dense_layers_proves_no_runner(kernel: str) -> None:
    assert seen("flashinfer_cutlass", kernels=[kernel]).status == "unknown"


def test_runners_that_share_kernels_are_both_confirmed() -> None:
    assert seen("flashinfer_trtllm_routed", kernels=["moe::dev::finalize::finalizeKernel"]).status == "confirmed"


# ---- what is not known ----


def test_an_unknown_version_confirms_nothing_by_its_lines_and_says_what_was_looked_for() -> None:
    for version in ("0.4.6", "0.7.0", None, "main"):
        evidence = seen("triton", TRITON_TUNING, version=version)
        assert evidence.status == "unknown"
        assert any("0.5.14 to 0.5.23" in line for line in evidence.looked_for)
        assert any(item.runner == "triton" and item.says == "unknown" for item in evidence.items)


@pytest.mark.parametrize(
    "server_info", [None, {}, {"device": None}, {"moe_runner_backend": 7}, {"version": ["odd"]}, {"device": {"a": 1}}]
)
def test_odd_or_missing_server_info_is_unknown(server_info: Any) -> None:
    evidence = seen("flashinfer_cutlass", server_info=server_info, log_text="", metrics_text=None)
    assert evidence.status == "unknown"
    assert "the server's log: not there" in evidence.looked_for
    assert "a kernel profile: not there" in evidence.looked_for


def test_an_engine_without_rules_and_a_runner_without_a_name_are_unknown() -> None:
    assert seen("x", engine="attached", server_info={"model": "m"}).status == "unknown"
    assert "'attached'" in seen("x", engine="attached", server_info=None).looked_for[0]
    nameless = seen("my-profile", TRITON_TUNING)
    assert (nameless.status, nameless.runner) == ("unknown", None)
    assert "'my-profile'" in nameless.looked_for[0]


def test_an_attached_server_that_answers_like_sglang_is_read_as_one() -> None:
    info = {"moe_runner_backend": "triton", "device": "cpu", "version": "0.5.14"}
    assert seen("triton", engine="attached", version=None, server_info=info, log_text="").status == "contradicted"


def test_a_key_in_the_log_does_not_come_out() -> None:
    keys = f"api_key='planted-secret', {'x=1, ' * 40}admin_api_key='planted-secret'"
    line = f"[x] server_args=ServerArgs({keys}, device='cpu')"
    evidence = seen("triton", line, "Using MoE kernel config from https://u:planted-secret@h/x")
    assert evidence.status == "contradicted"
    assert "planted-secret" not in repr(evidence)


def test_decode_steps_without_a_graph_are_noted_on_a_gpu_only() -> None:
    metrics = (LOGS / "metrics_after_bench.txt").read_text("utf-8")
    assert any("without a CUDA graph" in note for note in side_effects(seen("triton", metrics_text=metrics)))
    on_cpu = seen("triton", metrics_text=metrics, server_info={"device": "cpu"})
    assert not any("CUDA graph" in note for note in side_effects(on_cpu))
