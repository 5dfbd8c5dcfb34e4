"""How late does each client stamp an event, and what does an event cost it? Side by side, on one core.

    python benchmarks/client_accuracy.py --json client_accuracy.json [--sglang-python /opt/sglang/bin/python]

A paced server on another core (pytest_moeperf.load.paced) notes the time before each write; the stamp error is the
client's arrival time minus that: it holds the write and the loopback, about 4 us here, for every client alike. Clients:
ours, sglang.bench_serving's own request function in the interpreter that has it, a plain aiohttp loop, and a bare loop
of epoll and recvmsg that parses and keeps nothing: the least that a read of each event costs in Python here. CPU is
that of the client's process (ours: the load worker, parsing included) from the first send to the last parsed event;
`ratio` is to sglang.bench_serving's. On a busy host use --realtime, for the server and all clients alike: a client that
does not get its core measures the host.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.paced import Report, request_key
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.vocabulary import Vocabulary
from pytest_moeperf.model.workload import Workload

PEERS = Path(__file__).with_name("client_accuracy_peers.py")
OURS = "moeperf"
OUTPUT_LEN = 100
INTERVAL_MS = {64: 20.0, 256: 20.0, 1024: 40.0}
REACH_P99_MS = 0.05
REACH_CPU_SHARE = 0.25


class Peer:
    """A client in another process."""

    def __init__(self, name: str, *, python: str, cpu: int) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, str(PEERS), name, "--cpu", str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions: dict[str, str] = self._answer()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(
    client: Peer | None, *, streams: int, interval_ms: float, server_cpu: int, client_cpu: int, key: str
) -> dict[str, Any]:
    """One run of one client against a fresh server."""
    workload = Workload(concurrency=streams, input_len=64, output_len=OUTPUT_LEN, num_prompts=streams)
    prompts = [prompt.tolist() for prompt in make_prompts(workload, run_key=key, vocabulary=Vocabulary(size=50_000))]
    command = [
        sys.executable,
        "-m",
        "pytest_moeperf.load.paced",
        "--interval-ms",
        str(interval_ms),
        "--cpu",
        str(server_cpu),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            if client is None:
                stamps, cpu_ns, wall_ns, extra = run_ours(url, workload, prompts, client_cpu)
            else:
                job = {"url": url, "concurrency": streams, "output_len": OUTPUT_LEN, "prompts": prompts}
                answer = client.run(job)
                stamps, cpu_ns, wall_ns, extra = answer["stamps_ns"], answer["cpu_ns"], answer["wall_ns"], {}
            with urllib.request.urlopen(url + "/report", timeout=60) as reply:  # noqa: S310 (our own server)
                report = msgspec.json.decode(reply.read(), type=Report)
        finally:
            server.kill()
    return {**judge(prompts, stamps, report, cpu_ns=cpu_ns, wall_ns=wall_ns), **extra}


def run_ours(
    url: str, workload: Workload, prompts: Sequence[Sequence[int]], cpu: int
) -> tuple[list[list[int]], float, int, dict[str, Any]]:
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})  # the worker inherits it
    try:
        result = drive(url=url, workload=workload, prompts=prompts, timeout_s=120, workers=1)
    finally:
        os.sched_setaffinity(0, everywhere)
    failed = [record.error for record in result.records if not record.ok]
    if failed:
        sys.exit(f"our own client failed: {failed[0]}")
    report = result.client
    assert report.cpu_us_per_event is not None
    extra = {
        "own_report": {
            "clock": report.clock,
            "delay_ms_p99": report.stamp_delay_ms_p99,
            "coalesced": report.coalesced_reads,
        }
    }
    stamps = [record.event_ns.tolist() for record in result.records]
    return stamps, report.cpu_us_per_event * 1e3 * report.events, result.end_ns - result.start_ns, extra


def judge(
    prompts: Sequence[list[int]], stamps: Sequence[Sequence[int]], report: Report, *, cpu_ns: float, wall_ns: int
) -> dict[str, Any]:
    sent = [report.sent_ns.get(request_key(prompt), []) for prompt in prompts]
    late = sorted(report.late_ns)
    # A reader without stamps has read every event, or it would not have ended.
    events = sum(map(len, stamps)) if stamps else sum(map(len, sent))
    figures: dict[str, Any] = {
        "cpu_us_per_event": cpu_ns / events / 1e3,
        "events": events,
        "events_per_s": events / (wall_ns / 1e9),
        "lost": sum(map(len, sent)) - events,
        "server_late_ms_p99": late[int(0.99 * len(late))] / 1e6,
    }
    if stamps:
        pairs = (
            (since, at)
            for theirs, ours in zip(sent, stamps, strict=True)
            for since, at in zip(theirs, ours, strict=False)
        )
        errors = sorted((at - since) / 1e6 for since, at in pairs)
        shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        figures["stamp_error_ms"] = {
            name: errors[min(events - 1, int(share * events))] for name, share in shares.items()
        }
    return figures


def middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the repeats; losses are summed."""
    merged: dict[str, Any] = {}
    for name, value in runs[0].items():
        if isinstance(value, dict):
            merged[name] = middle([run[name] for run in runs])
        elif isinstance(value, str):
            merged[name] = value
        else:
            values = [run[name] for run in runs]
            merged[name] = sum(values) if name == "lost" else statistics.median(values)
    return merged


def verdicts(streams: dict[str, dict[str, Any]]) -> dict[str, bool | None]:
    ours = {count: clients[OURS] for count, clients in streams.items()}
    theirs = {
        count: clients.get("sglang_bench_serving", {}).get("cpu_us_per_event") for count, clients in streams.items()
    }
    big = [count for count in ours if int(count) >= 256]
    known = [count for count in ours if theirs[count] is not None]
    return {
        f"stamp error p99 <= {REACH_P99_MS} ms": all(
            ours[count]["stamp_error_ms"]["p99"] <= REACH_P99_MS for count in big
        ),
        f"CPU per event <= {REACH_CPU_SHARE} of sglang.bench_serving's": all(
            ours[count]["cpu_us_per_event"] <= REACH_CPU_SHARE * theirs[count] for count in known
        )
        if known
        else None,
        "CPU per event <= twice that of a bare recvmsg loop": all(
            one["cpu_us_per_event"] <= 2 * streams[count]["bare_reader"]["cpu_us_per_event"]
            for count, one in ours.items()
        ),
        "nothing lost": all(one["lost"] == 0 for one in ours.values()),
    }


def print_table(streams: dict[str, dict[str, Any]]) -> None:
    print(
        f"{'streams':>7}  {'client':<22}{'error p50':>11}{'p99 [ms]':>11}{'us/event':>10}{'ratio':>7}{'events/s':>10}"
        f"{'lost':>6}"
    )
    for count, clients in streams.items():
        theirs = clients.get("sglang_bench_serving", {}).get("cpu_us_per_event")
        for name, one in clients.items():
            if "absent" in one:
                print(f"{count:>7}  {name:<22}absent: {one['absent']}")
                continue
            error = one.get("stamp_error_ms")
            ratio = f"{one['cpu_us_per_event'] / theirs:.2f}" if theirs else "-"
            shown = f"{error['p50']:>11.4f}{error['p99']:>11.4f}" if error else f"{'-':>11}{'-':>11}"
            print(
                f"{count:>7}  {name:<22}{shown}{one['cpu_us_per_event']:>10.1f}{ratio:>7}"
                f"{one['events_per_s']:>10.0f}{one['lost']:>6}"
            )


def rust_client_absent(python: str) -> str:
    """Why there is no line for sglang's Rust client."""
    code = "import importlib.util as u; print(bool(u.find_spec('sglang.srt.rust_extensions._bench')))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    if found == "True":
        return "this wheel has it, but it reports no arrival stamps"
    return "this wheel has none"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--sglang-python", default=os.environ.get("MOEPERF_SGLANG_PYTHON"))
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--realtime", action="store_true", help="run server and clients as SCHED_RR; needs root")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    cpus = sorted(os.sched_getaffinity(0))
    server_cpu, client_cpu = cpus[0], cpus[-1]
    peers = [Peer(name, python=sys.executable, cpu=client_cpu) for name in ("bare_reader", "aiohttp")]
    absent = {"sglang_bench_serving": "no --sglang-python", "sglang_rust": "no --sglang-python"}
    if arguments.sglang_python:
        peers.append(Peer("sglang_bench_serving", python=arguments.sglang_python, cpu=client_cpu))
        absent = {"sglang_rust": rust_client_absent(arguments.sglang_python)}
    clients: list[Peer | None] = [None, *peers]
    streams: dict[str, dict[str, Any]] = {}
    for count in arguments.streams:
        runs: dict[str, list[dict[str, Any]]] = {}
        for repeat in range(arguments.repeats):
            for client in clients[repeat % len(clients) :] + clients[: repeat % len(clients)]:
                name = OURS if client is None else client.name
                one = measure(
                    client,
                    streams=count,
                    interval_ms=INTERVAL_MS.get(count, 40.0),
                    server_cpu=server_cpu,
                    client_cpu=client_cpu,
                    key=f"{count} {repeat} {name}",
                )
                runs.setdefault(name, []).append(one)
        order = [OURS, *(peer.name for peer in peers)]
        streams[str(count)] = {name: middle(runs[name]) for name in order} | {
            name: {"absent": why} for name, why in absent.items()
        }
    for peer in peers:
        peer.close()
    reached = verdicts(streams)
    report = {
        "streams": streams,
        "reached": reached,
        "repeats": arguments.repeats,
        "realtime": arguments.realtime,
        "versions": {name: version for peer in peers for name, version in peer.versions.items()},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": len(cpus),
        "load_average": os.getloadavg(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print_table(streams)
    for what, yes in reached.items():
        print(f"{'reached' if yes else 'unknown' if yes is None else 'NOT REACHED'}: {what}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
