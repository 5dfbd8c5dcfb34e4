"""``sglang.bench_serving``, unchanged, drives the simulated server as it drives SGLang."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_moe import make_tiny_moe

pytestmark = pytest.mark.sglang

PROMPTS = 8
INPUT_TOKENS = 32
OUTPUT_TOKENS = 16
STEP_MS = 6.0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_moe(tmp_path_factory.mktemp("tiny-moe")))


@pytest.fixture
def url(tmp_path: Path, tokenizer: str) -> Iterator[str]:
    """A simulated server whose steps all last exactly ``STEP_MS``."""
    profile = tmp_path / "steady.toml"
    profile.write_text(
        f'runner = "triton"\n[step]\na_ms = {STEP_MS}\nb_ms = 0\nprefill_ms_per_token = 0\n'
        "[noise]\nsession_sd = 0\nlaunch_sd = 0\nrun_sd = 0\nstep_sd = 0\n",
        encoding="utf-8",
    )
    log_path = tmp_path / "server.log"
    command = [sys.executable, "-m", "pytest_moeperf.engines.simulated", "--port", "0", "--model-path", tokenizer]
    with log_path.open("wb") as log:
        server = subprocess.Popen([*command, "--profile", str(profile)], stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline_s = time.monotonic() + 60
        while "ready to roll" not in log_path.read_text(encoding="utf-8"):
            assert server.poll() is None, log_path.read_text(encoding="utf-8")
            assert time.monotonic() < deadline_s, log_path.read_text(encoding="utf-8")
            time.sleep(0.05)
        match = re.search(r"running on (http://\S+)", log_path.read_text(encoding="utf-8"))
        assert match is not None
        yield match[1]
    finally:
        server.terminate()
        assert server.wait(60) == 0


def bench(python: str, url: str, tokenizer: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """One run of the real client: the record that it writes."""
    output = folder / "bench.jsonl"
    command = [
        *(python, "-W", "ignore", "-m", "sglang.bench_serving", "--base-url", url),
        *("--dataset-name", "random-ids", "--random-range-ratio", "1.0", "--num-prompts", str(PROMPTS)),
        *("--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS), "--max-concurrency", "4"),
        *("--model", tokenizer, "--tokenizer", tokenizer, "--output-file", str(output), "--output-details"),
        *("--disable-tqdm", "--flush-cache", *arguments),
    ]
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return record


def total(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 the address is our own server's
        text = answer.read().decode()
    match = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert match is not None, text
    return float(match[1])


@pytest.mark.parametrize("arguments", [("--backend", "sglang", "--tokenize-prompt"), ("--backend", "sglang-oai")])
def test_the_real_client_sees_what_was_simulated(
    sglang_python: str, url: str, tokenizer: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    record = bench(sglang_python, url, tokenizer, tmp_path, *arguments)
    assert record["completed"] == PROMPTS
    assert record["total_output_tokens"] == PROMPTS * OUTPUT_TOKENS
    assert record["errors"] == [""] * PROMPTS
    assert record["output_lens"] == [OUTPUT_TOKENS] * PROMPTS
    assert record["server_info"]["version"].startswith("simulated-")
    # A token after each step, and none before: the server is never early, so nor is the median gap.
    assert record["median_itl_ms"] > 0.9 * STEP_MS
    assert [len(gaps) for gaps in record["itls"]] == [OUTPUT_TOKENS - 1] * PROMPTS
    # The client warms up with one request of its own.
    assert total(url, "sglang:num_requests_total") == PROMPTS + 1
    assert total(url, "sglang:generation_tokens_total") == (PROMPTS + 1) * OUTPUT_TOKENS
    if "--tokenize-prompt" in arguments:
        assert total(url, "sglang:prompt_tokens_total") == (PROMPTS + 1) * INPUT_TOKENS
