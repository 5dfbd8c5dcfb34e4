"""A draft model's runner is evidence of its own: it neither contradicts the target's nor stands for it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_moeperf.evidence import collect, side_effects, unread_version
from pytest_moeperf.model.run import Evidence

STAMP = "[2026-11-29 22:25:09]"
LOAD = f"{STAMP} Load weight begin. avail mem=139.13 GB"
TARGET_GRAPHS = (
    f"{STAMP} Capture target decode CUDA graph begin. backend=full, bs=[1, 2]",
    f"{STAMP} Capture target decode CUDA graph end. elapsed=2.78 s",
)
TUNING = (
    f"{STAMP} Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /x/E=64.json"
)
FP8 = f"{STAMP} Fp8MoEMethod has no FLASHINFER_CUTLASS path; using triton for its fp8 experts."


def arguments(algorithm: str = "'EAGLE'", draft: str = "auto") -> str:
    return (
        f"{STAMP} server_args=ServerArgs(device='cuda', speculative_algorithm={algorithm}, "
        f"speculative_moe_runner_backend='{draft}')"
    )


def first_layer(version: str) -> str:
    """0.5.14 prints the flag, 0.5.23 what its first layer took; both once a process."""
    runner = "flashinfer_cutlass" if version == "0.5.14" else "MoeRunnerBackend.FLASHINFER_CUTLASS"
    return (
        f"{STAMP} FlashInfer TRTLLM MoE deferred finalize is disabled (moe_runner_backend={runner}, "
        f"quant_method=ModelOptNvFp4FusedMoEMethod)."
    )


def seen(requested: str, *lines: str, version: str = "0.5.14", **changes: Any) -> Evidence:
    facts: dict[str, Any] = {
        "engine": "sglang",
        "engine_version": version,
        "requested": requested,
        "device": "cuda",
        "log_text": "\n".join(lines),
        "server_info": {"moe_runner_backend": requested, "device": "cuda"},
        "metrics_text": "",
    }
    return collect(**facts | changes)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
@pytest.mark.parametrize("draft", ["auto", "triton", "flashinfer_cutlass"])
def test_a_draft_layers_triton_does_not_contradict_the_targets_runner(version: str, draft: str) -> None:
    log = (arguments(draft=draft), LOAD, first_layer(version), LOAD, *TARGET_GRAPHS, TUNING)
    evidence = seen("flashinfer_cutlass", *log, version=version)
    assert (evidence.status, evidence.runner) == ("confirmed", "flashinfer_cutlass")
    [told] = [note for note in side_effects(evidence) if note.startswith("draft")]
    assert told.startswith("draft: triton: ")
    assert "server log line 7" in told


@pytest.mark.parametrize("requested", ["flashinfer_cutlass", "triton", "auto"])
def test_a_line_that_either_left_proves_nothing_of_the_target(requested: str) -> None:
    evidence = seen(requested, arguments(), LOAD, LOAD, TUNING)
    assert evidence.status == "unknown"
    assert any(item.text.startswith("draft: triton") for item in evidence.items)


@pytest.mark.parametrize(
    "log",
    [
        # Before the draft model's weights are loaded, and while the target's graphs are captured, only the target runs.
        (LOAD, FP8, LOAD),
        (LOAD, LOAD, TARGET_GRAPHS[0], f"Capturing (bs=2):  50%|#| 1/2{TUNING}", TARGET_GRAPHS[1]),
    ],
)
def test_the_targets_own_fallback_still_contradicts(log: tuple[str, ...]) -> None:
    evidence = seen("flashinfer_cutlass", arguments(), *log, version="0.5.20")
    assert (evidence.status, evidence.runner) == ("contradicted", "triton")


def test_the_ranks_of_one_server_load_one_model() -> None:
    ranks = [LOAD.replace("09]", f"09 TP{rank}]") for rank in range(2)]
    evidence = seen("flashinfer_cutlass", arguments(), *ranks, FP8.replace("09]", "09 TP0]"), *ranks)
    assert (evidence.status, evidence.runner) == ("contradicted", "triton")


@pytest.mark.parametrize("algorithm", ["None", "'NGRAM'"])
def test_without_a_draft_model_every_line_is_the_targets(algorithm: str) -> None:
    # SGLang resolves the draft's runner to the target's whether or not anything is drafted.
    log = (arguments(algorithm, draft="triton"), LOAD, TUNING)
    assert seen("flashinfer_cutlass", *log).status == "contradicted"
    assert seen("triton", *log).status == "confirmed"


def test_a_draft_model_without_experts_leaves_no_trace_of_a_runner() -> None:
    log = (arguments("'EAGLE3'"), LOAD, LOAD, TUNING)
    assert seen("flashinfer_cutlass", *log, draft_has_experts=False).status == "contradicted"


def test_a_profile_of_both_confirms_the_targets_kernels_and_tells_the_drafts() -> None:
    cutlass = "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<float>(float const*)"
    both = seen("flashinfer_cutlass", arguments(), kernels=[cutlass, "fused_moe_kernel"])
    assert (both.status, both.runner) == ("confirmed", "flashinfer_cutlass")
    assert any(note.startswith("draft: triton") for note in side_effects(both))
    alone = seen("flashinfer_cutlass", arguments(), kernels=["fused_moe_kernel"])
    assert alone.status == "contradicted"
    assert seen("flashinfer_cutlass", kernels=[cutlass, "fused_moe_kernel"]).status == "contradicted"


# ---- versions that nobody read ----


@pytest.mark.parametrize("version", ["0.5.24", "0.6.0", "0.0.0.dev1+gabc", "0.5.6.post3.dev1278", ""])
def test_a_line_that_names_the_runner_itself_holds_in_any_version(version: str) -> None:
    evidence = seen("flashinfer_cutlass", FP8, version=version)
    assert (evidence.status, evidence.runner) == ("contradicted", "triton")
    assert seen("triton", FP8, version=version).status == "confirmed"
    enumerated = first_layer("0.5.23")
    assert seen("flashinfer_cutlass", enumerated, version=version).status == "confirmed"
    # A flag stays a claim, and so does a line whose meaning was read in other versions.
    assert seen("flashinfer_cutlass", first_layer("0.5.14"), version=version).status == "unknown"


def test_a_version_that_nobody_read_is_told() -> None:
    assert unread_version("sglang", "0.5.20") == ""
    assert unread_version("an-engine-without-rules", "1.0") == ""
    assert unread_version("sglang", "0.6.0") == (
        "sglang 0.6.0: the evidence rules were read in 0.5.14 to 0.5.23; here only lines that name the runner in their "
        "own words prove which one ran, a flag stays a claim (--perf-profile settles it in any version)"
    )
