"""What goes wrong with the real SGLang: refused before anything starts, or an ERROR at setup with the log's tail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sglang_project import EXAMPLE, PytestRun, SglangProject, make_project

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory, sglang_python: str) -> SglangProject:
    """One for all that starts no server: the engine is asked for its flags once."""
    return make_project(tmp_path_factory.mktemp("refused"), python=sglang_python)


@pytest.fixture
def project(tmp_path: Path, sglang_python: str) -> SglangProject:
    return make_project(tmp_path, python=sglang_python)


def usage_error(project: SglangProject, *arguments: str) -> str:
    """What pytest refuses, after it was seen that nothing was launched or written."""
    run = project.pytest(*arguments)
    assert run.code == pytest.ExitCode.USAGE_ERROR, run.text
    assert not list(project.runtime.rglob("server.log"))
    assert not (project.folder / "baselines").exists()
    assert run.text.startswith("ERROR: "), run.text
    return run.text.removeprefix("ERROR: ").strip()


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        pytest.param(
            '"--disable-radix-cache"',
            '"--disable-radix-cach"',
            "[tool.moeperf.server] args: sglang 0.5.14 has no --disable-radix-cach\n"
            "  allowed: did you mean --disable-radix-cache or --disable-chunked-prefix-cache or --disable-outlines-disk-cache?\n"
            "  next: {folder}/engine/bin/python -m sglang.launch_server --help lists them",
            id="unknown-flag",
        ),
        pytest.param(
            '"--disable-radix-cache"',
            '"--enable-ep-moe"',
            "[tool.moeperf.server] args: sglang 0.5.14 has no --enable-ep-moe\n"
            "  allowed: --ep-size=N\n"
            "  next: {folder}/engine/bin/python -m sglang.launch_server --help lists them",
            id="renamed-flag",
        ),
        pytest.param(
            'model = "tiny-moe"',
            'model = "./tiny-mo"',
            "[tool.moeperf] model: './tiny-mo' is not a folder\n"
            "  allowed: a folder with config.json, or a hub name such as 'zai-org/GLM-5-NVFP4'",
            id="missing-model",
        ),
    ],
)
def test_the_installed_version_refuses_before_anything_starts(
    untouched: SglangProject, before: str, after: str, text: str
) -> None:
    config = (EXAMPLE / "moeperf.toml").read_text("utf-8")
    assert before in config
    (untouched.folder / "moeperf.toml").write_text(config.replace(before, after), "utf-8")
    assert usage_error(untouched, "--backend=auto") == text.format(folder=untouched.folder)


def test_a_backend_that_the_installed_version_does_not_have(untouched: SglangProject) -> None:
    (untouched.folder / "moeperf.toml").write_bytes((EXAMPLE / "moeperf.toml").read_bytes())
    assert usage_error(untouched, "--backend=flashinfer_cutedls") == (
        "--backend=flashinfer_cutedls: sglang 0.5.14 has no MoE runner of that name, and there is no "
        "[tool.moeperf.backends.flashinfer_cutedls] table that says what it is\n"
        "  allowed: auto, deep_gemm, triton, triton_kernel, flashinfer_trtllm, experimental_sgl_trtllm, "
        "flashinfer_trtllm_routed, flashinfer_cutlass, flashinfer_mxfp4, flashinfer_cutedsl, cutlass, aiter, marlin\n"
        "  next: mend the name, or add [tool.moeperf.backends.flashinfer_cutedls] args = [...]"
    )


def error_of(run: PytestRun, backend: str) -> str:
    """The text under pytest's headline of one test's setup error."""
    headline = rf"_+ ERROR at setup of test_decode\[{backend}-1\] _+\n"
    found = re.search(rf"{headline}(.*?)\n(?:_{{3,}} ERROR at|moeperf: )", run.text, re.DOTALL)
    assert found is not None, run.text
    return found[1]


def test_servers_that_end_at_start_are_errors_at_setup_with_the_end_of_their_logs(project: SglangProject) -> None:
    project.configure(
        "[backends.without_weights]\n"
        'args = ["--moe-runner-backend=auto", "--load-format=auto"]\n'
        "[backends.too_long]\n"
        'args = ["--moe-runner-backend=auto", "--context-length=1000000"]\n'
    )
    run = project.pytest("--backend=flashinfer_cutedsl,without_weights,too_long")
    assert run.code == pytest.ExitCode.TESTS_FAILED, run.text
    assert "moeperf: no cell was measured, so nothing was shown: this is a failure" in run.text
    assert "3 errors in" in run.text
    logs = rf"  last lines of {project.runtime}/launches/[0-9a-f]{{32}}/server\.log:\n    \| "
    for backend, how, hint, why in (
        (
            "flashinfer_cutedsl",
            "exited with code 1",
            "FlashInfer CuteDSL MOE wants a checkpoint quantized as 'modelopt_fp4': choose another backend, or another "
            "model",
            "    | AssertionError: Invalid quantization 'None'. \n"
            "    | FlashInfer CuteDSL MOE currently supports only: 'modelopt_fp4'.",
        ),
        # The scheduler dies of it, and SGLang's launcher then kills itself.
        (
            "without_weights",
            "was ended by SIGKILL",
            "the model's folder holds no weights: check model in [tool.moeperf], or measure without them "
            "(args = ['--load-format=dummy'])",
            f"    | RuntimeError: Cannot find any model weights with `{project.folder}/tiny-moe`\n",
        ),
        (
            "too_long",
            "exited with code 1",
            "--context-length=1000000 is more than the model has (4096): lower it",
            "    | ValueError: Warning: User-specified context_length (1000000) is greater than the derived",
        ),
    ):
        text = error_of(run, backend)
        assert re.match(rf"{backend} \(sglang\) {how} after [\d.]+ s, before it was ready\n", text), text
        assert f"\n  hint: {hint}\n" in text, text
        assert re.search(logs, text), text
        assert why in text, text
        assert "traceback entries" not in text.lower()
    assert not (project.folder / "baselines").exists()
    assert project.processes_left() == []


def test_a_port_that_somebody_takes_first_costs_one_more_start(project: SglangProject) -> None:
    with (project.folder / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(TAKEN_PORT)
    (project.folder / "test_serving.py").write_text(SHORT_TEST, "utf-8")
    run = project.pytest("--backend=auto", "--update-baselines", "--perf-launches=1")
    assert run.code == pytest.ExitCode.OK, run.text
    assert "1 passed" in run.text
    logs = sorted(project.runtime.rglob("server.log"), key=lambda log: log.stat().st_ctime)
    assert len(logs) == 2
    taken, served = (log.read_text("utf-8", errors="replace") for log in logs)
    assert "address already in use" in taken
    assert "POST /generate" not in taken
    assert "address already in use" not in served
    assert "POST /generate" in served
    assert project.processes_left() == []


# Between choosing a port and binding it somebody else may bind it; here that happens to the first one chosen.
TAKEN_PORT = """

import socket

from pytest_moeperf.servers import lease

_choose_port = lease.free_port
_taken = socket.socket()


def _taken_at_first(host):
    port = _choose_port(host)
    if _taken.getsockname()[1] == 0:
        _taken.bind((host, port))
        _taken.listen()
    return port


lease.free_port = _taken_at_first
"""

SHORT_TEST = """
import pytest

@pytest.mark.perf(input_len=16, output_len=64, num_prompts=4)
@pytest.mark.parametrize("concurrency", [2])
def test_decode(moeperf, concurrency):
    moeperf.measure(concurrency=concurrency)
"""
