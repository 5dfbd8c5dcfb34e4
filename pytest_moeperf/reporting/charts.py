"""The charts of the HTML page, as plotly figures in plain data. Colours are names that the page's own script resolves,
so that light, dark and print each get theirs."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Run
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.arms import STORED, Arm, arms_of, mean_of, typical
from pytest_moeperf.reporting.figures import deciding_result
from pytest_moeperf.reporting.view import View

Figure = dict[str, Any]
LATENCIES = ("ttft", "tpot", "itl", "e2el")
_COLOURS = {CANDIDATE: "var(--candidate)", REFERENCE: "var(--reference)", STORED: "var(--reference)"}
_SYMBOLS = {CANDIDATE: "circle", REFERENCE: "square", STORED: "square-open"}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def arm_label(side: str, backend: str) -> str:
    """``flashinfer_cutlass (reference)``; safe in plotly's small HTML."""
    return html.escape(backend if side == CANDIDATE else f"{backend} (reference)")


def sweep(outcomes: Sequence[Outcome], view: View) -> Figure | None:
    """Throughput over concurrency, log-log, each arm with its launches; None with fewer than two concurrencies."""
    import plotly.graph_objects as go

    closed = [outcome for outcome in outcomes if outcome.decision.cell.workload.request_rate is None]
    if len({outcome.decision.cell.workload.concurrency for outcome in closed}) < 2:
        return None
    levels = sorted({outcome.decision.cell.workload.concurrency for outcome in closed})
    curves: dict[tuple[str, str], dict[int, Arm]] = {}
    for outcome in sorted(closed, key=lambda one: one.decision.cell.workload.concurrency):
        for arm in arms_of(outcome, view):
            side = CANDIDATE if arm.name == CANDIDATE else REFERENCE
            group = curves.setdefault((side, arm.backend), {})
            group[outcome.decision.cell.workload.concurrency] = arm
    figure = go.Figure()
    for (side, backend), by_concurrency in curves.items():
        _add_curve(figure, side, arm_label(side, backend), by_concurrency, levels)
    figure.update_xaxes(type="log", title="concurrency", tickvals=levels, ticktext=[str(level) for level in levels])
    drawn = [value for trace in figure.data for value in trace.y if value]
    ticks = _log_ticks(min(drawn), max(drawn)) if drawn else []
    # Plotly's own labels between the powers of ten are bare digits: a 2 for 200 and for 2000.
    figure.update_yaxes(type="log", title="output tok/s", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return _plain(figure, height=420)


def _add_curve(figure: Any, side: str, label: str, by_concurrency: Mapping[int, Arm], levels: Sequence[int]) -> None:
    import plotly.graph_objects as go

    colour = _COLOURS[side]
    arms = [by_concurrency.get(level) for level in levels]
    # A cell without this arm leaves a gap: a line across it would claim what nobody measured.
    means = [mean_of(arm.launches) if arm else None for arm in arms]
    figure.add_trace(
        go.Scatter(
            x=levels,
            y=[mean.value if mean else None for mean in means],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [mean.upper - mean.value if mean and mean.upper else 0 for mean in means],
                "arrayminus": [mean.value - mean.lower if mean and mean.lower else 0 for mean in means],
                "color": colour,
                "thickness": 1.2,
                "width": 5,
            },
            mode="lines+markers",
            name=label,
            line={"color": colour, "dash": "solid" if side == CANDIDATE else "dash", "width": 2},
            marker={"symbol": [_SYMBOLS[arm.name if arm else side] for arm in arms], "size": 8, "color": colour},
            hovertemplate="c=%{x}: %{y:.4~g} tok/s<extra></extra>",
        )
    )
    launches = [(level, value) for level, arm in by_concurrency.items() for value in arm.launches]
    figure.add_trace(
        go.Scatter(
            x=[level for level, _ in launches],
            y=[value for _, value in launches],
            mode="markers",
            showlegend=False,
            marker={"symbol": "line-ew-open", "size": 14, "color": colour, "opacity": 0.55},
            hovertemplate="one launch at c=%{x}: %{y:.4~g} tok/s<extra></extra>",
        )
    )


def changes(outcomes: Sequence[Outcome]) -> Figure | None:
    """The deciding bound of each cell: change with its interval, better to the right, over the margins."""
    import plotly.graph_objects as go

    judged = [
        (outcome, result)
        for outcome in outcomes
        if (result := deciding_result(outcome)) is not None and result.interval is not None
    ]
    if not judged:
        return None
    figure = go.Figure()
    names: list[str] = []
    ends: list[float] = [0.0]
    for outcome, result in judged:
        interval = result.interval
        if interval is None:
            continue
        metric = "" if result.bound.key == "throughput" else f" {result.bound.label}"
        name = html.escape(f"{outcome.decision.cell.workload.label}{metric}")
        names.append(name)
        estimate, lower, upper = (_percent(value) for value in (interval.estimate, interval.lower, interval.upper))
        ends += [lower, upper]
        colour = f"var(--{verdict_class(outcome)})"
        figure.add_trace(
            go.Scatter(
                x=[estimate],
                y=[name],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [upper - estimate],
                    "arrayminus": [estimate - lower],
                    "color": colour,
                    "thickness": 2,
                    "width": 6,
                },
                mode="markers+text",
                text=[outcome.verdict.value],
                textposition="top center",
                textfont={"size": 10, "color": "var(--soft)"},
                marker={"size": 9, "color": colour},
                showlegend=False,
                hovertemplate=f"{name}: {estimate:+z.1f} % [{lower:+z.1f}, {upper:+z.1f}]<extra></extra>",
            )
        )
    regression = max(result.bound.regression for _, result in judged) * 100
    win = max(result.bound.win for _, result in judged) * 100
    figure.add_vrect(x0=-regression, x1=win, fillcolor="var(--band)", line_width=0, layer="below")
    figure.add_vline(x=0, line_width=1, line_color="var(--soft)")
    # Room for the verdict's name over an outermost point.
    pad = max(0.18 * (max(ends) - min(ends)), 2.0)
    figure.update_xaxes(title="change, better to the right", ticksuffix=" %", zeroline=False)
    figure.update_xaxes(range=[min(*ends, -regression) - pad, max(*ends, win) + pad])
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], showgrid=False)
    # The uppermost verdict's name needs room too.
    figure.update_yaxes(range=[-0.6, len(names) - 0.4])
    return _plain(figure, height=110 + 56 * len(names))


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... from the last one not above ``low`` to the first one not below ``high``."""
    series = [digit * 10.0**power for power in range(-3, 10) for digit in (1, 2, 5)]
    first = max(position for position, tick in enumerate(series) if tick <= max(low, series[0]))
    last = min(position for position, tick in enumerate(series) if tick >= min(high, series[-1]))
    return series[first : last + 1]


def _percent(effect: float) -> float:
    """Of better; an end that isn't known is drawn far outside."""
    return math.expm1(max(min(effect, math.log(11)), -math.log(11))) * 100


def trace(outcome: Outcome, view: View) -> Figure | None:
    """Every run in order of time, launch by launch; void and warm-up runs are crosses."""
    import plotly.graph_objects as go

    arms = [arm for arm in arms_of(outcome, view) if arm.name != STORED]
    points = sorted(((point.started_at, arm, point) for arm in arms for point in arm.points), key=lambda item: item[0])
    if not points:
        return None
    figure = go.Figure()
    for arm in arms:
        own = [(place, point) for place, (_, owner, point) in enumerate(points, start=1) if owner is arm]
        good = [point.valid and not point.warmup for _, point in own]
        figure.add_trace(
            go.Scatter(
                x=[place for place, _ in own],
                y=[point.value for _, point in own],
                mode="markers",
                name=arm_label(arm.name, arm.backend),
                marker={
                    "symbol": [_SYMBOLS[arm.name] if fine else "x-thin-open" for fine in good],
                    "size": 9,
                    "color": _COLOURS[arm.name],
                },
                text=[html.escape(f"{point.launch}, {_kind(point.valid, point.warmup)}") for _, point in own],
                hovertemplate="%{y:.4~g} tok/s, %{text}<extra></extra>",
            )
        )
    for start, end, number in _launch_spans([point.launch for _, _, point in points]):
        if number % 2 == 0:
            figure.add_vrect(x0=start - 0.5, x1=end + 0.5, fillcolor="var(--band)", line_width=0, layer="below")
    stored = next((arm for arm in arms_of(outcome, view) if arm.name == STORED), None)
    mean = mean_of(stored.launches) if stored else None
    if mean is not None:
        figure.add_hline(y=mean.value, line_dash="dot", line_color="var(--reference)", line_width=1.5)
    step = max(1, len(points) // 10)
    figure.update_xaxes(title="run, in order of time; each band is one launch", dtick=step, zeroline=False)
    figure.update_xaxes(range=[0.4, len(points) + 0.6])
    # At least +-6 %: noise of half a percent should look like noise.
    values = sorted(point.value for _, _, point in points)
    middle = values[len(values) // 2]
    drawn = [*values, *([mean.value] if mean else []), middle * 0.94, middle * 1.06]
    figure.update_yaxes(title="output tok/s", range=[min(drawn) * 0.99, max(drawn) * 1.01])
    return _plain(figure, height=280)


def _kind(valid: bool, warmup: bool) -> str:
    return "warm-up" if warmup else ("valid" if valid else "void")


def _launch_spans(launches: Sequence[str]) -> Iterable[tuple[int, int, int]]:
    """First and last place (from 1) of each stretch of one launch, and the stretch's number."""
    start = 0
    number = 0
    for place in range(1, len(launches) + 1):
        if place == len(launches) or launches[place] != launches[start]:
            number += 1
            yield start + 1, place, number
            start = place


def latencies(outcome: Outcome) -> Figure | None:
    """Per-request latencies of each arm: the percentiles of its median run."""
    from plotly.subplots import make_subplots

    arms = [name for name in (CANDIDATE, REFERENCE) if _valid_runs(outcome, name)]
    if not arms:
        return None
    figure = make_subplots(
        rows=len(LATENCIES),
        cols=1,
        vertical_spacing=0.11,
        subplot_titles=[f"{name.upper()}, ms" for name in LATENCIES],
    )
    for row, metric in enumerate(LATENCIES, start=1):
        ends = [
            _add_latency(figure, row=row, metric=metric, arm=name, runs=_valid_runs(outcome, name)) for name in arms
        ]
        figure.update_xaxes(range=[0, max(ends) * 1.06 or 1], row=row, col=1)
    names = [arm_label(name, _valid_runs(outcome, name)[0].cell.backend) for name in arms]
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], showgrid=False)
    figure.update_yaxes(range=[-0.6, len(names) - 0.4])
    figure.update_annotations(x=0, xanchor="left", font_size=12)
    return _plain(figure, height=90 + 105 * len(LATENCIES))


def _valid_runs(outcome: Outcome, arm: str) -> list[Run]:
    return [run for run in outcome.runs if run.launch.arm == arm and run.valid and not run.warmup]


def _add_latency(figure: Any, *, row: int, metric: str, arm: str, runs: Sequence[Run]) -> float:
    """The largest value drawn."""
    import plotly.graph_objects as go

    name, colour = arm_label(arm, runs[0].cell.backend), _COLOURS[arm]
    found = typical([getattr(run.metrics, f"{metric}_ms") for run in runs])
    spans = ((("minimum", "maximum"), 1.5), (("p50", "p90"), 6))
    for (start, end), thickness in spans:
        if start in found and end in found:
            line = go.Scatter(
                x=[found[start], found[end]],
                y=[name, name],
                mode="lines",
                line={"color": colour, "width": thickness},
                showlegend=False,
                hoverinfo="skip",
            )
            figure.add_trace(line, row=row, col=1)
    marks = {"p50": "line-ns-open", "mean": "diamond-open", "p99": "triangle-left-open"}
    shown = [mark for mark in marks if mark in found]
    figure.add_trace(
        go.Scatter(
            x=[found[mark] for mark in shown],
            y=[name] * len(shown),
            mode="markers",
            marker={"symbol": [marks[mark] for mark in shown], "size": 11, "color": colour, "line": {"width": 2}},
            text=shown,
            showlegend=False,
            hovertemplate="%{text}: %{x:.4~g} ms<extra></extra>",
        ),
        row=row,
        col=1,
    )
    return max(found.values(), default=0.0)


def verdict_class(outcome: Outcome) -> str:
    """The page's colour name: ``pass``, ``fail`` or ``unsure``."""
    if outcome.verdict.passes or outcome.recorded:
        return "pass"
    return "unsure" if outcome.verdict.value == "INCONCLUSIVE" else "fail"


def _plain(figure: Any, *, height: int) -> Figure:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 16, "t": 30, "b": 52},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 12, "color": "var(--ink)"},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hoverlabel={"bgcolor": "var(--paper)", "font": {"color": "var(--ink)"}},
        dragmode=False,
    )
    figure.update_xaxes(gridcolor="var(--grid)", linecolor="var(--grid)", automargin=True, fixedrange=True)
    figure.update_yaxes(gridcolor="var(--grid)", linecolor="var(--grid)", automargin=True, fixedrange=True)
    plain: Figure = json.loads(figure.to_json(validate=False))
    return plain
