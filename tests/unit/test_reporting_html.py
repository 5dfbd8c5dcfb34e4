"""The HTML page: self-contained, escaped, with charts of the right figures."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reporting_samples import (
    CUTLASS,
    STARTED,
    contradicted,
    equivalent,
    heading,
    incomparable,
    settings,
    sweep,
    sweep_view,
    unverified_win,
)

from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.run import Distribution
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting import charts
from pytest_moeperf.reporting.arms import arms_of, mean_of, typical
from pytest_moeperf.reporting.files import ReportError
from pytest_moeperf.reporting.html import render_html, write_html
from pytest_moeperf.reporting.view import View, build_view

HOSTILE = "</script><img src=x onerror=alert(1)><b>\"'"


class Page(HTMLParser):
    """Tags with attributes, the text outside scripts and styles, and the charts' JSON."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.figures: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._inside = "json" if dict(attrs).get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "json":
            self.figures.append(json.loads(data))
        elif self._inside == "script":
            self.scripts.append(data)
        elif not self._inside:
            self.words += f"{data} "


def view_of(*outcomes: Outcome, **more: Any) -> View:
    return build_view(outcomes, heading=heading(), settings=settings(), started_at=STARTED, **more)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html(sweep_view()))


def test_the_page_is_self_contained(page: Page) -> None:
    allowed = {"http-equiv", "name", "charset"}
    assert not [tag for tag, attrs in page.tags if "src" in attrs or tag in {"link", "iframe", "object", "img"}]
    assert all(str(attrs["href"]).startswith("#") for _, attrs in page.tags if "href" in attrs)
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert all(allowed & set(attrs) for tag, attrs in page.tags if tag == "meta")


def test_plotly_is_in_it_once(page: Page) -> None:
    assert len([script for script in page.scripts if len(script) > 1_000_000]) == 1
    assert len(page.scripts) == 2


def test_every_cell_has_its_row_section_and_charts(page: Page) -> None:
    anchors = [attrs["id"] for tag, attrs in page.tags if tag == "details" and "id" in attrs]
    assert anchors == [f"cell-{number}" for number in range(1, 7)]
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == [f"#{anchor}" for anchor in anchors]
    # A sweep and its changes, then a trace and latencies a cell.
    assert len(page.figures) == 2 + 2 * 6
    opened = [attrs["id"] for tag, attrs in page.tags if tag == "details" and "open" in attrs]
    assert opened == ["cell-3", "cell-4", "cell-5", "cell-6"]


def test_the_page_says_what_the_terminal_says(page: Page) -> None:
    words = " ".join(page.words.split())
    for text in (
        "flashinfer_cutedsl held against flashinfer_cutlass",
        "throughput at c=1024: 797 against 1603 tok/s, -50 % [-51 %, -49 %], 4 pairs of fresh launches.",
        "the neighbours c=2 and c=256 did not move the same way.",
        "pytest -m perf --backend=flashinfer_cutedsl --perf-verify-wins -k 'test_decode[flashinfer_cutedsl-64]'",
        "Baselines that no collected test asks for: flashinfer_cutedsl/c512-in512-out128.",
        "backends flashinfer_cutedsl command line",
        "environment.kernel must be equal 6.8.0 6.14.11",
    ):
        assert text in words


def test_verdicts_are_text_and_not_only_colour(page: Page) -> None:
    kinds = [str(attrs["class"]) for tag, attrs in page.tags if tag == "span" and "verdict" in str(attrs.get("class"))]
    assert set(kinds) == {"verdict pass", "verdict fail"}
    assert "2 REGRESSION" in page.words


def test_no_secret_is_in_the_page() -> None:
    text = render_html(view_of(*sweep(), contradicted()))
    assert "sk-1234" not in text
    assert "hf_abc" not in text


def test_hostile_text_stays_text() -> None:
    outcome = unverified_win()
    evidence = replace(outcome.evidence, items=(replace(outcome.evidence.items[0], text=HOSTILE),))
    runs = tuple(replace(run, launch=replace(run.launch, id=HOSTILE)) for run in outcome.runs)
    hostile = replace(
        outcome,
        node_id=f"test_a[{HOSTILE}]",
        evidence=evidence,
        runs=runs,
        decision=replace(outcome.decision, reasons=(HOSTILE,), odd=(HOSTILE,)),
    )
    before = Page(render_html(view_of(outcome)))
    after = Page(render_html(view_of(hostile, notes=[HOSTILE], environment={"gpu": HOSTILE})))
    assert not [tag for tag, _ in after.tags if tag in {"img", "b"}]
    assert len(after.scripts) == len(before.scripts)
    assert HOSTILE in after.words


def test_a_simulated_engine_is_named() -> None:
    view = build_view(
        [equivalent()], heading=replace(heading(), engine="simulated"), settings=settings(), started_at=STARTED
    )
    words = " ".join(Page(render_html(view)).words.split())
    assert "Simulated engine: these figures are no measurement of a GPU." in words


def test_nothing_measured_makes_a_page_too() -> None:
    page = Page(render_html(view_of()))
    assert "no cell was measured" in page.words
    assert page.figures == []


def test_the_sweep_leaves_a_gap_where_the_baseline_is_not_comparable() -> None:
    figure = charts.sweep(sweep(), sweep_view())
    assert figure is not None
    candidate, _, reference, _ = figure["data"]
    assert (candidate["name"], reference["name"]) == ("flashinfer_cutedsl", "flashinfer_cutlass (reference)")
    assert candidate["x"] == reference["x"] == [1, 2, 10, 64, 256, 1024]
    assert reference["y"][2] is None
    assert reference["y"][:2] == pytest.approx([CUTLASS[1], CUTLASS[2]])
    assert reference["y"][5] == pytest.approx(CUTLASS[1024], rel=0.03)
    assert reference["marker"]["symbol"][:2] == ["square-open", "square-open"]
    assert reference["error_y"]["array"][5] > 0
    assert figure["layout"]["xaxis"]["type"] == "log"
    axis = figure["layout"]["yaxis"]
    # From below the lowest (c=1) to above the highest, each with its whole number.
    assert float(axis["ticktext"][0]) <= CUTLASS[1]
    assert float(axis["ticktext"][-1]) >= CUTLASS[1024]
    assert [float(text) for text in axis["ticktext"]] == axis["tickvals"] == sorted(axis["tickvals"])


def test_one_concurrency_is_no_sweep() -> None:
    assert charts.sweep([equivalent()], sweep_view()) is None


def test_changes_are_drawn_over_the_margins() -> None:
    figure = charts.changes(sweep())
    assert figure is not None
    assert [trace["text"][0] for trace in figure["data"]] == [
        "EQUIVALENT",
        "EQUIVALENT",
        "UNVERIFIED_WIN",
        "REGRESSION",
        "REGRESSION",
    ]
    win = figure["data"][2]
    assert win["x"] == [pytest.approx(13.94)]
    assert win["error_x"]["array"] == [pytest.approx(15.8 - 13.94)]
    band = figure["layout"]["shapes"][0]
    assert (band["x0"], band["x1"]) == (-5.0, 3.0)
    assert charts.changes([incomparable()]) is None


def test_the_trace_shows_runs_in_order_and_marks_those_that_do_not_count() -> None:
    outcome = unverified_win()
    first = replace(outcome.runs[0], warmup=True)
    figure = charts.trace(replace(outcome, runs=(first, *outcome.runs[1:])), view_of(outcome))
    assert figure is not None
    candidate, reference = figure["data"]
    assert candidate["x"][:4] == [1, 2, 3, 7]
    assert reference["x"][:3] == [4, 5, 6]
    assert candidate["marker"]["symbol"][:2] == ["x-thin-open", "circle"]
    assert candidate["text"][0] == "candidate-1, warm-up"
    assert [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"][:2]] == [(3.5, 6.5), (9.5, 12.5)]


def test_latencies_are_the_percentiles_of_the_median_run() -> None:
    drawn = charts.latencies(unverified_win())
    assert drawn is not None
    assert {trace["type"] for trace in drawn["data"]} == {"scatter"}
    marks = next(trace for trace in drawn["data"] if trace["mode"] == "markers")
    assert marks["text"] == ["p50", "mean", "p99"]


def stored_baseline(outcome: Outcome) -> Baseline:
    stored = tuple(
        StoredRun(id=str(n), session="s", launch=f"l{n % 4}", started_at="", values={"throughput": 10.0 + n})
        for n in range(8)
    )
    return Baseline(
        engine="sglang",
        model="m",
        cell=outcome.decision.cell,
        fingerprint=outcome.runs[0].fingerprint,
        evidence=outcome.evidence,
        runs=stored,
    )


def test_stored_runs_are_the_reference_where_none_was_launched() -> None:
    outcome = equivalent(1)
    view = view_of(outcome, baselines={outcome.decision.cell.key: stored_baseline(outcome)})
    candidate, reference = arms_of(outcome, view)
    assert (candidate.name, len(candidate.launches)) == ("candidate", 1)
    assert (reference.name, len(reference.launches), len(reference.points)) == ("stored", 4, 8)


def test_runs_that_are_not_comparable_are_not_drawn_side_by_side() -> None:
    outcome = incomparable()
    view = view_of(outcome, baselines={outcome.decision.cell.key: stored_baseline(outcome)})
    assert [arm.name for arm in arms_of(outcome, view)] == ["candidate"]


def test_the_interval_of_a_mean_needs_three_launches() -> None:
    assert mean_of([]) is None
    two = mean_of([100.0, 400.0])
    assert two is not None
    assert two.value == pytest.approx(200.0)
    assert two.lower is None
    three = mean_of([100.0, 110.0, 121.0])
    assert three is not None
    assert three.lower is not None
    # sd of the logs is ln 1.1, t(2, 97.5 %) = 4.3027.
    assert three.lower == pytest.approx(110.0 / 1.1 ** (4.3027 / 3**0.5), rel=1e-4)


def test_the_typical_run_skips_what_a_sample_cannot_carry() -> None:
    runs = [Distribution(n=4, mean=1.0, p50=1.0), Distribution(n=4, mean=3.0, p50=2.0), Distribution(n=4, mean=4.0)]
    assert typical(runs) == {"p50": 1.5, "mean": 3.0}


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
def test_a_missing_package_is_a_clear_error(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ReportError) as caught:
        write_html(sweep_view(), tmp_path)
    lines = str(caught.value).splitlines()
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/moeperf\.html: the HTML page needs {missing}(\.\w+)?, which is not installed",
        lines[0],
    )
    assert lines[-1] == f"  next: pip install 'pytest-moeperf[report]', then moeperf report {tmp_path} draws it"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium on PATH")
def test_a_real_browser_draws_every_visible_chart_without_an_error(tmp_path: Path) -> None:
    path = write_html(sweep_view(), tmp_path)
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=5000 --dump-dom"
    )
    command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    # The sweep, the changes, and both charts of the four cells that stand open.
    assert done.stdout.count('data-drawn="yes"') == 2 + 2 * 4
    assert done.stdout.count("main-svg") >= 2 + 2 * 4
    assert "CONSOLE" not in done.stderr


def test_a_line_of_the_log_that_says_two_things_stands_there_once() -> None:
    outcome = contradicted()
    item = replace(outcome.evidence.items[0], source="server log line 26", text="Capturing batches")
    once, twice = (
        Page(render_html(view_of(replace(outcome, evidence=replace(outcome.evidence, items=items))))).words
        for items in ((item,), (item, replace(item, runner="triton")))
    )
    assert twice.count("server log line 26") == once.count("server log line 26") > 0
