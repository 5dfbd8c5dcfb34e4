"""The simulated server as a process: every route, the clock, the counters, the end."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from simulated_process import Process, serving, started

QUIET = ("--session-sd=0", "--launch-sd=0", "--run-sd=0", "--step-sd=0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("server"), "--moe-runner-backend", "triton", "--tp", "2") as process:
        yield process


@pytest.fixture(autouse=True)
def idle(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").wait_for_metric("sglang:num_running_reqs", 0)


def test_the_log_names_the_simulation_first_and_its_runner(server: Process) -> None:
    lines = server.log().splitlines()
    assert "simulated: no GPU, no model; profile triton, pid" in lines[0]
    assert "server_args=ServerArgs(model_path='simulated'" in lines[1]
    text = server.log()
    order = [
        "Load weight begin",
        "Load weight end",
        "Capture cuda graph begin",
        "Using default MoE kernel config",
        "ready to roll",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_health_and_ready(server: Process) -> None:
    assert [server.get(path).status for path in ("/health", "/health_generate", "/ready")] == [200, 200, 200]


def test_server_info_has_the_arguments_at_its_top_and_says_that_it_is_simulated(server: Process) -> None:
    info = server.get("/server_info").json
    assert (info["moe_runner_backend"], info["tp_size"], info["port"]) == ("triton", 2, 0)
    assert info["version"].startswith("simulated-")
    assert "--moe-runner-backend triton" in info["launch_command"]
    assert info["internal_states"][0]["moe_runner_backend"] == "triton"
    assert info["internal_states"][0]["page_size"] == 16
    simulated = info["simulated"]
    assert (simulated["pid"], simulated["executed_runner"]) == (server.child.pid, "triton")
    assert simulated["args"]["time_scale"] == 0.2
    assert len(simulated["profile_digest"]) == 64
    assert server.get("/get_server_info").json.keys() == info.keys()


def test_model_routes(server: Process) -> None:
    assert server.get("/model_info").json["model_path"] == "simulated"
    assert server.get("/get_model_info").json == server.get("/model_info").json
    assert server.get("/v1/models").json["data"][0]["id"] == "simulated"


def test_generate_streaming_and_not(server: Process) -> None:
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}}
    streamed = server.post("/generate", {**body, "stream": True})
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done = streamed.events
    assert done == "[DONE]"
    assert [event["meta_info"]["completion_tokens"] for event in events] == [1, 2, 3, 4, 5]
    whole = server.post("/generate", body).json
    assert whole["output_ids"] == events[-1]["output_ids"]
    assert whole["text"] == events[-1]["text"]
    assert whole["meta_info"]["finish_reason"] == {"type": "length", "length": 5}


def test_without_ignore_eos_a_prompt_has_its_own_end(server: Process) -> None:
    body = {"input_ids": [7, 8, 9], "sampling_params": {"max_new_tokens": 40}}
    first, again = (server.post("/generate", body).json["meta_info"] for _ in range(2))
    assert first["completion_tokens"] == again["completion_tokens"]
    assert 20 <= first["completion_tokens"] < 40
    assert first["finish_reason"] == {"type": "stop", "matched": 0}


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", {"prompt": "to be or not"}),
        ("/v1/completions", {"prompt": [5, 6, 7, 8]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "to be or not"}]}),
    ],
)
def test_openai_routes_streaming_and_not(server: Process, path: str, prompt: dict[str, object]) -> None:
    body = {"model": "m", "max_tokens": 4, "ignore_eos": True, **prompt}
    whole = server.post(path, body).json
    expected = {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "total_tokens": 8,
        "reasoning_tokens": 0,
        "prompt_tokens_details": None,
    }
    assert whole["usage"] == expected
    assert whole["choices"][0]["finish_reason"] == "length"
    *chunks, usage, done = server.post(path, {**body, "stream": True, "stream_options": {"include_usage": True}}).events
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 4)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"
    assert server.post(path, {**body, "stream": True}).events[-2]["choices"] != []


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/generate", b"{", "the body is not JSON: "),
        ("/generate", [], "the body must be a JSON object"),
        ("/generate", {"text": ["a", "b"]}, "the prompt must be one text or one list of token ids, and not be empty"),
        ("/generate", {"input_ids": []}, "the prompt must be one text or one list of token ids, and not be empty"),
        ("/generate", {"input_ids": [1, "2"]}, "input_ids must be a list of integers: "),
        ("/generate", {"text": "a", "stream": 1}, "stream must be true or false, not 1"),
        (
            "/generate",
            {"text": "a", "sampling_params": {"max_new_tokens": 0}},
            "max_new_tokens must be a whole number of at least 1, not 0",
        ),
        ("/generate", {"text": "a", "rid": 'x"y'}, "rid must be a text of ASCII letters, digits and hyphens"),
        ("/generate", {"text": "a", "return_logprob": True}, "return_logprob is not simulated"),
        ("/generate", {"input_ids": [1] * 32768}, "The input (32768 tokens) is longer than the model's context length"),
    ],
)
def test_bad_bodies_get_400_and_a_reason(server: Process, path: str, body: object, message: str) -> None:
    answer = server.post(path, body)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(message)


def test_bad_openai_bodies_get_400_and_a_reason(server: Process) -> None:
    for path, body, message in (
        ("/v1/completions", {"prompt": "a", "n": 2}, "n must be 1; the simulated engine gives one answer a request"),
        ("/v1/chat/completions", {"messages": []}, "messages must be a list of at least one message"),
        ("/v1/chat/completions", {"messages": [{}]}, "each message must have a text as its content"),
    ):
        answer = server.post(path, body)
        assert (answer.status, answer.json["message"]) == (400, message)


def test_a_prompt_that_is_too_long_for_a_native_stream_shows_in_the_stream(server: Process) -> None:
    answer = server.post("/generate", {"input_ids": [1] * 32768, "stream": True})
    assert answer.status == 200
    assert answer.events[0]["error"]["code"] == 400


def test_counters_are_exact(server: Process) -> None:
    names = ("num_requests", "prompt_tokens", "generation_tokens", "cached_tokens", "num_aborted_requests")
    before = {name: server.metric(f"sglang:{name}_total") for name in names}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: server.generate(tokens=5 + i, prompt=10, stream=i % 2 == 0), range(16)))
    assert all(answer.status == 200 for answer in answers)
    after = {name: server.metric(f"sglang:{name}_total") for name in names}
    assert {name: after[name] - before[name] for name in names} == {
        "num_requests": 16,
        "prompt_tokens": 160,
        "generation_tokens": sum(5 + i for i in range(16)),
        "cached_tokens": 0,
        "num_aborted_requests": 0,
    }


def test_a_repeated_prompt_is_cached_until_the_flush(server: Process) -> None:
    body = {"input_ids": list(range(100, 164)), "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}}

    def cached() -> int:
        count: int = server.post("/generate", body).json["meta_info"]["cached_tokens"]
        return count

    before = server.metric("sglang:cached_tokens_total")
    assert [cached(), cached()] == [0, 48]
    assert server.metric("sglang:cached_tokens_total") - before == 48
    assert server.post("/flush_cache").status == 200
    assert cached() == 0


def test_flush_is_refused_while_requests_run_and_starts_a_new_run(server: Process) -> None:
    server.generate(tokens=1)
    run = server.get("/server_info").json["simulated"]["run_index"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.generate, tokens=400)
        server.wait_for_metric("sglang:num_running_reqs", 1)
        assert server.post("/flush_cache").status == 400
        assert server.post("/flush_cache?timeout=60").status == 200
        assert running.result().events[-1] == "[DONE]"
    punctuality = server.get("/server_info").json["simulated"]["punctuality"]
    assert punctuality["steps"] == 0
    server.generate(tokens=1)
    assert server.get("/server_info").json["simulated"]["run_index"] == run + 1


def test_slow_down_makes_each_step_longer_and_null_ends_it(server: Process) -> None:
    def step_seconds() -> float:
        before = server.metric("simulated:step_seconds_total")
        server.generate(tokens=4)
        return server.metric("simulated:step_seconds_total") - before

    quick = step_seconds()
    assert server.post("/slow_down", {"forward_sleep_time": 0.02}).status == 200
    assert server.get("/server_info").json["simulated"]["forward_sleep_time"] == 0.02
    start_s = time.monotonic()
    assert step_seconds() == pytest.approx(quick + 4 * 0.02, abs=0.005)
    assert time.monotonic() - start_s >= 4 * 0.02
    assert server.post("/slow_down", {"forward_sleep_time": None}).status == 200
    assert step_seconds() == pytest.approx(quick, abs=0.005)
    assert server.post("/slow_down", {"forward_sleep_time": "fast"}).status == 400


def test_a_request_can_be_aborted_by_id_and_all_at_once(server: Process) -> None:
    before = server.metric("sglang:num_aborted_requests_total")
    body = {
        "text": "a",
        "rid": "mine",
        "stream": True,
        "sampling_params": {"max_new_tokens": 20000, "ignore_eos": True},
    }
    with ThreadPoolExecutor(2) as pool:
        for order in ({"rid": "mine"}, {"abort_all": True}):
            running = pool.submit(server.post, "/generate", body)
            server.wait_for_metric("sglang:num_running_reqs", 1)
            assert server.post("/abort_request", order).status == 200
            assert running.result().events[-2]["meta_info"]["finish_reason"]["type"] == "abort"
    assert server.metric("sglang:num_aborted_requests_total") - before == 2


def test_a_client_that_leaves_ends_its_request(server: Process) -> None:
    before = server.metric("sglang:num_aborted_requests_total")
    body = json.dumps(
        {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 20000, "ignore_eos": True}}
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert client.recv(10) == b"HTTP/1.1 2"
    server.wait_for_metric("sglang:num_aborted_requests_total", before + 1)


def test_one_connection_serves_request_after_request(server: Process) -> None:
    body = json.dumps(
        {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 3, "ignore_eos": True}}
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        for _ in range(3):
            client.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += client.recv(65536)
            assert answer.count(b'"completion_tokens"') == 3
            assert b"data: [DONE]" in answer


def test_a_profile_holds_the_executed_kernels(server: Process, tmp_path: Path) -> None:
    assert (
        server.post("/start_profile", {"output_dir": str(tmp_path), "num_steps": 2, "profile_prefix": "x/y"}).status
        == 200
    )
    assert server.post("/start_profile", {"output_dir": str(tmp_path)}).status == 400
    server.generate(tokens=4)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("simulated-xy-")
    assert path.name.endswith("-TP-0.trace.json.gz")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    kernels = ["fused_moe_kernel", "moe_align_block_size_kernel", "act_and_mul_kernel"]
    assert [event["name"] for event in trace["traceEvents"]] == kernels * 2
    assert trace["simulated"] is True
    assert server.post("/stop_profile").status == 200


def test_decode_lines_come_every_interval(server: Process) -> None:
    server.generate(tokens=85)
    assert server.log().count("Decode batch, #running-req: 1, #token: ") >= 2


def test_the_model_time_is_kept_and_lateness_is_told(tmp_path: Path) -> None:
    with serving(tmp_path, "--moe-runner-backend", "triton", "--time-scale", "1", *QUIET) as server:
        server.post("/flush_cache")
        start_s = time.monotonic()
        server.generate(tokens=50, prompt=100)
        elapsed_s = time.monotonic() - start_s
        modelled_s = 50 * 5.02e-3 + 100 * 0.005e-3
        assert server.metric("simulated:step_seconds_total") == pytest.approx(modelled_s, rel=1e-6)
        # Never early; how late is the machine's business, and in the report.
        assert elapsed_s >= modelled_s
        punctuality = server.get("/server_info").json["simulated"]["punctuality"]
        assert punctuality["steps"] == 50
        assert 0 <= punctuality["lateness_p50_s"] <= punctuality["lateness_p99_s"] <= punctuality["lateness_max_s"]
        assert punctuality["lateness_max_s"] < elapsed_s


def test_a_stopped_process_says_that_it_ran_late(tmp_path: Path) -> None:
    with serving(tmp_path, "--moe-runner-backend", "triton") as server, ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.generate, tokens=2000)
        server.wait_for_metric("sglang:num_running_reqs", 1)
        server.child.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        server.child.send_signal(signal.SIGCONT)
        running.result()
        assert server.metric("simulated:step_lateness_max_seconds") >= 0.25
        assert server.metric("simulated:late_steps_total") >= 1


def test_the_key_guards_all_but_health_and_metrics(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-key", "open-sesame") as server:
        assert [server.get(path).status for path in ("/health", "/metrics")] == [200, 200]
        for path in ("/server_info", "/v1/models", "/ready"):
            answer = server.get(path)
            assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
        for given, status in (("Bearer open-sesame", 200), ("Bearer wrong", 401), ("open-sesame", 401)):
            assert server.call("GET", "/v1/models", headers={"Authorization": given}).status == status
        assert "open-sesame" not in server.log()


def test_incremental_output_by_flag_and_metrics_switched_off(tmp_path: Path) -> None:
    with serving(tmp_path, "--incremental-streaming-output", "--stream-interval", "2", "--no-enable-metrics") as server:
        *events, _ = server.generate(tokens=4).events
        assert [len(event["output_ids"]) for event in events] == [1, 2, 1]
        assert server.get("/metrics").status == 404


def test_sigterm_drains_and_exits_with_0(tmp_path: Path) -> None:
    with serving(tmp_path, "--time-scale", "1") as server, ThreadPoolExecutor(2) as pool:
        short, long = pool.submit(server.generate, tokens=30), pool.submit(server.generate, tokens=30000)
        server.wait_for_metric("sglang:num_running_reqs", 2)
        assert server.stop() == 0
        assert short.result().events[-2]["meta_info"]["finish_reason"]["type"] == "length"
        reason = long.result().events[-2]["meta_info"]["finish_reason"]
        assert (reason["type"], reason["status_code"]) == ("abort", 503)


def test_a_port_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(tmp_path, "--port", str(port)) as process:
            assert process.child.wait(60) == 3
            expected = f"error while attempting to bind on address ('127.0.0.1', {port})"
            assert expected in process.log()
            assert "ready to roll" not in process.log()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_two_nodes_serve_once_both_have_come_and_end_together(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    nodes = ("--nnodes", "2", "--dist-init-addr", address)
    with started(tmp_path, *nodes, "--node-rank", "1") as second:
        second.wait_for_log("Capture cuda graph end")
        assert second.child.poll() is None
        with serving(tmp_path, *nodes) as first:
            assert "simulated: node 1 of 2 has come" in first.log()
            assert first.generate().status == 200
            assert first.stop() == 0
        assert second.child.wait(60) == 0


@pytest.mark.parametrize("victim", [0, 1])
def test_a_node_that_vanishes_takes_the_other_with_it(tmp_path: Path, victim: int) -> None:
    nodes = ("--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    with started(tmp_path, *nodes, "--node-rank", "1") as second, serving(tmp_path, *nodes) as first:
        both = (first, second)
        both[victim].child.kill()
        assert both[1 - victim].child.wait(60) == 1
        assert "has vanished (simulated)" in both[1 - victim].log()
