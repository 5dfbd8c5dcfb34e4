"""What log lines are taken to mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.servers.hints import hint_for_exit, hint_for_silence
from pytest_moeperf.servers.phases import phase_of

EVIDENCE = Path(__file__).parents[1] / "evidence_logs"
LOGS = EVIDENCE / "sglang-0.5.14-cpu"


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out of GPU memory: lower"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "out of GPU memory: lower"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", "out of main memory"),
        (
            "launch_server.py: error: unrecognized arguments: --moe-runer-backend=triton",
            "this engine version does not know --moe-runer-backend=triton: see its --help",
        ),
        (
            "error: argument --moe-runner-backend: invalid choice: 'cutedsl' (choose from 'auto', 'triton')",
            "this engine version has no 'cutedsl' for --moe-runner-backend: see its --help for the choices",
        ),
        ("error: the following arguments are required: --model-path", "an argument is missing: --model-path"),
        ("CUDA error: no kernel image is available for execution on the device", "this kernel does not run on"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "CUDA is not available to the server"),
        ("ImportError: libcuda.so.1: cannot open shared object file", "CUDA is not available to the server"),
        (
            "ModuleNotFoundError: No module named 'flashinfer.cutedsl'",
            "the engine's interpreter has no module flashinfer.cutedsl",
        ),
        (
            "ImportError: cannot import name 'x' from 'y'",
            "a library of the engine could not be imported (cannot import",
        ),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", "the devices could not talk"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "the devices could not talk"),
        ("OSError: /models/x does not appear to have a file named config.json.", "the model is not where"),
        ("huggingface_hub.errors.HFValidationError: Repo id must be in the form", "the model is not where"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("RuntimeError: Cannot find any model weights with `/models/x`", "the model's folder holds no weights"),
        (
            "AttributeError: 'Fp8MoEMethod' object has no attribute 'runner'",
            "this engine version has no kernel of that MoE backend for a checkpoint quantized like this one",
        ),
        (
            "ValueError: User-specified context_length (1000000) is greater than the derived context_length (512).",
            "--context-length=1000000 is more than the model has (512): lower it",
        ),
    ],
)
def test_a_known_cause_gets_its_hint(line: str, begins: str) -> None:
    hint, port_taken = hint_for_exit(["Load weight begin.", line, "  at exit"], 1)
    assert hint.startswith(begins)
    assert not port_taken


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 98] Address already in use",
        "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
        "RuntimeError: Port 30000 is already in use",
    ],
)
def test_a_taken_port_is_flagged(line: str) -> None:
    assert hint_for_exit([line], 1) == (
        "another process took its port; it is launched again on another one where that is possible",
        True,
    )


@pytest.mark.parametrize(
    ("name", "hint", "port_taken"),
    [
        (
            "fail_backend_flashinfer_cutedsl",
            "FlashInfer CuteDSL MOE wants a checkpoint quantized as 'modelopt_fp4': choose another backend, or another "
            "model",
            False,
        ),
        (
            "fail_backend_flashinfer_trtllm",
            "the engine's interpreter has no module flashinfer: install it there, or name another interpreter in "
            "[tool.moeperf.server] python",
            False,
        ),
        ("fail_backend_triton_kernel", "", False),
        (
            "fail_missing_model",
            "the model is not where the configuration says: check model in [tool.moeperf]; offline machines need a "
            "folder",
            False,
        ),
        (
            "fail_port_in_use",
            "another process took its port; it is launched again on another one where that is possible",
            True,
        ),
        (
            "fail_wrong_flag",
            "this engine version does not know --moe-runner-backend-typo triton: see its --help, and args in "
            "[tool.moeperf.server] and [tool.moeperf.backends]",
            False,
        ),
    ],
)
def test_logs_of_the_real_sglang(name: str, hint: str, port_taken: bool) -> None:
    """Each of them says early that there is no generation config and that modules are missing: nobody minds."""
    lines = (LOGS / f"{name}.log").read_text("utf-8", errors="replace").splitlines()
    assert hint_for_exit(lines, 1) == (hint, port_taken)


@pytest.mark.parametrize("backend", ["triton", "triton_kernel"])
def test_a_healthy_life_on_a_gpu_has_no_cause_and_phases_in_their_order(backend: str) -> None:
    """It repeats arguments with "autotune" in them, misses a module and falls back, and ends by killing itself."""
    lines = (EVIDENCE / "sglang-0.5.14-h200" / f"{backend}.log").read_text("utf-8").splitlines()
    assert hint_for_exit(lines, 0) == ("", False)
    assert hint_for_exit(lines, -9)[0].startswith("one of its processes died, so it ended itself: the last traceback")
    assert list(dict.fromkeys(phase for line in lines if (phase := phase_of(line)) is not None)) == [
        "joining the devices",
        "devices joined",
        "loading weights",
        "weights loaded",
        "cache allocated",
        "capturing graphs",
        "graphs captured",
        "HTTP server starting",
        "HTTP server up",
        "ready",
    ]


def test_the_last_known_cause_counts() -> None:
    lines = ["OSError: [Errno 98] Address already in use", "retrying", "RuntimeError: CUDA out of memory.", "bye"]
    assert hint_for_exit(lines, 1)[0].startswith("out of GPU memory")
    assert hint_for_exit(lines[:2], 1)[1]


def test_what_stands_in_every_healthy_log_means_nothing() -> None:
    healthy = [
        "server_args=ServerArgs(model_path='/models/gated repo', custom_sigquit_handler=None, mem_fraction_static=0.5, disable_radix_cache=True)",
        "Traceback (most recent call last):",
        "UserWarning: 1Torch was not compiled with flash attention.",
        "CUDA driver version: 580.65",
        "The server is fired up and ready to roll!",
    ]
    assert hint_for_exit(healthy, 1) == ("", False)
    assert hint_for_silence(healthy) == ""


def test_a_sigkill_without_a_word_points_at_the_kernel() -> None:
    assert hint_for_exit([], -9)[0] == "somebody sent it SIGKILL; the kernel does so when memory runs out: see dmesg"
    assert hint_for_exit(["CUDA out of memory"], -9)[0].startswith("out of GPU memory")


def test_silence_is_explained_by_what_was_done_last() -> None:
    joining = ["server_args=...", "Init torch distributed begin."]
    assert hint_for_silence(joining).startswith("it hung while the devices joined (NCCL)")
    assert hint_for_silence([*joining, "Load weight begin. avail mem=79 GB"]).startswith("it was still loading weights")
    assert hint_for_silence([*joining, "Load weight end."]) == ""
    assert hint_for_silence([*joining, "Load weight begin.", "Capture cuda graph begin."]).startswith(
        "it was still making kernels or graphs"
    )


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("[2026-11-01 TP0] Init torch distributed begin.", "joining the devices"),
        ("[2026-11-01 TP0] Load weight begin. avail mem=79.10 GB", "loading weights"),
        ("Loading safetensors checkpoint shards:  25% Completed | 1/4", "loading weights"),
        ("[2026-11-01 TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16", "weights loaded"),
        ("KV Cache is allocated. #tokens: 20000", "cache allocated"),
        ("Capture cuda graph begin. This can take up to several minutes.", "capturing graphs"),
        ("Capturing batches (bs=128 avail_mem=30.1 GB):   0%|", "capturing graphs"),
        ("Capture cuda graph end. Time elapsed: 10.33 s.", "graphs captured"),
        ("INFO:     Uvicorn running on http://127.0.0.1:30000", "HTTP server up"),
        ("The server is fired up and ready to roll!", "ready"),
        ("server_args=ServerArgs(model_path='x')", None),
    ],
)
def test_log_lines_announce_phases(line: str, phase: str | None) -> None:
    assert phase_of(line) == phase
