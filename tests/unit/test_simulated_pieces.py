"""The small parts: fault syntax, command line, launch command, counters, prefix cache."""

from __future__ import annotations

from random import Random

import pytest

from pytest_moeperf.engines.simulated.arguments import CommandLine, parse_command_line
from pytest_moeperf.engines.simulated.counters import Counters, Delays, Histogram
from pytest_moeperf.engines.simulated.engine import Disturbance
from pytest_moeperf.engines.simulated.faults import FAULTS, Fault, FaultBoard, FaultError, parse_fault
from pytest_moeperf.engines.simulated.launch import build_command, known_backends
from pytest_moeperf.engines.simulated.prefix_cache import PAGE, PrefixCache
from pytest_moeperf.engines.simulated.tokens import prompt_bytes


def board(*texts: str, disturbance: Disturbance | None = None) -> FaultBoard:
    return FaultBoard([parse_fault(text) for text in texts], disturbance=disturbance or Disturbance(), draws=Random(1))


def hits(which: str, requests: int) -> list[int]:
    each = board(f"early_eos{which}")
    return [number for number in range(1, requests + 1) if each.strike()]


@pytest.mark.parametrize(
    ("which", "expected"),
    [("", [1, 2, 3, 4, 5, 6]), ("@3", [3]), ("@2-4", [2, 3, 4]), ("@every2", [2, 4, 6]), ("@0%", []), ("=2@1", [1])],
)
def test_which_requests_a_fault_hits(which: str, expected: list[int]) -> None:
    assert hits(which, 6) == expected


def test_a_fraction_is_drawn_from_the_seed() -> None:
    first = hits("@10%", 2000)
    assert hits("@10%", 2000) == first
    assert len(first) == pytest.approx(200, abs=45)


def test_http_503_counts_down() -> None:
    each = board("http_503=2@every2")
    assert [bool(each.strike()) for _ in range(8)] == [False, True, False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("text", "arg"),
    [("early_eos", "half"), ("early_eos=7", "7"), ("http_503", "always"), ("throttle=1.5", "1.5"), ("refuse", "64")],
)
def test_arguments_and_their_defaults(text: str, arg: str) -> None:
    assert parse_fault(text).arg == arg


def test_half_is_half_of_what_is_asked_for() -> None:
    assert parse_fault("early_eos").number(half_of=9) == 4
    assert parse_fault("early_eos").number(half_of=1) == 1


@pytest.mark.parametrize("text", ["early_eos=3@2-4", "http_503=always@every3", "html_body@10%", "throttle=1.5"])
def test_a_fault_reads_back_as_it_was_written(text: str) -> None:
    assert str(parse_fault(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nope", "no fault is named 'nope'; there are " + ", ".join(FAULTS)),
        ("Early EOS", "'Early EOS' is not a fault; write NAME, NAME=ARG, NAME@WHICH or NAME=ARG@WHICH"),
        ("html_body=3", "html_body takes no argument, but '3' was given"),
        ("throttle", "throttle needs an argument: throttle=FACTOR"),
        ("slow_start=soon", "slow_start=soon: seconds must be a number of at least 0"),
        ("early_eos=-1", "early_eos=-1: tokens must be a number of at least 0"),
        ("throttle=2@3", "throttle concerns the whole server, so it takes no @3"),
        ("early_eos@0", "@0 picks no requests; write @3, @3-7, @every4 or @10%"),
        ("early_eos@5-2", "@5-2 picks no requests; write @3, @3-7, @every4 or @10%"),
        ("early_eos@200%", "@200% picks no requests; write @3, @3-7, @every4 or @10%"),
    ],
)
def test_a_bad_fault_says_what_is_allowed(text: str, expected: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse_fault(text)
    assert str(caught.value) == expected


def test_arming_and_clearing_move_the_disturbance() -> None:
    disturbance = Disturbance()
    each = board("throttle=2", "compile_stall=250", disturbance=disturbance)
    assert (disturbance.throttle, disturbance.stall_s) == (2.0, 0.25)
    each.clear("throttle")
    assert (disturbance.throttle, disturbance.stall_s) == (1.0, 0.25)
    each.clear()
    assert (disturbance.stall_s, each.report()) == (0.0, [])


def test_a_process_fault_is_due_when_its_tokens_are_spent() -> None:
    each = board("crash_mid_run=5", "early_eos")
    assert [each.spend_tokens(2) for _ in range(3)] == [None, None, "crash_mid_run"]
    assert each.report()[0] == {"fault": "crash_mid_run=5", "seen": 0, "hit": 0}


def parse(*argv: str) -> CommandLine:
    return parse_command_line(argv)


def test_defaults_follow_the_runner_flag() -> None:
    line = parse("--moe-runner-backend", "flashinfer_cutlass", "--tp", "8")
    assert (line.args.moe_runner_backend, line.args.profile, line.args.tp_size) == (
        "flashinfer_cutlass",
        "flashinfer_cutlass",
        8,
    )
    assert line.executed is not None
    assert line.executed.runner == "flashinfer_cutlass"
    nothing = parse()
    assert (nothing.args.moe_runner_backend, nothing.executed.runner) == ("triton", "triton")
    assert parse("--backend", "auto").args.moe_runner_backend == "auto"


def test_a_silent_fallback_keeps_the_flag_and_runs_something_else() -> None:
    line = parse("--moe-runner-backend", "flashinfer_cutlass", "--fault", "silent_fallback=triton")
    assert (line.args.moe_runner_backend, line.profile.runner, line.executed.runner) == (
        "flashinfer_cutlass",
        "flashinfer_cutlass",
        "triton",
    )


def test_noise_levels_of_the_command_line_win() -> None:
    line = parse("--session-sd", "0.02", "--step-ar1", "0", "--fault", "silent_fallback=triton_kernel")
    for profile in (line.profile, line.executed):
        assert (profile.noise.session_sd, profile.noise.step_ar1, profile.noise.run_sd) == (0.02, 0.0, 0.003)


def test_a_key_is_left_out_of_the_log_line() -> None:
    args = parse("--api-key", "secret").args
    assert "secret" not in repr(args)
    assert "api_key='***'" in repr(args)
    assert args.of_sglang()["api_key"] == "secret"
    assert "session_key" not in args.of_sglang()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--no-such-flag"], "error: unrecognized arguments: --no-such-flag"),
        (["--por", "1"], "error: unrecognized arguments: --por 1"),
        (["--port", "99999"], "error: argument --port: '99999' is not a port, or 0 for any free one"),
        (
            ["--tp", "0"],
            "error: argument --tp-size/--tp/--tensor-parallel-size: '0' is not a whole number of at least 1",
        ),
        (["--time-scale", "x"], "error: argument --time-scale: 'x' is not a positive number"),
        (["--fault", "throttle"], "error: argument --fault: throttle needs an argument: throttle=FACTOR"),
        (
            ["--moe-runner-backend", "marlin"],
            "error: simulated profile: no profile is named 'marlin'\n  allowed: auto, flashinfer_cutedsl, flash",
        ),
        (["--fault", "silent_fallback=x"], "error: simulated profile: no profile is named 'x'\n  allowed: auto, "),
        (["--node-rank", "2"], "error: argument --node-rank: 2 must be below --nnodes 1"),
        (
            ["--nnodes", "2"],
            "error: argument --dist-init-addr: needed with --nnodes 2, as HOST:PORT of node 0",
        ),
    ],
)
def test_a_bad_command_line_is_refused(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def command(*args: str, backend: str = "triton", model: str | None = "MODEL") -> list[str]:
    return build_command(
        python="PY",
        host="127.0.0.1",
        port=1234,
        backend=backend,
        model=model,
        tensor_parallel=2,
        args=args,
        session_key="s",
        launch_key="l",
        seed=7,
    )


def test_the_command_of_a_launch() -> None:
    assert command("--step-sd=0") == [
        *("PY", "-m", "pytest_moeperf.engines.simulated", "--host", "127.0.0.1", "--port", "1234"),
        *("--backend", "triton", "--moe-runner-backend", "triton", "--model-path", "MODEL", "--tp-size", "2"),
        *("--session-key", "s", "--launch-key", "l", "--seed", "7", "--step-sd=0"),
    ]
    assert "--model-path" not in command(model=None)


@pytest.mark.parametrize("backend", known_backends())
def test_each_known_backend_can_be_launched(backend: str) -> None:
    line = parse_command_line(command(backend=backend)[3:])
    assert (line.args.backend, line.args.moe_runner_backend, line.args.launch_key) == (backend, backend, "l")


def test_a_backend_of_the_users_own_names_its_runner_in_its_arguments() -> None:
    line = parse_command_line(command("--moe-runner-backend=flashinfer_cutlass", backend="mine")[3:])
    assert (line.args.backend, line.args.moe_runner_backend) == ("mine", "flashinfer_cutlass")
    assert parse_command_line(command("--profile=triton", backend="mine")[3:]).args.moe_runner_backend == "triton"


def test_prometheus_text_is_read_back_by_the_official_parser() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    counters = Counters(prompt_tokens=10, generation_tokens=20, cached_tokens=3, requests=2, aborted=1)
    counters.add_step(lateness_s=0.002, duration_s=0.01)
    counters.add_step(lateness_s=-1.0, duration_s=0.01)
    counters.ttft.observe(0.3)
    counters.ttft.observe(5.0, times=2)
    text = counters.prometheus(model_name='a"b', running=4, queued=1)
    samples = {
        (sample.name, sample.labels.get("le", sample.labels.get("quantile", ""))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        "sglang:num_running_reqs": 4,
        "sglang:num_queue_reqs": 1,
        "sglang:prompt_tokens_total": 10,
        "sglang:generation_tokens_total": 20,
        "sglang:cached_tokens_total": 3,
        "sglang:num_requests_total": 2,
        "sglang:num_aborted_requests_total": 1,
        "sglang:num_retracted_requests_total": 0,
        "simulated:steps_total": 2,
        "simulated:late_steps_total": 1,
        "simulated:step_lateness_seconds_count": 2,
        "simulated:step_lateness_max_seconds": 0.002,
        "sglang:time_to_first_token_seconds_count": 3,
        "sglang:time_to_first_token_seconds_sum": 10.3,
    }
    assert {name: samples[name, ""] for name in expected} == pytest.approx(expected)
    assert samples["sglang:time_to_first_token_seconds_bucket", "0.2"] == 0
    assert samples["sglang:time_to_first_token_seconds_bucket", "0.4"] == 1
    assert samples["sglang:time_to_first_token_seconds_bucket", "+Inf"] == 3


def test_a_value_on_a_bound_counts_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    assert list(histogram.lines("m", "a"))[:2] == ['m_bucket{a,le="1.0"} 1', 'm_bucket{a,le="2.0"} 1']


def test_quantiles_of_delays() -> None:
    delays = Delays()
    assert delays.quantile(0.5) == 0.0
    for value in range(100):
        delays.add(value / 100)
    assert (delays.quantile(0.5), delays.quantile(0.99), delays.max_s, delays.count) == (0.5, 0.99, 0.99, 100)


def test_the_prefix_cache_knows_whole_pages_and_never_the_last_token() -> None:
    cache = PrefixCache()
    prompt = list(range(1, 4 * PAGE + 1))
    assert cache.match_and_add(prompt_bytes(prompt)) == 0
    assert cache.match_and_add(prompt_bytes(prompt)) == 3 * PAGE
    assert cache.match_and_add(prompt_bytes([*prompt, 5])) == 3 * PAGE
    assert cache.match_and_add(prompt_bytes([*prompt, 5])) == 4 * PAGE
    assert cache.match_and_add(prompt_bytes([*prompt[: PAGE + 3], *range(1000, 1200)])) == PAGE
    assert cache.match_and_add(prompt_bytes([0, *prompt])) == 0
    cache.clear()
    assert cache.match_and_add(prompt_bytes(prompt)) == 0


def test_the_prefix_cache_forgets_the_oldest() -> None:
    cache = PrefixCache(max_pages=2)
    first, second = list(range(PAGE + 1)), list(range(500, 500 + 2 * PAGE + 1))
    cache.match_and_add(prompt_bytes(first))
    cache.match_and_add(prompt_bytes(second))
    assert cache.match_and_add(prompt_bytes(first)) == 0


def test_a_fault_without_parts_is_hit_by_all() -> None:
    assert Fault(name="html_body").which.hits(1, Random(0))
