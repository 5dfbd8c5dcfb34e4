"""Each fault of the simulated server, as a client meets it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simulated_process import Answer, Process, serving, started

from pytest_moeperf.bench.agreement import Answers, compare_answers
from pytest_moeperf.bench.sanity import greedy_answers
from pytest_moeperf.engines.simulated.faults import FAULTS
from pytest_moeperf.load.events import SGLANG

TOKENS = 6


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("shared"), "--moe-runner-backend", "triton") as process:
        yield process


@pytest.fixture
def server(shared: Process) -> Iterator[Process]:
    """The shared server; whatever faults a test sets are cleared after it."""
    yield shared
    assert shared.post("/simulated/fault", {"name": None}).json == {"faults": []}
    assert shared.generate(tokens=TOKENS).events[-1] == "[DONE]"


def set_fault(server: Process, fault: str) -> None:
    answer = server.post("/simulated/fault", {"fault": fault})
    assert answer.status == 200, answer.body


def last_event(answer: Answer) -> Any:
    return [event for event in answer.events if event != "[DONE]"][-1]


def finish(answer: Answer) -> Any:
    return last_event(answer)["meta_info"]["finish_reason"]


def test_every_fault_has_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in FAULTS if not re.search(rf"\b{name}\b", text)] == []


# ---- at start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("crash_at_start", "RuntimeError: simulated crash at start"),
        ("oom_at_start", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB."),
        ("missing_kernel_at_start", "CUDA error: no kernel image is available for execution on the device"),
    ],
)
def test_a_start_that_fails_exits_with_1_and_says_why(tmp_path: Path, fault: str, said: str) -> None:
    with started(tmp_path, "--port", "0", "--fault", fault) as process:
        assert process.child.wait(60) == 1
        assert said in process.log()
        assert "running on" not in process.log()


def test_hang_at_start_never_opens_the_port_and_still_ends_by_sigterm(tmp_path: Path) -> None:
    with started(tmp_path, "--port", "0", "--fault", "hang_at_start") as process:
        process.wait_for_log("Load weight begin")
        time.sleep(0.3)
        assert process.child.poll() is None
        assert "Load weight end" not in process.log()
        assert process.stop() == 0


def test_slow_start_shows_its_progress(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with serving(tmp_path, "--fault", "slow_start=0.5") as process:
        assert time.monotonic() - start_s >= 0.5
        assert "Loading safetensors checkpoint shards: 100% Completed | 10/10" in process.log()
        assert process.get("/server_info").json["startup_time"] >= 0.5


def test_silent_fallback_keeps_the_flag_and_runs_another_runner(tmp_path: Path) -> None:
    arguments = (
        "--moe-runner-backend",
        "flashinfer_cutlass",
        "--fault",
        "silent_fallback=triton",
        "--log-level",
        "debug",
    )
    with serving(tmp_path, *arguments) as process:
        info = process.get("/server_info").json
        assert info["moe_runner_backend"] == "flashinfer_cutlass"
        assert info["simulated"]["executed_runner"] == "triton"
        assert info["simulated"]["executed_profile"]["step"]["a_ms"] == 5.0
        assert "Using default MoE kernel config" in process.log()
        assert "moe_runner_backend=MoeRunnerBackend.TRITON" in process.log()
        process.post("/start_profile", {"output_dir": str(tmp_path / "trace"), "num_steps": 1})
        process.generate(tokens=1)
        assert len(list((tmp_path / "trace").iterdir())) == 1


def test_ignore_sigterm_needs_sigkill(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "ignore_sigterm") as process:
        process.child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.get("/health").status == 200


def test_detached_child_outlives_its_parent(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "detached_child") as process:
        match = re.search(r"detached scheduler process, pid (\d+)", process.log())
        assert match is not None
        child = int(match[1])
        assert process.stop() == 0
        assert os.getsid(child) == child
        os.kill(child, signal.SIGKILL)


def test_faults_at_start_can_not_be_set_later_and_bad_ones_say_why(server: Process) -> None:
    for body, message in (
        ({"fault": "oom_at_start"}, "oom_at_start can only be set at start, with --fault"),
        ({"name": "throttle"}, "throttle needs an argument: throttle=FACTOR"),
        ({}, 'send {"fault": "NAME=ARG@WHICH"}, {"name": ..., "arg": ..., "which": ...} or {"name": null}'),
    ):
        answer = server.post("/simulated/fault", body)
        assert (answer.status, answer.json) == (400, {"error": {"message": message}})


def test_faults_are_listed_counted_and_cleared_one_by_one(server: Process) -> None:
    server.post("/simulated/fault", {"name": "early_eos", "arg": 2, "which": "every2"})
    set_fault(server, "retract")
    for _ in range(3):
        server.generate(tokens=TOKENS)
    assert server.get("/simulated/fault").json == {
        "faults": [{"fault": "early_eos=2@every2", "seen": 3, "hit": 1}, {"fault": "retract", "seen": 3, "hit": 3}]
    }
    server.post("/simulated/fault", {"name": "early_eos", "clear": True})
    assert [entry["fault"] for entry in server.get("/simulated/fault").json["faults"]] == ["retract"]
    assert last_event(server.generate(tokens=TOKENS))["meta_info"]["num_retractions"] == 1


# ---- in a request ---------------------------------------------------------------------------------------------------


def test_http_503(server: Process) -> None:
    set_fault(server, "http_503=2")
    assert [server.generate().status for _ in range(3)] == [503, 503, 200]
    set_fault(server, "http_503")
    assert [server.post("/v1/completions", {"prompt": "a"}).status for _ in range(2)] == [503, 503]


def test_html_body(server: Process) -> None:
    set_fault(server, "html_body")
    answer = server.generate()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"502 Bad Gateway" in answer.body


def test_redirect(server: Process) -> None:
    set_fault(server, "redirect")
    answer = server.generate()
    assert (answer.status, answer.headers["location"]) == (307, f"http://127.0.0.1:{server.port}/generate")


def test_wrong_content_length(server: Process) -> None:
    set_fault(server, "wrong_content_length")
    with pytest.raises(http.client.IncompleteRead) as caught:
        server.generate()
    assert caught.value.partial == b'{"text": "cut'


def test_never_headers(server: Process) -> None:
    set_fault(server, "never_headers@1")
    with pytest.raises(TimeoutError):
        server.generate(timeout_s=0.5)
    assert server.generate().status == 200


def test_in_band_error_instead_of_the_first_token(server: Process) -> None:
    set_fault(server, "in_band_error")
    answer = server.generate(tokens=TOKENS)
    assert answer.status == 200
    error, done = answer.events
    assert (error["error"]["message"], done) == ("simulated: the stream failed", "[DONE]")
    assert server.generate(tokens=TOKENS, stream=False).status == 500
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "stream": True})
    assert "error" in chat.events[0]


def test_in_band_error_mid_stream(server: Process) -> None:
    before = server.metric("sglang:num_aborted_requests_total")
    set_fault(server, "in_band_error_mid=4")
    *tokens, error, done = server.generate(tokens=TOKENS).events
    assert [event["meta_info"]["completion_tokens"] for event in tokens] == [1, 2, 3]
    assert ("error" in error, done) == (True, "[DONE]")
    assert server.metric("sglang:num_aborted_requests_total") == before + 1


def test_abort_finish(server: Process) -> None:
    set_fault(server, "abort_finish=2")
    answer = server.generate(tokens=TOKENS)
    assert (finish(answer)["type"], finish(answer)["status_code"], answer.events[-1]) == ("abort", 503, "[DONE]")
    assert server.generate(tokens=TOKENS, stream=False).status == 503


def test_truncated_stream_ends_cleanly_without_its_end_mark(server: Process) -> None:
    set_fault(server, "truncated_stream=3@2")
    assert server.generate(tokens=TOKENS).events[-1] == "[DONE]"
    cut = server.generate(tokens=TOKENS)
    assert [event["meta_info"]["completion_tokens"] for event in cut.events] == [1, 2]
    assert finish(cut) is None


def test_reset_mid_stream(server: Process) -> None:
    set_fault(server, "reset_mid_stream=3")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        server.generate(tokens=TOKENS)
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        server.generate(tokens=TOKENS, stream=False)


def test_early_eos(server: Process) -> None:
    set_fault(server, "early_eos")
    answer = server.generate(tokens=TOKENS)
    assert finish(answer) == {"type": "stop", "matched": 0}
    assert last_event(answer)["meta_info"]["completion_tokens"] == TOKENS // 2


def test_nan_stop(server: Process) -> None:
    set_fault(server, "nan_stop=2")
    assert finish(server.generate(tokens=TOKENS)) == {"type": "stop", "matched": "NaN happened"}


def test_wrong_token_count_disagrees_with_the_ids_and_the_counters(server: Process) -> None:
    before = server.metric("sglang:generation_tokens_total")
    set_fault(server, "wrong_token_count=3")
    event = last_event(server.generate(tokens=TOKENS))
    assert (len(event["output_ids"]), event["meta_info"]["completion_tokens"]) == (TOKENS, TOKENS + 3)
    usage = server.post("/v1/completions", {"prompt": "a", "max_tokens": 4, "ignore_eos": True}).json["usage"]
    assert usage["completion_tokens"] == 4 + 3
    assert server.metric("sglang:generation_tokens_total") == before + TOKENS + 4


def test_multi_token_chunks(server: Process) -> None:
    set_fault(server, "multi_token_chunks=4")
    *events, _ = server.generate(tokens=TOKENS).events
    assert [len(event["output_ids"]) for event in events] == [1, 5, 6]
    body = {"prompt": "a", "max_tokens": 6, "ignore_eos": True, "stream": True}
    assert len(server.post("/v1/completions", body).events) == 3 + 1


def test_cache_hits(server: Process) -> None:
    before = server.metric("sglang:cached_tokens_total")
    set_fault(server, "cache_hits=5")
    assert last_event(server.generate(prompt=8))["meta_info"]["cached_tokens"] == 5
    assert last_event(server.generate(prompt=4))["meta_info"]["cached_tokens"] == 3
    assert server.metric("sglang:cached_tokens_total") == before + 8


def test_retract_shows_in_the_counter(server: Process) -> None:
    before = server.metric("sglang:num_retracted_requests_total")
    set_fault(server, "retract@1")
    server.generate()
    server.generate()
    assert server.metric("sglang:num_retracted_requests_total") == before + 1


def test_wrong_text(server: Process) -> None:
    body = {"input_ids": [3, 1, 4], "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
    right = server.post("/generate", body).json["output_ids"]
    set_fault(server, "wrong_text@2")
    assert server.post("/generate", body).json["output_ids"] == right
    assert server.post("/generate", body).json["output_ids"] != right


def test_an_answer_can_be_continued_from_any_point(server: Process) -> None:
    def answer(prompt: list[int], tokens: int) -> list[int]:
        body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}
        ids: list[int] = server.post("/generate", body).json["output_ids"]
        return ids

    whole = answer([3, 1, 4], 16)
    assert [answer([3, 1, 4, *whole[:depth]], 1) for depth in (4, 9, 15)] == [[whole[depth]] for depth in (4, 9, 15)]


def test_garbage_after_some_tokens(server: Process) -> None:
    body = {"input_ids": [3, 1, 4], "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
    right = server.post("/generate", body).json["output_ids"]
    set_fault(server, "garbage_after=5")
    wrong = server.post("/generate", body).json["output_ids"]
    assert wrong[:5] == right[:5]
    assert all(ours != theirs for ours, theirs in zip(wrong[5:], right[5:], strict=True))
    assert last_event(server.post("/generate", {**body, "stream": True}))["output_ids"] == wrong


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("", "pass", "128 of 128 first tokens are the reference's, 64 of 64 later ones"),
        ("wrong_text@40%", "fail", "the first token differs from the reference's for "),
        (
            "garbage_after=48",
            "fail",
            "17 of 64 tokens that it decoded (the first after 48 tokens) are not what it says",
        ),
    ],
)
def test_the_output_check_on_a_server(server: Process, fault: str, status: str, said: str) -> None:
    def answers() -> Answers | None:
        forget = partial(server.post, "/flush_cache")
        url = f"http://127.0.0.1:{server.port}"
        return greedy_answers(url=url, protocol=SGLANG, api_key=None, model="m", forget=forget)

    reference = answers()
    if fault:
        set_fault(server, fault)
    check = compare_answers(reference, answers())
    assert (check.status, said in check.message) == (status, True), check.message


def test_drip_sends_one_byte_at_a_time(server: Process) -> None:
    set_fault(server, "drip=0.001")
    start_s = time.monotonic()
    answer = server.generate(tokens=1)
    assert answer.events[-1] == "[DONE]"
    assert time.monotonic() - start_s >= 0.001 * (len(answer.body) - 1)


def test_big_event(server: Process) -> None:
    set_fault(server, "big_event=200000")
    answer = server.generate(tokens=TOKENS)
    assert [len(event.get("padding", "")) for event in answer.events[:-1]] == [200000, 0, 0, 0, 0, 0]


# ---- on the engine --------------------------------------------------------------------------------------------------


def step_seconds(server: Process, work: Callable[[], object]) -> float:
    before = server.metric("simulated:step_seconds_total")
    work()
    return server.metric("simulated:step_seconds_total") - before


def test_throttle(server: Process) -> None:
    normal = step_seconds(server, lambda: server.generate(tokens=20))
    set_fault(server, "throttle=10")
    # The noise of a step is 1 %; a factor of 10 can't be mistaken.
    assert step_seconds(server, lambda: server.generate(tokens=20)) == pytest.approx(10 * normal, rel=0.1)


def test_compile_stall_hits_all_streams_of_the_next_run_once(server: Process) -> None:
    set_fault(server, "compile_stall=300")

    def stall(_: int) -> float:
        answer = server.generate(tokens=60)
        latency: float = last_event(answer)["meta_info"]["e2e_latency"]
        return latency

    server.post("/flush_cache")
    with ThreadPoolExecutor(3) as pool:
        assert min(pool.map(stall, range(3))) >= 0.3
    server.post("/flush_cache")
    assert step_seconds(server, lambda: server.generate(tokens=60)) < 0.3


def test_crash_mid_run(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "crash_mid_run=20") as process:
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            process.generate(tokens=100)
        assert process.child.wait(60) == 1
        assert "RuntimeError: simulated crash in a forward pass" in process.log()


def test_hang_mid_run_stops_the_engine_and_not_http(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "hang_mid_run=5") as process:
        with pytest.raises(TimeoutError):
            process.generate(tokens=100, timeout_s=1.0)
        assert process.get("/ready").status == 200
        assert process.metric("simulated:steps_total") == 5
        assert process.get("/health").status == 503
        assert process.stop() == 0


# ---- on connections -------------------------------------------------------------------------------------------------


def test_refuse_closes_connections_beyond_the_limit(server: Process) -> None:
    set_fault(server, "refuse=2")
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    try:
        # The two are counted once the server has accepted them, in their order.
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            server.get("/ready")
    finally:
        for connection in held:
            connection.close()
    deadline_s = time.monotonic() + 60
    while not _answers(server):
        assert time.monotonic() < deadline_s


def _answers(server: Process) -> bool:
    try:
        return server.get("/ready").status == 200
    except (ConnectionResetError, http.client.RemoteDisconnected):
        return False


def test_slow_accept(server: Process) -> None:
    set_fault(server, "slow_accept=0.4")
    start_s = time.monotonic()
    assert server.get("/ready").status == 200
    assert time.monotonic() - start_s >= 0.4
