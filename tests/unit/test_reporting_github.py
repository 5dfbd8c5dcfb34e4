"""GitHub's Markdown and workflow commands, as whole text, with names that try to be markup."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reporting_samples import COMMAND, STARTED, equivalent, heading, incomparable, settings, sweep_view, unverified_win

from pytest_moeperf.model.run import Evidence
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.github import (
    COMMENT_LIMIT,
    COMMENT_MARK,
    annotation_lines,
    pull_request_comment,
    step_summary,
    workflow_command,
)
from pytest_moeperf.reporting.markdown import code, details, escape, fenced
from pytest_moeperf.reporting.view import View, build_view

HOSTILE = "<script>alert(1)</script> @maintainers **bold** [x](http://evil) | #7 `tick`\n::error::x"


def view_of(*outcomes: Outcome) -> View:
    return build_view(
        outcomes,
        heading=heading(),
        settings=settings(),
        started_at=STARTED,
        pytest_command=COMMAND,
        notes=["One note."],
    )


def hostile() -> Outcome:
    outcome = incomparable()
    first = replace(outcome.decision.differences[0], here=HOSTILE)
    return replace(
        outcome,
        node_id=f"tests/test_a.py::test_b[{HOSTILE}]",
        decision=replace(outcome.decision, differences=(first,), reasons=(HOSTILE,)),
        evidence=Evidence(requested=HOSTILE),
    )


def test_the_whole_step_summary() -> None:
    assert (
        step_summary(view_of(equivalent(2), unverified_win()))
        == """\
## moeperf: ❌ 1 UNVERIFIED\\_WIN, 1 EQUIVALENT

flashinfer\\_cutedsl held against flashinfer\\_cutlass \\| 8x RTX PRO 6000 Blackwell, zai-org/GLM-5-NVFP4, sglang \\| \
9 launches, 59 min

|  | cell | baseline | measured | change | verdict | launches | ceiling |
| --- | --- | --- | --- | --- | --- | --- | --- |
| ✅ | c=2 512/128 | 19.3 tok/s | 19.2 tok/s | -0.3 % \\[-1.5, +0.9\\] | EQUIVALENT | 1 |  |
| ❌ | c=64 512/128 | 219 tok/s | 249 tok/s | +13.9 % \\[+12.1, +15.8\\] | **UNVERIFIED\\_WIN** | 1 + 4x2 |  |

### UNVERIFIED\\_WIN: throughput at c=64: 249 against 219 tok/s, +13.9 % \\[+12.1 %, +15.8 %\\], 4 pairs \
of fresh launches.

- `tests/perf/test_moe.py::test_decode[flashinfer_cutedsl-64]`
- Better than the baseline by more than the win margin (3 %), and nobody has shown why: it fails until it is verified.
- Ran: flashinfer\\_cutedsl (confirmed, server log line 32: "Using flashinfer\\_cutedsl MoE runner"). Same workload; \
conditions differ in --moe-runner-backend only.
- **Odd:** the neighbours c=2 and c=256 did not move the same way.
- **Next:** (4 pairs, about 52 min)

  ```sh
  pytest -m perf --backend=flashinfer_cutedsl --perf-verify-wins -k 'test_decode[flashinfer_cutedsl-64]'
  ```

- One note.
"""
    )


def test_the_whole_comment() -> None:
    assert (
        pull_request_comment(view_of(equivalent(2)))
        == """\
<!-- moeperf -->
### moeperf: ✅ 1 EQUIVALENT

flashinfer\\_cutedsl held against flashinfer\\_cutlass \\| 8x RTX PRO 6000 Blackwell, zai-org/GLM-5-NVFP4, sglang \\| \
9 launches, 59 min

|  | cell | baseline | measured | change | verdict | launches | ceiling |
| --- | --- | --- | --- | --- | --- | --- | --- |
| ✅ | c=2 512/128 | 19.3 tok/s | 19.2 tok/s | -0.3 % \\[-1.5, +0.9\\] | EQUIVALENT | 1 |  |

- One note.

<details>
<summary>Settings that are not defaults</summary>

| setting | value | from |
| --- | --- | --- |
| `engine` | sglang | pyproject.toml |
| `model` | zai-org/GLM-5-NVFP4 | pyproject.toml |
| `tensor_parallel` | 8 | pyproject.toml |
| `backends` | flashinfer\\_cutedsl | command line |
| `report_dir` | moeperf-report | MOEPERF\\_REPORT |

</details>
"""
    )


def test_a_finding_is_folded_in_the_comment() -> None:
    text = pull_request_comment(sweep_view())
    assert text.startswith(
        f"{COMMENT_MARK}\n### moeperf: ❌ 1 INCOMPARABLE, 2 REGRESSION, 1 UNVERIFIED\\_WIN, 2 EQUIVAL"
    )
    assert "<summary>REGRESSION  throughput at c=1024: 797 against 1603 tok/s, -50 % [-51 %, -49 %]" in text
    assert text.count("<details>") == text.count("</details>") == 6


def test_what_an_update_recorded_is_no_verdict() -> None:
    recorded = [replace(outcome, recorded="baselines/x.json") for outcome in (incomparable(), equivalent(2))]
    assert pull_request_comment(view_of(*recorded)).splitlines()[1] == "### moeperf: ✅ 2 recorded"


def test_nothing_measured_is_not_green() -> None:
    assert step_summary(view_of()).startswith("## moeperf: ❌ no cell was measured\n")


@pytest.mark.parametrize("render", [step_summary, pull_request_comment])
def test_hostile_names_stay_text(render: object) -> None:
    assert callable(render)
    text: str = render(view_of(hostile()))
    outside_code = "\n".join(line for line in text.splitlines() if "tests/test_a.py" not in line)
    assert "<script>" not in outside_code
    assert "&lt;script&gt;" in outside_code
    assert "@maintainers" not in outside_code
    assert "**bold**" not in outside_code
    assert "http://" not in outside_code
    assert "](" not in outside_code.replace("\\](", "")
    assert not any(line.startswith("::") for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b*c", "a\\_b\\*c"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("# head", "\\# head"),
        ("-2.8 %", "-2.8 %"),
        ("a|b", "a\\|b"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("see @team and #12", "see @&#8203;team and #&#8203;12"),
        ("https://x.org www.x.org", "https:&#8203;//x.org www&#8203;.x.org"),
        ("$x$", "\\$x\\$"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_code_and_fences_are_longer_than_what_they_hold() -> None:
    assert code("a") == "`a`"
    assert code("a``b") == "```a``b```"
    assert code("`a") == "`` `a ``"
    assert fenced("x ```` y") == "`````\nx ```` y\n`````"


def test_a_summary_line_holds_no_markup() -> None:
    assert details("<b> @x\n#1", ["in"]) == [
        "<details>",
        "<summary>&lt;b&gt; @&#8203;x #&#8203;1</summary>",
        "",
        "in",
        "",
        "</details>",
    ]


def test_an_annotation_is_one_escaped_line() -> None:
    outcome = unverified_win()
    lines = annotation_lines(view_of(outcome), locations={outcome.node_id: ("tests/perf/a,b.py", 12)})
    assert lines == [
        (
            "::error file=tests/perf/a%2Cb.py,line=12,"
            "title=UNVERIFIED_WIN tests/perf/test_moe.py%3A%3Atest_decode[flashinfer_cutedsl-64]"
            "::throughput at c=64: 249 against 219 tok/s, +13.9 %25 [+12.1 %25, +15.8 %25], 4 pairs of fresh launches."
            "%0ABetter than the baseline by more than the win margin (3 %25), and nobody has shown why: "
            "it fails until it is verified."
            '%0ARan: flashinfer_cutedsl (confirmed, server log line 32: "Using flashinfer_cutedsl MoE runner"). '
            "Same workload; conditions differ in --moe-runner-backend only."
        )
    ]


def test_a_message_cannot_start_another_command() -> None:
    lines = annotation_lines(view_of(hostile()), locations={})
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert lines[0].startswith("::error title=INCOMPARABLE tests/test_a.py%3A%3Atest_b[<script>")
    assert workflow_command("error", "a\r\n::b", {"title": "x:y,z%"}) == "::error title=x%3Ay%2Cz%25::a%0D%0A::b"


def test_only_as_many_annotations_as_github_shows() -> None:
    outcomes = [replace(unverified_win(), node_id=f"test_{number}") for number in range(12)]
    lines = annotation_lines(view_of(*outcomes), locations={})
    assert len(lines) == 10
    assert lines[-1] == "::error::3 more perf tests did not pass; see the step summary."


def test_a_comment_that_is_too_long_is_cut_at_a_line_and_closed() -> None:
    outcomes = [replace(unverified_win(), node_id=f"test_{number}[{'x' * 900}]") for number in range(60)]
    text = pull_request_comment(view_of(*outcomes))
    assert len(text.encode()) <= COMMENT_LIMIT
    assert text.count("<details>") == text.count("</details>")
    assert sum(line.strip().startswith("```") for line in text.splitlines()) % 2 == 0
    assert text.endswith("*Cut here: the rest is in the JSON and HTML reports.*\n")
