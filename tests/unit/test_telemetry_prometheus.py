"""The server's counters, from real /metrics texts and from the parser's point of view."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.engines.simulated.counters import Counters
from pytest_moeperf.telemetry import parse_prometheus, server_counters

LOGS = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu"

metric_names = st.from_regex(r"[a-z_:][a-z0-9_:]{0,20}", fullmatch=True)
label_values = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(st.lists(st.tuples(metric_names, st.dictionaries(st.sampled_from("abc"), label_values), numbers), max_size=20))
def test_every_sample_is_summed_over_its_labels(samples: list[tuple[str, dict[str, str], float]]) -> None:
    lines, wanted = ["# HELP x y", "# TYPE x counter"], dict[str, float]()
    for name, labels, value in samples:
        text = ",".join(f'{label}="{escape(content)}"' for label, content in labels.items())
        lines.append(f"{name}{{{text}}} {value!r}" if text else f"{name} {value!r} 1700000000000")
        wanted[name] = wanted.get(name, 0.0) + value
    assert parse_prometheus("\n".join(lines)) == wanted


@given(st.text(max_size=400))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert all(not math.isnan(value) for value in parse_prometheus(text).values())


def test_buckets_quantiles_and_nan_are_left_out() -> None:
    text = 'h_bucket{le="1.0"} 3\nh_bucket{a="x",le="+Inf"} 4\nh_sum 2.5\ns{quantile="0.5"} 1\nn NaN\ni +Inf\n'
    assert parse_prometheus(text) == {"h_sum": 2.5, "i": math.inf}


def test_real_counters_of_sglang() -> None:
    counters = server_counters((LOGS / "metrics_after_bench.txt").read_text("utf-8"))
    assert counters["requests"] == 26
    assert counters["generated_tokens"] == 609
    assert counters["prompt_tokens"] == 1239
    # Never counted, so not listed: 0 and not unknown.
    assert (counters["cached_tokens"], counters["aborted"], counters["retracted"]) == (0, 0, 0)


def test_counters_of_the_simulated_engine() -> None:
    own = Counters(prompt_tokens=64, generation_tokens=32, cached_tokens=5, requests=2, aborted=1, retracted=3)
    text = own.prometheus(model_name='a "model"', running=0, queued=0)
    counters = server_counters(text)
    assert counters == {
        "requests": 2,
        "generated_tokens": 32,
        "prompt_tokens": 64,
        "cached_tokens": 5,
        "aborted": 1,
        "retracted": 3,
        "counting": "sglang",
    }


@pytest.mark.parametrize("metrics", [None, "", "python_info 1\n", "<html>"])
def test_what_the_server_does_not_say_is_unknown(metrics: str | None) -> None:
    assert set(server_counters(metrics).values()) == {None}
