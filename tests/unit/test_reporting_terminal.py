"""The table, the heading and the progress line, as whole text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from reporting_samples import BACKEND, COMMAND, STARTED, equivalent, heading, regression, settings, sweep, sweep_view
from reporting_samples import cell as a_cell

from pytest_moeperf.model.run import Evidence
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.reporting.terminal import heading_lines, progress_line, table_lines
from pytest_moeperf.reporting.view import Heading, View, build_view


def view_of(*outcomes: Outcome, **more: object) -> View:
    return build_view(outcomes, heading=heading(), settings=settings(), started_at=STARTED, **more)  # type: ignore[arg-type]


def table_of(view: View, *, width: int = 80) -> str:
    """Without the heading, findings and notes."""
    text = "\n".join(table_lines(view, width=width, findings=False))
    return text.split("\n\n")[0].split("59 min\n")[1]


def test_the_table_at_80_columns() -> None:
    assert (
        "\n".join(table_lines(sweep_view(), findings=False))
        == """\
moeperf  flashinfer_cutedsl held against flashinfer_cutlass
         8x RTX PRO 6000 Blackwell, zai-org/GLM-5-NVFP4, sglang
         9 launches, 59 min
all cells: 512 tokens in, 128 out; figures in tok/s
cell   baseline measured change [95 % CI]       verdict        launches ceiling
c=1    10.4     10.1     -2.8 % [-4.0, -1.6]    EQUIVALENT     1        3.26 %
c=2    19.3     19.2     -0.3 % [-1.5, +0.9]    EQUIVALENT     1
c=10   -        64.3     -                      INCOMPARABLE   1
c=64   219      249      +13.9 % [+12.1, +15.8] UNVERIFIED_WIN 1 + 4x2
c=256  719      516      -28 % [-29, -27]       REGRESSION     1 + 4x2
c=1024 1603     797      -50 % [-51, -49]       REGRESSION     1 + 4x2

Baselines that no collected test asks for: flashinfer_cutedsl/c512-in512-out128."""
    )


def test_the_table_with_room() -> None:
    assert (
        table_of(sweep_view(), width=120)
        == """\
cell             baseline     measured     change [95 % CI]         verdict          launches   ceiling
c=1 512/128      10.4 tok/s   10.1 tok/s   -2.8 % [-4.0, -1.6]      EQUIVALENT       1          3.26 %
c=2 512/128      19.3         19.2         -0.3 % [-1.5, +0.9]      EQUIVALENT       1
c=10 512/128     -            64.3         -                        INCOMPARABLE     1
c=64 512/128     219          249          +13.9 % [+12.1, +15.8]   UNVERIFIED_WIN   1 + 4x2
c=256 512/128    719          516          -28 % [-29, -27]         REGRESSION       1 + 4x2
c=1024 512/128   1603         797          -50 % [-51, -49]         REGRESSION       1 + 4x2"""
    )


def test_the_narrowest_table_keeps_cell_figures_and_verdict() -> None:
    assert (
        table_of(view_of(regression()), width=60)
        == """\
all cells: 512 tokens in, 128 out; figures in tok/s
cell   baseline measured change [95 % CI] verdict
c=1024 1603     797      -50 % [-51, -49] REGRESSION"""
    )


def test_findings_come_gravest_first_and_only_of_tests_that_did_not_pass() -> None:
    lines = list(table_lines(sweep_view()))
    heads = [line.split()[0] for line in lines if re.match(r"[A-Z_]{6,}  ", line)]
    assert heads == ["INCOMPARABLE", "REGRESSION", "REGRESSION", "UNVERIFIED_WIN"]


def test_every_bound_has_a_row_on_request_and_a_unit_where_it_changes() -> None:
    assert (
        table_of(view_of(regression(256), all_bounds=True), width=120)
        == """\
cell            baseline    measured    change [95 % CI]   verdict      launches   ceiling
c=256 512/128   719 tok/s   516 tok/s   -28 % [-29, -27]   REGRESSION   1 + 4x2
  TPOT          332 ms      463 ms      +39 % [+34, +43]   REGRESSION"""
    )


def test_several_backends_are_grouped() -> None:
    other = equivalent(2)
    other = replace(other, decision=replace(other.decision, cell=a_cell(2, "triton")))
    assert (
        table_of(view_of(equivalent(1), other), width=100)
        == f"""\
cell          baseline     measured     change [95 % CI]      verdict      launches   ceiling
{BACKEND}
c=1 512/128   10.4 tok/s   10.1 tok/s   -2.8 % [-4.0, -1.6]   EQUIVALENT   1          3.26 %
triton
c=2 512/128   19.3 tok/s   19.2 tok/s   -0.3 % [-1.5, +0.9]   EQUIVALENT   1"""
    )


def test_tests_that_share_a_cell_are_told_apart() -> None:
    first = replace(equivalent(), node_id="tests/test_a.py::test_decode[triton-1]")
    second = replace(equivalent(), node_id="tests/test_a.py::TestTail::test_tail[triton-1]")
    lines = table_of(view_of(first, second, equivalent(2)), width=120).splitlines()
    assert [line.partition("   ")[0] for line in lines[1:]] == [
        "c=1 512/128 test_decode",
        "c=1 512/128 test_tail",
        "c=2 512/128",
    ]


def test_different_shapes_stay_in_the_rows() -> None:
    other = equivalent(2)
    workload = Workload(concurrency=2, input_len=1024, output_len=32)
    other = replace(other, decision=replace(other.decision, cell=Cell(backend=BACKEND, workload=workload)))
    lines = table_of(view_of(equivalent(1), other), width=80).splitlines()
    assert lines[0] == "all cells: figures in tok/s"
    assert [line[:11] for line in lines[2:]] == ["c=1 512/128", "c=2 1024/32"]


def test_colour_marks_verdicts_and_changes_no_text() -> None:
    plain, painted = list(table_lines(sweep_view())), list(table_lines(sweep_view(), color=True))
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in painted] == plain
    assert "\x1b[32mEQUIVALENT\x1b[0m     1" in painted[5]
    assert "\x1b[31mREGRESSION\x1b[0m     1 + 4x2" in painted[9]


def test_nothing_measured() -> None:
    assert table_of(view_of()) == "no cell was measured"


def test_notes_name_provisional_baselines_unknown_evidence_and_what_was_recorded() -> None:
    outcome = equivalent(2)
    outcome = replace(
        outcome,
        decision=replace(outcome.decision, provisional=True),
        evidence=Evidence(requested=BACKEND),
        recorded="baselines/c2.json",
    )
    text = "\n".join(table_lines(view_of(outcome, notes=["Screened only."])))
    assert (
        text.split("\n\n")[1]
        == """\
Provisional baseline (fewer than 4 launches in 2 sessions, so the variance
  between sessions is assumed): flashinfer_cutlass c=2 512/128.
Unknown which backend really ran (--perf-strict-evidence makes this INVALID):
  flashinfer_cutedsl c=2 512/128.
Recorded: baselines/c2.json.
Screened only."""
    )
    assert "recorded" in text.split("\n\n")[0].splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            Heading(
                engine="sglang",
                model="moe-64x8-bf16",
                hardware="1x H200",
                candidates=("triton",),
                reference="triton_kernel",
                plan="1 launch to screen, up to 8 pairs, at most 34 min",
            ),
            [
                "moeperf  triton held against triton_kernel | 1x H200, moe-64x8-bf16, sglang",
                "         1 launch to screen, up to 8 pairs, at most 34 min",
            ],
        ),
        (
            Heading(engine="simulated", candidates=("triton",), launches=1, elapsed_s=42.0),
            ["moeperf  triton held against its own baseline | simulated | 1 launch, 42 s"],
        ),
        (
            Heading(engine="attached", candidates=("a", "b"), reference="a"),
            ["moeperf  a, b held against a | attached"],
        ),
        (
            Heading(engine="simulated", model="none", hardware="simulated", candidates=("a",)),
            ["moeperf  a held against its own baseline | simulated"],
        ),
    ],
)
def test_the_heading(given: Heading, expected: list[str]) -> None:
    assert heading_lines(given) == expected


def test_the_progress_line() -> None:
    cell = Cell(backend="triton", workload=Workload(concurrency=64))
    assert progress_line(cell, launch=2, run=2, done=0.45, events_s=11900, left_s=660, width=100) == (
        "moeperf  triton c=64 512/128 | launch 2 run 2, 45 % | 11 min left | 11.9k events/s"
    )
    assert progress_line(cell, launch=1, run=0, done=0.0) == "moeperf  triton c=64 512/128 | launch 1 warm-up, 0 %"
    assert progress_line(cell, launch=1, run=1, done=1.0, left_s=660, width=60) == (
        "moeperf  triton c=64 512/128 | launch 1 run 1, 100 %"
    )
    assert progress_line(cell, launch=1, run=1, done=1.0, width=24) == "moeperf  triton c=64..."


def test_the_sample_sweep_covers_its_cells() -> None:
    assert [row.node_id for row in sweep_view().rows if not row.further] == [outcome.node_id for outcome in sweep()]
    assert COMMAND in "\n".join(table_lines(sweep_view()))
