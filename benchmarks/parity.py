"""Do our metrics agree with sglang.bench_serving's, on one real server and the same prompts?

    python benchmarks/parity.py --sglang-python /opt/sglang/bin/python [--url http://127.0.0.1:30000] [--json FILE]

Without --url it serves the tiny model of the end-to-end tests on the CPU. After a warm-up of both, pairs of runs in the
order ours, theirs, theirs, ours. A metric agrees if the mean difference of the pairs is within twice its standard
error, or below 2 %; where twice the standard error is above 10 % the host is too noisy, and nothing is said. Where the
definitions differ on purpose, the table says how.

Their TTFT holds the time of their client: a session and a connection for each request, and the way from the socket to
their clock. Before the pairs, both measure the simulated engine, one request at a time and without any noise, which
shows how long that is; the last row adds it to ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.vocabulary import Vocabulary
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import client_checks

HERE = Path(__file__).parent
PEER = HERE / "parity_peer.py"
TINY_MOE = HERE.parent / "tests" / "e2e" / "tiny_moe.py"
CPU_VARIABLES = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
"""One thread: two that wait for each other at every operator crawl as soon as anything else runs on the host."""
SMALL = 0.02
NOISY = 0.10
PEER_TIMEOUT_S = 900.0

WITH_SHARE = "ttft_ms_p50 + share"
DIFFERENCES = {
    "out_tps": "theirs divides by the time until /server_info has answered after the run; ours ends at the last token",
    "ttft_ms": "theirs holds the TCP connect of a new connection for each request, and the client's own delay",
    "e2el_ms": "theirs ends at [DONE], ours at the last token",
    "tpot_ms": "theirs has [DONE] in it, and divides by n - 1; ours by n - tokens of the first event",
    "itl_ms": "theirs is stamped after parsing; both spread a gap over the tokens of its event",
    "output_tokens": "must be equal",
    "prompt_tokens": "must be equal",
    "ttft_ms_p50": "as ttft_ms; on a busy host a few requests make the mean",
    "tpot_ms_p50": "as tpot_ms",
    WITH_SHARE: "ours with their client's own share",
}
THEIR_KEYS = {
    "out_tps": "output_throughput",
    "ttft_ms": "mean_ttft_ms",
    "e2el_ms": "mean_e2e_latency_ms",
    "tpot_ms": "mean_tpot_ms",
    "itl_ms": "mean_itl_ms",
    "output_tokens": "total_output_tokens",
    "prompt_tokens": "total_input_tokens",
    "ttft_ms_p50": "median_ttft_ms",
    "tpot_ms_p50": "median_tpot_ms",
}
EXACT = ("output_tokens", "prompt_tokens")


def run_ours(url: str, workload: Workload, prompts: Sequence[Sequence[int]]) -> dict[str, float]:
    flush_cache(url)
    result = drive(url=url, workload=workload, prompts=prompts, timeout_s=600)
    metrics = compute_metrics(result, workload)
    failed = [
        check
        for check in client_checks(result, metrics, workload, min_window_s=0.0, min_steps=1)
        if check.status == "fail"
    ]
    for check in failed:
        print(f"  our run: {check.name}: {check.message}", file=sys.stderr)
    return {
        "out_tps": metrics.out_tps or math.nan,
        "output_tokens": float(metrics.output_tokens),
        "prompt_tokens": float(metrics.prompt_tokens or 0),
        **{name: getattr(metrics, name).mean for name in ("ttft_ms", "e2el_ms", "tpot_ms", "itl_ms")},
        **{f"{name}_p50": getattr(metrics, name).p50 for name in ("ttft_ms", "tpot_ms")},
    }


class Theirs:
    """sglang.bench_serving, in a process of its own that stays: importing it takes longer than a run."""

    def __init__(self, *, python: str, tokenizer: str) -> None:
        self._tokenizer = tokenizer
        self._said = tempfile.NamedTemporaryFile(prefix="parity-peer-", suffix=".log")  # noqa: SIM115 (closed below)
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(PEER)],
            env={**os.environ, **CPU_VARIABLES},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def __enter__(self) -> Theirs:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def run(self, url: str, workload: Workload, prompts: Sequence[Sequence[int]]) -> dict[str, float]:
        assert self._process.stdin
        assert self._process.stdout
        flush_cache(url)
        with tempfile.TemporaryDirectory() as folder:
            prompts_file, output = Path(folder, "prompts.json"), Path(folder, "out.jsonl")
            prompts_file.write_text(json.dumps(prompts))
            arguments = [
                *("--backend", "sglang", "--base-url", url, "--dataset-name", "random-ids", "--tokenize-prompt"),
                *("--num-prompts", str(workload.num_prompts), "--max-concurrency", str(workload.concurrency)),
                *("--model", self._tokenizer, "--tokenizer", self._tokenizer, "--output-file", str(output)),
                "--disable-tqdm",
            ]
            job = {"prompts": str(prompts_file), "output_len": workload.output_len, "arguments": arguments}
            # A peer that has ended says why in its log.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(job) + "\n")
                self._process.stdin.flush()
            answered, _, _ = select.select([self._process.stdout], [], [], PEER_TIMEOUT_S)
            if not answered or self._process.stdout.readline() != "done\n" or not output.exists():
                sys.exit(f"sglang.bench_serving failed:\n{Path(self._said.name).read_text()[-3000:]}")
            record = json.loads(output.read_text().splitlines()[-1])
        return {name: float(record[key]) for name, key in THEIR_KEYS.items()}


def compare(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for name, why in DIFFERENCES.items():
        ours, theirs = [mine[name] for mine, _ in pairs], [other[name] for _, other in pairs]
        ratios = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
        mean = statistics.fmean(ratios)
        error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
        agrees = "yes" if (ours == theirs if name in EXACT else abs(mean) <= max(2 * error, SMALL)) else "NO"
        if name not in EXACT and 2 * error > NOISY:
            agrees = "too noisy"
        table[name] = {
            "ours": statistics.fmean(ours),
            "theirs": statistics.fmean(theirs),
            "difference": math.expm1(mean),
            "two_standard_errors": 2 * error,
            "agrees": agrees,
            "differs_by": why,
        }
    return table


def cpu_server(python: str, model: str) -> contextlib.AbstractContextManager[str]:
    """The real SGLang on the CPU, as the end-to-end tests run it."""
    command = [
        *(python, "-m", "sglang.launch_server", "--model-path", model, "--load-format", "dummy", "--device", "cpu"),
        *("--max-total-tokens", "20000", "--disable-radix-cache"),
        *("--random-seed", "1", "--grammar-backend", "none", "--skip-server-warmup"),
    ]
    return serving(command, env=CPU_VARIABLES, start_timeout_s=300)


def simulated_server(model: str) -> contextlib.AbstractContextManager[str]:
    """A server whose TTFT is the same for every request."""
    quiet = [f"--{part}-sd=0" for part in ("session", "launch", "run", "step")]
    command = [
        *(sys.executable, "-m", "pytest_moeperf.engines.simulated", "--profile=triton", "--model-path", model),
        *("--disable-radix-cache", "--log-level=warning", *quiet),
    ]
    return serving(command, env={}, start_timeout_s=60)


@contextlib.contextmanager
def serving(command: Sequence[str], *, env: dict[str, str], start_timeout_s: float) -> Iterator[str]:
    """The URL of a server of this command, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile(prefix="parity-server-", suffix=".log") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **env},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            give_up_at = time.monotonic() + start_timeout_s
            while not answers(f"{url}/health"):
                if server.poll() is not None or time.monotonic() > give_up_at:
                    sys.exit(f"the server did not start:\n{Path(log.name).read_text()[-3000:]}")
                time.sleep(1)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 (our own server)
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def flush_cache(url: str) -> None:
    """Both arms get the same prompts, and neither may find the other's in the cache."""
    with urllib.request.urlopen(f"{url}/flush_cache", data=b"", timeout=60) as reply:  # noqa: S310 (our own server)
        reply.read()


def client_share_ms(workload: Workload, peer: Theirs, *, tokenizer: str, vocab_size: int) -> float:
    """How much later than ours their client sees the first token of a request that nothing else delays."""
    alone = replace(workload, concurrency=1, num_prompts=32)
    found = []
    with simulated_server(tokenizer) as url:
        for number in range(4):
            prompts = [
                prompt.tolist()
                for prompt in make_prompts(alone, run_key=f"share {number}", vocabulary=Vocabulary(size=vocab_size))
            ]
            theirs = peer.run(url, alone, prompts)
            found.append(theirs["ttft_ms_p50"] - run_ours(url, alone, prompts)["ttft_ms_p50"])
    return statistics.median(found)


def measure(
    url: str, workload: Workload, peer: Theirs, *, pairs: int, tokenizer: str, vocab_size: int
) -> dict[str, dict[str, Any]]:
    def prompts_of(key: str) -> list[list[int]]:
        return [
            prompt.tolist() for prompt in make_prompts(workload, run_key=key, vocabulary=Vocabulary(size=vocab_size))
        ]

    share_ms = client_share_ms(workload, peer, tokenizer=tokenizer, vocab_size=vocab_size)
    run_ours(url, workload, prompts_of("warm-up"))
    peer.run(url, workload, prompts_of("warm-up"))
    measured = []
    for number in range(pairs):
        prompts = prompts_of(f"pair {number}")
        if number % 2:
            theirs = peer.run(url, workload, prompts)
            ours = run_ours(url, workload, prompts)
        else:
            ours = run_ours(url, workload, prompts)
            theirs = peer.run(url, workload, prompts)
        measured.append((ours, theirs))
    print(f"their client's own share of a TTFT: {share_ms:.2f} ms")
    for ours, theirs in measured:
        ours[WITH_SHARE], theirs[WITH_SHARE] = ours["ttft_ms_p50"] + share_ms, theirs["ttft_ms_p50"]
    return compare(measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sglang-python", default=os.environ.get("MOEPERF_SGLANG_PYTHON"))
    parser.add_argument("--url", help="a server that runs already; its radix cache must be off")
    parser.add_argument("--tokenizer", help="with --url: folder of its tokenizer")
    parser.add_argument("--vocab-size", type=int, default=1024)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--num-prompts", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    python = arguments.sglang_python
    # A time-out or a CI that ends us must end the server too: let its signal run the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not python:
        parser.error("--sglang-python (or MOEPERF_SGLANG_PYTHON) must name an interpreter that has sglang")
    workload = Workload(
        concurrency=arguments.concurrency,
        input_len=arguments.input_len,
        output_len=arguments.output_len,
        num_prompts=arguments.num_prompts,
    )
    with contextlib.ExitStack() as stack:
        url, tokenizer = arguments.url, arguments.tokenizer
        if url is None:
            tokenizer = stack.enter_context(tempfile.TemporaryDirectory())
            subprocess.run([sys.executable, str(TINY_MOE), tokenizer], check=True, stdout=subprocess.DEVNULL)
            url = stack.enter_context(cpu_server(python, tokenizer))
        table = measure(
            url,
            workload,
            stack.enter_context(Theirs(python=python, tokenizer=tokenizer or "")),
            pairs=arguments.pairs,
            tokenizer=tokenizer or "",
            vocab_size=arguments.vocab_size,
        )
    load = os.getloadavg()[0]
    print(f"{workload.label}, {workload.num_prompts} prompts, {arguments.pairs} pairs; load average {load:.1f}")
    print(f"{'metric':<20}{'ours':>11}{'theirs':>11}{'difference':>12}{'2 SE':>9}  agrees")
    for name, row in table.items():
        print(
            f"{name:<20}{row['ours']:>11.2f}{row['theirs']:>11.2f}{row['difference']:>+12.2%}{row['two_standard_errors']:>9.2%}"
            f"  {row['agrees']}: {row['differs_by']}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"workload": workload.as_fields(), "metrics": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
