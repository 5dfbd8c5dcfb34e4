"""The driver on servers that behave: worker processes, both loops, TLS, cuts in odd places, memory, and no trace left."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from load_scripted_server import SSE_HEAD, Connection, ScriptedServer, chunk, event, good_answer, serving

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load import client as client_module
from pytest_moeperf.load import connection as connection_module
from pytest_moeperf.load.clock import enable_kernel_stamps
from pytest_moeperf.load.driver import LoadProgress, drive, workers_for
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.outgoing.key import ApiKey

ROOT = Path(__file__).parents[2]
PEM = Path(__file__).parent / "data" / "load_localhost.pem"
WORKLOAD = Workload(concurrency=4, input_len=8, output_len=4, num_prompts=20)


def load(server: ScriptedServer, workload: Workload = WORKLOAD, **options: Any) -> LoadResult:
    prompts = make_prompts(workload, run_key="test")
    return drive(url=server.url, workload=workload, prompts=prompts, **{"timeout_s": 30, "workers": 0, **options})


def assert_good(result: LoadResult, workload: Workload = WORKLOAD) -> None:
    assert [record.error for record in result.records] == [None] * workload.num_prompts
    assert [record.index for record in result.records] == list(range(workload.num_prompts))
    for record in result.records:
        assert record.ok
        assert record.finish_reason == "length"
        assert sum(record.event_tokens) == record.completion_tokens == workload.output_len
        assert record.send_ns < record.event_ns[0]
        assert list(record.event_ns) == sorted(record.event_ns)
        assert record.end_ns is not None
        assert record.end_ns >= record.event_ns[-1]


@pytest.mark.parametrize("workers", [0, 1, 2, None])
def test_a_closed_loop_keeps_one_request_in_flight_a_slot(workers: int | None) -> None:
    with serving(Connection.serve) as server:
        result = load(server, workers=workers)
    assert_good(result)
    assert server.connections == 4
    assert len(server.requests) == 20
    assert {record.slot for record in result.records} == {0, 1, 2, 3}
    for slot in range(4):
        mine = sorted((one for one in result.records if one.slot == slot), key=lambda one: one.send_ns)
        for earlier, later in itertools.pairwise(mine):
            assert earlier.end_ns is not None
            assert later.send_ns >= earlier.end_ns
    assert result.client.workers == max(1, workers or 1)
    assert result.client.events == 80
    assert result.client.worker_cpu is not None
    assert result.start_ns <= min(record.send_ns for record in result.records)
    assert result.end_ns >= max(record.end_ns or 0 for record in result.records)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernel stamps are Linux's")
def test_the_clock_is_the_kernels() -> None:
    with serving(Connection.serve) as server:
        client = load(server).client
    assert client.clock == "kernel"
    assert client.stamp_delay_ms_p99 is not None
    assert client.stamp_delay_ms_p50 is not None
    assert 0 <= client.stamp_delay_ms_p50 <= client.stamp_delay_ms_p99
    assert client.clock_step_ms is not None


def test_without_kernel_stamps_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "enable_kernel_stamps", lambda _sock: False)
    with serving(Connection.serve) as server:
        result = load(server)
    assert_good(result)
    assert result.client.clock == "user"
    assert result.client.stamp_delay_ms_p99 is None


def test_request_bytes() -> None:
    prompts = make_prompts(WORKLOAD, run_key="test")
    with serving(Connection.serve) as server:
        load(server, api_key=ApiKey("planted-key"))
        first = next(request for request in server.requests if f"[{prompts[0][0]},".encode() in request)
    head, body = first.split(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /generate HTTP/1.1"
    assert b"Authorization: Bearer planted-key" in head
    assert body.decode() == (
        f'{{"input_ids":{str(list(prompts[0])).replace(" ", "")},'
        '"sampling_params":{"temperature":0.0,"max_new_tokens":4,"ignore_eos":true},"stream":true}'
    )


def test_an_open_loop_sends_on_schedule() -> None:
    workload = Workload(concurrency=4, input_len=8, output_len=4, num_prompts=20, request_rate=100.0)
    with serving(Connection.serve) as server:
        result = load(server, workload, arrivals="constant", workers=2)
    assert_good(result, workload)
    for record in result.records:
        assert record.scheduled_ns == result.start_ns + record.index * 10_000_000
        assert record.send_ns >= record.scheduled_ns
    assert result.client.schedule_lag_ms_p99 is not None


def test_an_open_loop_that_waits_for_a_slot_reports_the_lag() -> None:
    workload = Workload(concurrency=1, input_len=8, output_len=4, num_prompts=4, request_rate=1000.0)

    def slow(connection: Connection) -> None:
        while connection.read_request() is not None:
            time.sleep(0.05)
            connection.send(*good_answer())

    with serving(slow) as server:
        result = load(server, workload, arrivals="constant")
    assert result.client.schedule_lag_ms_p99 is not None
    assert result.client.schedule_lag_ms_p99 >= 90


def test_an_idle_connection_that_the_server_closes_is_opened_anew() -> None:
    workload = Workload(concurrency=1, input_len=8, output_len=4, num_prompts=3, request_rate=10.0)

    def one_each(connection: Connection) -> None:
        connection.read_request()
        connection.send(*good_answer())

    with serving(one_each) as server:
        result = load(server, workload, arrivals="constant")
    assert_good(result, workload)
    assert result.client.notes == ("the server closed connections between requests: 2 were opened anew",)


def test_connection_close_is_obeyed() -> None:
    def one_each(connection: Connection) -> None:
        connection.read_request()
        connection.send(SSE_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), *good_answer()[1:])

    with serving(one_each) as server:
        result = load(server)
    assert_good(result)
    assert server.connections == 20


@pytest.mark.parametrize("body", ["counted", "until close"])
def test_other_framings(body: str) -> None:
    payload = b"".join(event(count) for count in range(1, 5)) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    length = b"Content-Length: %d\r\n" % len(payload) if body == "counted" else b""

    def script(connection: Connection) -> None:
        while connection.read_request() is not None:
            connection.send(head + length + b"\r\n", payload[:70], payload[70:])
            if body == "until close":
                return

    with serving(script) as server:
        assert_good(load(server))


def test_the_end_is_found_wherever_the_answer_is_cut() -> None:
    """Cuts after every byte of the tail, and a payload that ends in the bytes of a last chunk."""
    answer = b"".join(good_answer())
    odd = SSE_HEAD + b"".join(
        chunk(part) for part in (event(1), b": 0\r\n\r\n", event(2)[:-1], b"\n: 10\r\n\r", b"\n", event(3), event(4), b"data: [DONE]\n\n")
    ) + b"0\r\n\r\n"  # fmt: skip
    cuts = [(answer, at) for at in range(len(answer) - 40, len(answer))] + [(odd, at) for at in range(150, len(odd), 3)]
    workload = Workload(concurrency=2, input_len=8, output_len=4, num_prompts=len(cuts))
    todo = list(cuts)
    lock = threading.Lock()

    def script(connection: Connection) -> None:
        while connection.read_request() is not None:
            with lock:
                data, at = todo.pop()
            connection.send(data[:at])
            time.sleep(0.002)
            connection.send(data[at:])

    with serving(script) as server:
        assert_good(load(server, workload), workload)


@pytest.mark.parametrize("tls", [False, True])
def test_a_large_request_that_does_not_fit_into_the_socket_at_once(monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    workload = Workload(concurrency=2, input_len=200_000, output_len=4, num_prompts=2)
    flush = connection_module.PlainConnection.flush
    left: list[bool] = []

    def small_buffer(sock: socket.socket) -> bool:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return enable_kernel_stamps(sock)

    def spy(connection: connection_module.PlainConnection) -> bool:
        done = flush(connection)
        left.append(not done)
        return done

    def late_reader(connection: Connection) -> None:
        time.sleep(0.1)
        connection.serve()

    monkeypatch.setattr(connection_module, "enable_kernel_stamps", small_buffer)
    monkeypatch.setattr(connection_module.PlainConnection, "flush", spy)
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with serving(late_reader, tls=server_context() if tls else None) as server:
        assert_good(load(server, workload), workload)
    assert min(map(len, server.requests)) > 700_000
    assert any(left)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


def test_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Connection.serve, tls=server_context()) as server:
        with pytest.raises(LoadError, match=r"took 0 of 4 connections.*\n.*check the certificate"):
            load(server)
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
        for workers in (0, 1):
            assert_good(load(server, workers=workers))


def test_bounded_memory_gives_the_same_records_and_says_that_it_parsed_early() -> None:
    workload = Workload(concurrency=4, input_len=8, output_len=50, num_prompts=40)
    with serving(lambda connection: connection.serve(good_answer(50))) as server:
        result = load(server, workload, held_bytes=20_000)
    assert_good(result, workload)
    assert any("were parsed inside the window to keep memory bounded" in note for note in result.client.notes)
    with serving(lambda connection: connection.serve(good_answer(50))) as server:
        assert load(server, workload).client.notes == ()


@pytest.mark.parametrize("tls", [False, True])
def test_answers_that_each_event_repeats_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    """40 MB of them, most of which would be parsed inside the window."""
    workload = Workload(concurrency=4, input_len=8, output_len=50, num_prompts=40)
    said = b'"%b"' % (b'the \\"answer\\" ' * 1200)
    events = [chunk(event(count, last=50).replace(b'"x"', said)) for count in range(1, 51)]
    answer = [SSE_HEAD, *events, *good_answer()[-2:]]
    assert len(answer[1]) > 16_000
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))

    def paced(connection: Connection) -> None:
        while connection.read_request() is not None:
            for piece in answer:
                connection.send(piece)
                time.sleep(0.001)  # else reads hold parts of events, which are kept

    with serving(paced, tls=server_context() if tls else None) as server:
        result = load(server, workload, **({} if tls else {"held_bytes": 16_000_000}))
    assert_good(result, workload)
    assert result.client.notes == ()


def test_progress_is_reported() -> None:
    seen: list[LoadProgress] = []

    def slow(connection: Connection) -> None:
        while connection.read_request() is not None:
            time.sleep(0.1)
            connection.send(*good_answer())

    with serving(slow) as server:
        load(server, workers=1, on_progress=seen.append)
    assert seen[-1].total == 20
    assert any(0 < progress.finished < 20 for progress in seen)
    assert all(progress.failed == 0 for progress in seen)
    reads = [progress.reads for progress in seen]
    assert reads == sorted(reads)
    assert reads[-1] > 0


def test_the_callers_process_is_left_as_it_was() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
    results: list[LoadResult] = []
    with serving(Connection.serve) as server:
        for workers in (0, 1):
            thread = threading.Thread(target=lambda count=workers: results.append(load(server, workers=count)))
            thread.start()
            thread.join(60)
    assert len(results) == 2
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)] == handlers
    assert psutil.Process().children() == []


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with serving(Connection.serve) as server:
            load(server)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_workers_are_light() -> None:
    code = "import sys, pytest_moeperf.load.worker as w; print([m for m in ('pytest', 'numpy', 'scipy', 'asyncio') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("announced", [b"\r\nTrailer: X-Time\r\n\r\n", b"\r\n\r\n"])
def test_trailers_behind_the_last_chunk(announced: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is seen when it arrives, not when a silence makes the client look around."""
    monkeypatch.setattr(client_module, "_BEAT_NS", 10**12)
    head = SSE_HEAD.replace(b"\r\n\r\n", announced)
    with serving(
        lambda connection: connection.serve([head, *good_answer()[1:-1], b"0\r\nX-Time: 3\r\n\r\n"])
    ) as server:
        assert_good(load(server, timeout_s=10))


@pytest.mark.parametrize(("held", "undefined"), [(False, set()), (True, {"ttft", "tpot", "itl"})])
def test_an_answer_that_something_on_the_way_collects(held: bool, undefined: set[str]) -> None:
    workload = Workload(concurrency=4, input_len=8, output_len=12, num_prompts=8)

    def serve(connection: Connection) -> None:
        head, *pieces = good_answer(12)
        while connection.read_request() is not None:
            connection.send(head)
            if held:
                time.sleep(0.01 * len(pieces))
                connection.send(b"".join(pieces))
            else:
                for piece in pieces:
                    time.sleep(0.01)
                    connection.send(piece)

    with serving(serve) as server:
        result = load(server, workload)
    assert_good(result, workload)
    assert set(compute_metrics(result, workload).undefined) == undefined


def waiting_server() -> contextlib.AbstractContextManager[ScriptedServer]:
    def wait(connection: Connection) -> None:
        connection.read_request()
        connection.server.stopping.wait(60)

    return serving(wait)


def test_a_killed_worker_is_an_error_at_once() -> None:
    def kill_later() -> None:
        while not (workers := psutil.Process().children()) or len(server.requests) < 4:
            time.sleep(0.02)
        workers[0].kill()

    with waiting_server() as server:
        threading.Thread(target=kill_later, daemon=True).start()
        with pytest.raises(LoadError, match="load worker 0 ended with code -9"):
            load(server, workers=1)
    assert psutil.Process().children() == []


def test_a_killed_owner_leaves_no_worker_behind() -> None:
    code = (
        "import sys; from pytest_moeperf.load.driver import drive; from pytest_moeperf.model.workload import Workload\n"
        "drive(url=sys.argv[1], workload=Workload(concurrency=2, num_prompts=2, input_len=2), prompts=[[11, 12], [13, 14]],"
        " timeout_s=100, workers=2)"
    )
    with waiting_server() as server:
        owner = subprocess.Popen([sys.executable, "-c", code, server.url], cwd=ROOT)
        while len(server.requests) < 2:
            assert owner.poll() is None
            time.sleep(0.02)
        workers = psutil.Process(owner.pid).children()
        assert len(workers) == 2
        owner.kill()
        owner.wait()
        _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "grpc"}, "unknown protocol 'grpc'\n  next: one of sglang, openai-completions, openai-chat"),
        ({"arrivals": "bursty"}, "unknown arrivals 'bursty'"),
        ({"timeout_s": 0}, "timeout_s must be above 0, not 0"),
        ({"api_key": ApiKey("a\nb")}, "the API key holds characters that an HTTP header can't carry"),
        ({"prompts": [[1]]}, "1 prompts for a workload of 20 requests"),
        ({"workload": Workload(concurrency=0, num_prompts=20)}, "concurrency and output_len must be at least 1"),
        (
            {"workload": Workload(concurrency=1, num_prompts=20, request_rate=-1.0)},
            "request_rate must be above 0, not -1",
        ),
    ],
)
def test_impossible_loads(change: dict[str, Any], message: str) -> None:
    arguments = {"workload": WORKLOAD, "prompts": make_prompts(WORKLOAD, run_key="x"), "timeout_s": 1.0, **change}
    with pytest.raises(LoadError) as caught:
        drive(url="http://127.0.0.1:9", **arguments)
    assert message in str(caught.value)


def test_the_number_of_workers_follows_the_load_and_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)), raising=False)
    counts = [workers_for(concurrency, tls=False) for concurrency in (1, 512, 513, 4096, 100_000)]
    assert counts == [1, 1, 2, 8, 8]
    assert workers_for(1024, tls=True) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    assert workers_for(1024, tls=False) == 1


def test_random_cuts_over_a_real_socket() -> None:
    draw = random.Random(5)
    answer = b"".join(good_answer())

    def script(connection: Connection) -> None:
        while connection.read_request() is not None:
            at = 0
            while at < len(answer):
                step = draw.choice([1, 2, 5, 40, 300])
                connection.send(answer[at : at + step])
                at += step

    with serving(script) as server:
        assert_good(load(server))
