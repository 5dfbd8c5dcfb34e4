"""What is missing from /metrics is unknown and not 0, in every engine's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_samples import steady_run

from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.telemetry import server_counters
from pytest_moeperf.telemetry.queue import QueueSampler
from pytest_moeperf.validity import server_checks

LOGS = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu"
WORKLOAD = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16)
"""16 requests, 160 prompt tokens, 960 generated ones."""


def vllm(*, requests: int = 0, aborted: int = 0, preempted: int = 0, hits: int = 0, model: str = "m") -> str:
    label = f'engine="0",model_name="{model}"'
    return "\n".join(
        f"{name} {value}\n{name.partition('{')[0].removesuffix('_total')}_created{{{label}}} 1.7e9"
        for name, value in {
            f'vllm:request_success_total{{{label},finished_reason="length"}}': requests,
            f'vllm:request_success_total{{{label},finished_reason="abort"}}': aborted,
            f"vllm:prompt_tokens_total{{{label}}}": 10 * requests,
            f"vllm:generation_tokens_total{{{label}}}": 60 * requests,
            f"vllm:num_preemptions_total{{{label}}}": preempted,
            f"vllm:prefix_cache_queries_total{{{label}}}": 10 * requests,
            f"vllm:prefix_cache_hits_total{{{label}}}": hits,
        }.items()
    )


def sglang(*, requests: int, model: str = "m", prefix: str = "sglang:") -> str:
    """As SGLang lists them: nothing before the first request, aborts and hits never."""
    label = f'{{engine_type="unified",model_name="{model}"}}'
    lines = [f"{prefix}num_retracted_reqs{label} 0.0", f"{prefix}num_running_reqs{label} 0.0"]
    if requests:
        lines += [
            f"{prefix}num_requests_total{label} {requests}",
            f"{prefix}prompt_tokens_total{label} {10 * requests}",
        ]
        lines += [f"{prefix}generation_tokens_total{label} {60 * requests}"]
    return "\n".join(lines)


def judged(before: str | None, after: str | None, *, models: tuple[str, ...] = ("m",)) -> dict[str, Check]:
    one, two = (server_counters(text, models=models) for text in (before, after))
    return {check.name: check for check in server_checks(one, two, steady_run(), WORKLOAD)}


COUNTED = [
    *("server_requests_agree", "server_generated_tokens_agree", "server_prompt_tokens_agree"),
    *("server_cached_tokens_agree", "server_no_aborts", "server_no_retractions"),
]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sglang(requests=0), sglang(requests=16)),  # the first run of a server: nothing was listed before
        (sglang(requests=5), sglang(requests=21)),
        (sglang(requests=5, prefix="sglang_"), sglang(requests=21, prefix="sglang_")),
        (vllm(requests=3), vllm(requests=19)),
        (
            vllm(requests=3) + "\n" + vllm(requests=9, model="other"),
            vllm(requests=19) + "\n" + vllm(requests=11, preempted=7, model="other"),
        ),
    ],
    ids=["first run", "later run", "no colons", "vllm", "two models"],
)
def test_servers_that_agree(before: str, after: str) -> None:
    seen = judged(before, after)
    assert {name: seen[name].status for name in COUNTED} == dict.fromkeys(COUNTED, "pass")


@pytest.mark.parametrize(
    ("after", "name", "message"),
    [
        (
            vllm(requests=19, preempted=293),
            "server_no_retractions",
            "the server counted 293 retracted requests in the run, the client 0: its KV cache is too small for this load",
        ),
        (vllm(requests=18, aborted=1), "server_no_aborts", "the server counted 1 aborted requests in the run"),
        (vllm(requests=19, hits=150), "server_cached_tokens_agree", "the server counted 150 cached tokens in the run"),
        (
            vllm(requests=1),
            "server_requests_agree",
            "-2 requests in the run, the client 16: its counters fell, so it was",
        ),
    ],
)
def test_vllm_servers_that_do_not(after: str, name: str, message: str) -> None:
    seen = judged(vllm(requests=3), after)
    assert seen[name].status == "fail"
    assert message in seen[name].message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (None, sglang(requests=16)),  # what was there before is not known
        (sglang(requests=3), None),
        (sglang(requests=0), sglang(requests=0)),  # 16 requests ended, and it lists none
        ('sglang:http_requests_total{endpoint="/generate"} 3', 'sglang:http_requests_total{endpoint="/generate"} 19'),
        (vllm(model="a") + "\n" + vllm(model="b"), vllm(model="a", requests=16) + "\n" + vllm(model="b")),
    ],
    ids=["none", "late", "gone", "not listed", "front end", "two others"],
)
def test_what_is_missing_is_unknown(before: str | None, after: str | None) -> None:
    seen = judged(before, after)
    assert {seen[name].status for name in COUNTED[:3]} == {"unknown"}
    assert not [check for check in seen.values() if check.status == "fail"]


def test_a_metrics_page_without_request_counts_says_nothing_about_tokens() -> None:
    text = 'sglang:num_running_reqs{model_name="m"} 0.0\nsglang:prompt_tokens_total{model_name="m"} 5.0\n'
    seen = judged(text, text)
    assert {seen[name].status for name in COUNTED} == {"unknown"}


def test_one_that_counts_requests_and_did_not_count_these() -> None:
    seen = judged(sglang(requests=3), sglang(requests=3))
    assert seen["server_requests_agree"].status == "fail"


def test_a_real_servers_gauges() -> None:
    sampler = QueueSampler((LOGS / "metrics_after_bench.txt").read_text)
    sampler.sample()
    assert sampler.summary() == {
        "samples": 1,
        "running_max": 4.0,
        "queued_max": 0.0,
        "running_by_rank": {"all": 4.0},
    }


def test_tensor_ranks_tell_of_the_same_requests_and_data_ranks_of_others() -> None:
    texts = iter(
        "".join(
            f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",model_name="m"}} {running}\n'
            f'sglang:num_queue_reqs{{dp_rank="{dp}",tp_rank="{tp}",model_name="m"}} {2 * dp}\n'
            for dp, running in enumerate(each)
            for tp in (0, 1)
        )
        for each in ([11, 1], [9, 1])
    )
    sampler = QueueSampler(lambda: next(texts), models={"m"})
    sampler.sample()
    sampler.sample()
    assert sampler.summary() == {
        "samples": 2,
        "running_max": 12.0,
        "queued_max": 2.0,
        "running_by_rank": {"dp_rank 0": 10.0, "dp_rank 1": 1.0},
    }


def test_nothing_to_read_is_nothing_seen() -> None:
    sampler = QueueSampler(lambda: None, interval_s=0.001)
    with sampler:
        pass
    sampler.sample()
    assert sampler.summary() == {"samples": 0, "running_max": None, "queued_max": None, "running_by_rank": {}}
