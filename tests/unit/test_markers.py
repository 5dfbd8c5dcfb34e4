"""Markers: what makes a workload and bounds, and the whole text of every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.read import bounds_of, workload_of
from pytest_moeperf.markers.sound import check_bounds
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.workload import Workload


def item_with(pytester: pytest.Pytester, decorators: str, arguments: str = "") -> pytest.Item:
    return pytester.getitem(f"import pytest\n{decorators}\ndef test_func({arguments}): pass")


@pytest.fixture
def item(pytester: pytest.Pytester) -> Any:
    pytester.plugins = []
    return lambda decorators: item_with(pytester, decorators)


def test_the_workload_comes_from_the_marker_then_the_arguments(item: Any) -> None:
    node = item("@pytest.mark.perf(concurrency=8, input_len=512, output_len=128)")
    assert workload_of(node) == Workload(concurrency=8, input_len=512, output_len=128, num_prompts=32)
    assert workload_of(node, {"concurrency": 2, "num_prompts": 10}) == Workload(
        concurrency=2, input_len=512, output_len=128, num_prompts=10
    )


def test_a_marker_on_the_function_wins_over_one_further_out(pytester: pytest.Pytester) -> None:
    node = pytester.getitem(
        "import pytest\n"
        "pytestmark = pytest.mark.perf(concurrency=1, input_len=64)\n"
        "@pytest.mark.perf(concurrency=4)\n"
        "def test_func(): pass"
    )
    assert workload_of(node) == Workload(concurrency=4, input_len=64)


def test_without_a_concurrency_there_is_no_workload_yet(item: Any) -> None:
    assert workload_of(item("@pytest.mark.perf(input_len=64)")) is None


@pytest.mark.parametrize(
    ("decorator", "text"),
    [
        (
            "@pytest.mark.perf(8)",
            "marker 'perf': takes no positional arguments, got (8,)\n  allowed: perf(NAME=VALUE, ...)",
        ),
        (
            "@pytest.mark.perf(concurency=8)",
            "marker 'perf': unknown argument 'concurency'\n  allowed: concurrency, input_len, output_len, num_prompts,"
            " dataset, seed, request_rate, shared_prefix_len, queueing",
        ),
        (
            "@pytest.mark.perf(concurrency=0)",
            "marker 'perf': concurrency=0 is not allowed\n  allowed: a whole number of at least 1",
        ),
        (
            "@pytest.mark.perf(concurrency=True)",
            "marker 'perf': concurrency=True is not allowed\n  allowed: a whole number of at least 1",
        ),
        (
            "@pytest.mark.perf(concurrency=1, request_rate=-1)",
            "marker 'perf': request_rate=-1 is not a rate\n  allowed: a number above 0, or None (closed loop)",
        ),
        (
            "@pytest.mark.perf(concurrency=1, queueing=1)",
            "marker 'perf': queueing=1 is not allowed\n  allowed: True or False",
        ),
        (
            "@pytest.mark.perf(concurrency=1, dataset='sharegpt')",
            "marker 'perf': dataset='sharegpt' is not known\n  allowed: random-ids",
        ),
        *(
            (
                f"@pytest.mark.perf(concurrency=1, request_rate=float('{rate}'))",
                f"marker 'perf': request_rate={rate} is not a rate\n  allowed: a number above 0, or None (closed loop)",
            )
            for rate in ("inf", "nan")
        ),
        (
            "@pytest.mark.perf(concurrency=4, num_prompts=0)",
            "marker 'perf': num_prompts=0 is not allowed\n  allowed: a whole number of at least 1",
        ),
        (
            "@pytest.mark.perf(concurrency=16, num_prompts=8)",
            "marker 'perf': num_prompts=8 is below concurrency=16: so many requests would never be in flight at once\n"
            "  allowed: at least 16; without num_prompts it is 4 x concurrency",
        ),
        (
            "@pytest.mark.perf(concurrency=1, input_len=64, shared_prefix_len=64)",
            "marker 'perf': shared_prefix_len=64 leaves nothing of input_len=64 to a prompt of its own\n"
            "  allowed: at most 63, or a longer input_len",
        ),
        (
            "@pytest.mark.perf(concurrency=4, num_prompts=6, shared_prefix_len=64)",
            "marker 'perf': shared_prefix_len=64 with num_prompts=6 at concurrency=4: the first requests of a run find "
            "an empty cache, and there are no others\n  allowed: num_prompts of at least 8",
        ),
    ],
)
def test_a_bad_workload_is_refused(item: Any, decorator: str, text: str) -> None:
    node = item(decorator)
    with pytest.raises(UsageProblem) as caught:
        workload_of(node)
    assert str(caught.value) == f"{node.nodeid}: {text}"


def test_queueing_makes_a_cell_of_its_own_and_changes_nothing_where_it_is_not_asked_for(item: Any) -> None:
    queueing = workload_of(item("@pytest.mark.perf(concurrency=8, queueing=True)"))
    assert queueing is not None
    assert (queueing.key, queueing.label) == ("c8-in512-out128-queueing", "c=8 512/128 queueing")
    assert queueing.as_fields()["queueing"] is True
    assert "queueing" not in Workload(concurrency=8).as_fields()


def test_no_number_of_prompts_is_the_default(item: Any) -> None:
    assert workload_of(item("@pytest.mark.perf(concurrency=3, num_prompts=None)")) == Workload(concurrency=3)


def test_an_open_loop_may_have_fewer_prompts_than_its_cap(item: Any) -> None:
    workload = workload_of(item("@pytest.mark.perf(concurrency=64, num_prompts=8, request_rate=2)"))
    assert workload == Workload(concurrency=64, num_prompts=8, request_rate=2)


@pytest.mark.parametrize(
    ("decorators", "text"),
    [
        (
            "@pytest.mark.perf(concurrency=6)\n@pytest.mark.ttft(percentile='p99')",
            "marker 'ttft': percentile='p99' needs 100 values, and a run with num_prompts=24 has 24\n"
            "  allowed: num_prompts=102 in the perf marker, or percentile='p50' or 'mean'",
        ),
        (
            "@pytest.mark.perf(concurrency=2, output_len=3)\n@pytest.mark.itl(percentile='p99')",
            "marker 'itl': percentile='p99' needs 100 values, and a run with num_prompts=8 has 16\n"
            "  allowed: num_prompts=50 in the perf marker, or percentile='p50' or 'mean'",
        ),
        (
            "@pytest.mark.perf(concurrency=1, num_prompts=1)\n@pytest.mark.ttft(percentile='p50')",
            "marker 'ttft': percentile='p50' needs 2 values, and a run with num_prompts=1 has 1\n"
            "  allowed: num_prompts=2 in the perf marker, or percentile='mean'",
        ),
        *(
            (
                f"@pytest.mark.perf(concurrency=1, output_len=1)\n@pytest.mark.{marker}",
                f"marker '{marker.partition('(')[0]}': output_len=1 has no time between tokens, so no {what}\n"
                "  allowed: output_len of at least 2, or bounds on what one token has: "
                "@pytest.mark.throughput(), @pytest.mark.ttft()",
            )
            for marker, what in (("tpot()", "TPOT"), ("itl()", "ITL"), ("goodput(tpot=20)", "TPOT"))
        ),
        (
            "@pytest.mark.perf(concurrency=1, output_len=1)",
            "marker 'perf': output_len=1 has no time between tokens, so no TPOT (a test without bounds is judged by "
            "throughput and TPOT)\n  allowed: output_len of at least 2, or bounds on what one token has: "
            "@pytest.mark.throughput(), @pytest.mark.ttft()",
        ),
    ],
)
def test_a_bound_on_what_the_workload_does_not_have(item: Any, decorators: str, text: str) -> None:
    node = item(decorators)
    workload = workload_of(node)
    assert workload is not None
    with pytest.raises(UsageProblem) as caught:
        check_bounds(node, workload, bounds_of(node, GateSettings()))
    assert str(caught.value) == f"{node.nodeid}: {text}"


@pytest.mark.parametrize(
    "decorators",
    [
        "@pytest.mark.perf(concurrency=25)\n@pytest.mark.ttft(percentile='p99')",
        "@pytest.mark.perf(concurrency=1, output_len=128)\n@pytest.mark.itl(percentile='p99')",
        "@pytest.mark.perf(concurrency=1, output_len=1)\n@pytest.mark.throughput()\n@pytest.mark.ttft()",
        "@pytest.mark.perf(concurrency=1, output_len=2)",
    ],
)
def test_a_bound_that_the_workload_carries(item: Any, decorators: str) -> None:
    node = item(decorators)
    workload = workload_of(node)
    assert workload is not None
    check_bounds(node, workload, bounds_of(node, GateSettings()))


def test_without_bounds_throughput_and_tpot_are_gated(item: Any) -> None:
    gate = GateSettings(regression=0.07, win=0.04)
    assert bounds_of(item("@pytest.mark.perf"), gate) == (
        Bound(metric="throughput", regression=0.07, win=0.04),
        Bound(metric="tpot", regression=0.07, win=0.04),
    )


def test_bounds_carry_their_own_margins_and_limits(item: Any) -> None:
    node = item(
        "@pytest.mark.throughput(regression='3%', at_least=100)\n"
        "@pytest.mark.ttft(percentile='p99', at_most_ms=250)\n"
        "@pytest.mark.ttft(win='10%')\n"
        "@pytest.mark.goodput(ttft=200, tpot=20)"
    )
    assert bounds_of(node, GateSettings()) == (
        Bound(metric="throughput", regression=0.03, at_least=100.0),
        Bound(metric="ttft", win=0.1),
        Bound(metric="ttft", percentile="p99", at_most_ms=250.0),
        Bound(metric="goodput", slo_ms=(("ttft", 200.0), ("tpot", 20.0))),
    )


@pytest.mark.parametrize(
    ("decorator", "text"),
    [
        (
            "throughput('5%')",
            "marker 'throughput': takes no positional arguments, got ('5%',)\n  allowed: regression, win, at_least",
        ),
        (
            "tpot(regresion='5%')",
            "marker 'tpot': unknown argument 'regresion'\n  allowed: regression, win, at_most_ms, percentile",
        ),
        (
            "throughput(at_most_ms=5)",
            "marker 'throughput': unknown argument 'at_most_ms'\n  allowed: regression, win, at_least",
        ),
        ("tpot(regression=5)", "marker 'tpot': regression: 5 is not a percentage such as '5%'"),
        (
            "tpot(win='0%')",
            "marker 'tpot': win: '0%': a margin of nothing can never be shown; give at least the noise of one launch",
        ),
        ("tpot(percentile='p95')", "marker 'tpot': percentile: 'p95' is not one of mean, p50, p99"),
        ("tpot(at_most_ms=-1)", "marker 'tpot': at_most_ms: -1 is not a number above 0"),
        (
            "tpot(regression='1%')",
            "marker 'tpot': regression=1.000% is not above d0 = 1.500% ([tool.moeperf] proven)\n"
            "  allowed: a regression margin above d0; a change between the two may be called either way",
        ),
        (
            "goodput()",
            "marker 'goodput': no limit says what a good request is\n  allowed: at least one of ttft, tpot, e2el in ms",
        ),
    ],
)
def test_a_bad_bound_is_refused(item: Any, decorator: str, text: str) -> None:
    node = item(f"@pytest.mark.{decorator}")
    with pytest.raises(UsageProblem) as caught:
        bounds_of(node, GateSettings())
    assert str(caught.value) == f"{node.nodeid}: {text}"
