"""Values that the engine derived from the machine's memory are compared by what they lead to."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_moeperf.fingerprint import build_fingerprint, differences
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.workload import Workload

INFO: dict[str, Any] = {
    "version": "0.5.14",
    "mem_fraction_static": 0.734,
    "max_total_num_tokens": 20_000,
    "chunked_prefill_size": 8192,
    "cuda_graph_config": {"decode": {"max_bs": 64, "bs": list(range(1, 65))}},
    "internal_states": [{"effective_max_running_requests_per_dp": 256}],
}


def fingerprint(args: tuple[str, ...] | None = (), *, concurrency: int = 10, **changes: Any) -> Fingerprint:
    workload = Workload(concurrency=concurrency, input_len=512, output_len=128)
    return build_fingerprint(
        workload=workload.as_fields(),
        server_info=INFO | changes,
        env={},
        software={"engine": "sglang"},
        hardware={"gpu_name": "x"},
        environment={},
        args=args,
    )


def found(one: Fingerprint, two: Fingerprint) -> dict[str, bool]:
    return {difference.field: difference.blocking for difference in differences(one, two)}


@pytest.mark.parametrize("fraction", [0.749, 0.806])
def test_more_memory_is_comparable_where_the_cell_fits_either_way(fraction: float) -> None:
    grown = fingerprint(mem_fraction_static=fraction, max_total_num_tokens=24_000)
    assert found(fingerprint(), grown) == {"server.mem_fraction_static": False, "server.max_total_num_tokens": False}


def test_it_blocks_where_the_cell_fits_on_one_side_only() -> None:
    small = fingerprint(mem_fraction_static=0.5, max_total_num_tokens=6_000)
    assert found(fingerprint(), small) == {"server.mem_fraction_static": True, "server.max_total_num_tokens": True}


def test_where_it_fits_on_neither_side_the_requests_that_fit_must_be_as_many() -> None:
    one = fingerprint(concurrency=64)
    assert found(one, fingerprint(concurrency=64, max_total_num_tokens=20_100)) == {
        "server.max_total_num_tokens": False
    }
    assert found(one, fingerprint(concurrency=64, max_total_num_tokens=24_000)) == {"server.max_total_num_tokens": True}


@pytest.mark.parametrize("args", [("--mem-fraction-static=0.8",), ("--mem-fraction-static", "0.8")])
def test_what_somebody_set_blocks_though_it_leads_to_the_same(args: tuple[str, ...]) -> None:
    assert found(fingerprint(), fingerprint(args, mem_fraction_static=0.8)) == {"server.mem_fraction_static": True}
    assert found(fingerprint(args), fingerprint(args)) == {}


def test_a_baseline_that_does_not_say_what_was_set_is_compared_by_what_it_led_to() -> None:
    old = fingerprint(None)
    assert "given" not in old.server
    assert found(old, fingerprint(mem_fraction_static=0.806)) == {"server.mem_fraction_static": False}
    assert found(old, fingerprint(None, mem_fraction_static=0.8)) == {"server.mem_fraction_static": False}


def test_a_room_that_nobody_knows_is_not_shown_to_be_enough() -> None:
    info = {name: value for name, value in INFO.items() if name != "max_total_num_tokens"}
    sides = [
        build_fingerprint(
            workload=Workload(concurrency=1).as_fields(),
            server_info=info | {"mem_fraction_static": fraction},
            env={},
            software={"engine": "sglang"},
            hardware={},
            environment={},
            args=(),
        )
        for fraction in (0.7, 0.8)
    ]
    assert found(*sides) == {"server.mem_fraction_static": True}


def test_the_cap_on_running_requests_counts_up_to_the_cells_own() -> None:
    def capped(limit: int, concurrency: int) -> Fingerprint:
        states = [{"effective_max_running_requests_per_dp": limit}]
        return fingerprint(concurrency=concurrency, internal_states=states)

    assert found(capped(256, 10), capped(48, 10)) == {"server.effective_max_running_requests": False}
    assert found(capped(256, 30), capped(24, 30)) == {"server.effective_max_running_requests": True}


def test_prompt_batches_and_graphs_count_as_far_as_the_cell_needs_them() -> None:
    graphs = {"decode": {"max_bs": 256, "bs": list(range(1, 257))}}
    larger: dict[str, Any] = {"chunked_prefill_size": 16_384, "cuda_graph_config": graphs}
    assert not any(found(fingerprint(), fingerprint(**larger)).values())
    # 64 prompts are 32 768 tokens; 80 requests are more than the smaller machine has graphs for.
    assert found(fingerprint(concurrency=30), fingerprint(concurrency=30, **larger))["server.chunked_prefill_size"]
    assert found(fingerprint(concurrency=80), fingerprint(concurrency=80, **larger))[
        "server.cuda_graph_config.decode.max_bs"
    ]
    set_here = fingerprint(("--cuda-graph-max-bs-decode=256",), cuda_graph_config=graphs)
    assert found(fingerprint(), set_here)["server.cuda_graph_config.decode.max_bs"]
