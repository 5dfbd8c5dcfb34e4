"""Would the gate catch it, and at what cost? The very same campaign and gate, over servers that exist only as noise.

A :class:`Noise` is stated, or taken from a cell's stored runs; a change is injected into the candidate; many
campaigns are run.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from pytest_moeperf.bench.warmup import WARM_UP_RUNS
from pytest_moeperf.campaign import Campaign
from pytest_moeperf.gate.verify import SANITY_CHECK
from pytest_moeperf.model.baseline import Baseline, BaselineMatch, StoredRun
from pytest_moeperf.model.bench import CellPlan, Launched
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, Check, Distribution, Evidence, Fingerprint, Launch, Metrics, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.stats.components import components
from pytest_moeperf.stats.effects import launch_means, mean, usable

LEVEL = math.log(1000.0)
"""Effect of the rehearsed server; only differences matter."""
SOUND = (Check(name=SANITY_CHECK, status="pass"),)


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """Standard deviations of ln(metric), each part independent; a non-empty pool of residuals is drawn from
    instead."""

    session_sd: float
    launch_sd: float
    run_sd: float = 0.001
    drift_sd: float = 0.0
    """Of a random walk's step from run to run, within a session."""
    launch_pool: tuple[float, ...] = ()
    run_pool: tuple[float, ...] = ()

    def launch(self, source: random.Random) -> float:
        return source.choice(self.launch_pool) if self.launch_pool else source.gauss(0.0, self.launch_sd)

    def run(self, source: random.Random) -> float:
        return source.choice(self.run_pool) if self.run_pool else source.gauss(0.0, self.run_sd)


def noise_of(baseline: Baseline, bound: Bound, *, settings: GateSettings) -> Noise:
    """The noise that a cell's stored runs show: residuals of launches and runs as they are, sessions by their sd.

    Parts that the store can't show are the assumed ones of ``settings``.

    :raises ValueError: without a usable stored value of the bound.
    """
    values = [(run.session, run.launch, run.values.get(bound.key)) for run in baseline.runs]
    effects = [(session, launch, bound.effect(value)) for session, launch, value in values if usable(value) and value]
    launches = launch_means(effects)
    parts = components(launches)
    sessions: dict[str, list[float]] = {}
    for item in launches:
        sessions.setdefault(item.session, []).append(item.mean)
    launch_pool = tuple(
        (value - mean(group)) * math.sqrt(len(group) / (len(group) - 1))
        for group in sessions.values()
        if len(group) > 1
        for value in group
    )
    centres = {(item.session, item.launch): item for item in launches}
    run_pool = tuple(
        (effect - centres[session, launch].mean) * math.sqrt(count / (count - 1))
        for session, launch, effect in effects
        if (count := centres[session, launch].runs) > 1
    )
    known_sessions = parts.session_df >= 1 and not baseline.provisional
    return Noise(
        session_sd=math.sqrt(parts.session_var) if known_sessions else settings.assumed_session_sd,
        launch_sd=math.sqrt(parts.launch_var) if parts.launch_df else settings.assumed_launch_sd,
        run_sd=math.sqrt(parts.run_var),
        launch_pool=_without_run_noise(launch_pool, parts.launch_var, parts.launch_ms),
        run_pool=run_pool if parts.run_ms else (),
    )


def _without_run_noise(pool: tuple[float, ...], launch_var: float, launch_ms: float) -> tuple[float, ...]:
    """Launch means carry the noise of their runs, which is drawn anew: shrink the residuals to the launches'
    own part."""
    if len(pool) < 4 or launch_ms == 0 or launch_var == 0:
        return ()
    shrink = math.sqrt(launch_var / launch_ms)
    return tuple(value * shrink for value in pool)


@dataclass(slots=True)
class RehearsalBench:
    """A bench of servers made of noise. Keeps its own clock, so that minutes come out without waiting."""

    noise: Noise
    bounds: tuple[Bound, ...]
    source: random.Random
    change: float = 0.0
    """True effect of the candidate (log ratio, > 0 is better)."""
    stored: Baseline | None = None
    can_launch_reference: bool = True
    can_relaunch: bool = True
    launch_s: float = 60.0
    run_s: float = 20.0
    now_s: float = 0.0
    launches: int = 0
    _session: float = field(init=False, default=0.0)
    _launch: float = field(init=False, default=0.0)
    _drift: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._session = self.source.gauss(0.0, self.noise.session_sd)

    def clock(self) -> float:
        return self.now_s

    def launch(self, arm: str, *, fresh: bool) -> AbstractContextManager[Launched]:
        del fresh
        if self.can_relaunch or self.launches == 0:
            self.launches += 1
            self.now_s += self.launch_s
            self._launch = self.noise.launch(self.source)
        return self._up(Launch(id=f"L{self.launches}", session="now", arm=arm))

    @contextmanager
    def _up(self, launch: Launch) -> Iterator[Launched]:
        level = LEVEL + self._session + self._launch
        yield _Server(self, launch, level + self.change if launch.arm == CANDIDATE else level)

    def value(self, level: float) -> float:
        """One run's effect; time moves on."""
        self.now_s += self.run_s
        if self.noise.drift_sd:
            self._drift += self.source.gauss(0.0, self.noise.drift_sd)
        return level + self._drift + self.noise.run(self.source)

    def baseline_for(self, run: Run) -> BaselineMatch:
        del run
        return BaselineMatch(baseline=self.stored)

    def running(self, arm: str) -> str:
        del arm
        return ""

    def expected_launch_s(self, arm: str) -> float:
        del arm
        return self.launch_s

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        del cell
        return self.run_s * (runs + WARM_UP_RUNS)


@dataclass(slots=True)
class _Server:
    bench: RehearsalBench
    launch: Launch
    level: float

    def measure(self, cell: Cell, *, runs: int) -> Sequence[Run]:
        self.bench.now_s += self.bench.run_s * WARM_UP_RUNS  # which nobody looks at
        return [
            Run(
                id=f"{self.launch.id}/{index}",
                cell=cell,
                launch=self.launch,
                index=index,
                started_at="",
                metrics=metrics_of(self.bench.value(self.level), self.bench.bounds),
                client=_CLIENT,
                checks=SOUND,
            )
            for index in range(runs)
        ]


_CLIENT = ClientReport(clock="none: rehearsed")
_NOTHING = Distribution(n=0)


def metrics_of(effect: float, bounds: Sequence[Bound]) -> Metrics:
    """Metrics of a run all of whose bounds have this effect."""
    rate, latency = math.exp(effect), 1e6 * math.exp(-effect)
    measured = {bound.metric for bound in bounds}
    spread = Distribution(n=1000, mean=latency, p50=latency, p99=latency) if measured - {"throughput"} else _NOTHING
    return Metrics(
        completed=64,
        failed=0,
        output_tokens=8192,
        duration_s=8.0,
        out_tps=rate,
        out_tps_steady=rate,
        steady_window_s=None,
        steady_share=None,
        request_rate=None,
        effective_concurrency=None,
        ttft_ms=spread,
        tpot_ms=spread,
        ntpot_ms=spread,
        itl_ms=spread,
        icl_ms=spread,
        e2el_ms=spread,
        prompt_tokens=32768,
        cached_tokens=0,
        goodput_rps=rate,
    )


def stored_baseline(
    noise: Noise,
    *,
    cell: Cell,
    bounds: Sequence[Bound],
    source: random.Random,
    sessions: int,
    launches: int,
    runs: int,
) -> Baseline:
    """A baseline as it would have been recorded in this noise: ``sessions`` x ``launches`` x ``runs``."""
    kept = []
    for session in range(sessions):
        level = LEVEL + source.gauss(0.0, noise.session_sd)
        drift = 0.0
        for launch in range(launches):
            at = level + noise.launch(source)
            for run in range(runs):
                drift += source.gauss(0.0, noise.drift_sd) if noise.drift_sd else 0.0
                effect = at + drift + noise.run(source)
                values = {
                    bound.key: math.exp(effect) if bound.higher_is_better else 1e6 * math.exp(-effect)
                    for bound in bounds
                }
                name = f"s{session}l{launch}"
                kept.append(
                    StoredRun(id=f"{name}r{run}", session=f"s{session}", launch=name, started_at="", values=values)
                )
    return Baseline(
        engine="rehearsed", model="", cell=cell, fingerprint=Fingerprint(), evidence=Evidence(), runs=tuple(kept)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsed:
    """What many campaigns with one injected change ended as."""

    change: float
    """Relative change of a rate, -0.05: 5 % slower."""
    trials: int
    verdicts: dict[str, float]
    """Share of each verdict that occurred."""
    failed: float
    """Share of campaigns that fail the test, whatever the reason."""
    launches: float
    """Mean number of launches."""
    minutes: float

    def share(self, *verdicts: Verdict) -> float:
        return sum(self.verdicts.get(verdict.value, 0.0) for verdict in verdicts)

    def error(self, share: float) -> float:
        """Monte-Carlo standard error of a share."""
        return math.sqrt(max(share * (1 - share), 0.25 / self.trials) / self.trials)


def rehearse(
    plan: CellPlan,
    *,
    noise: Noise,
    settings: GateSettings,
    change: float,
    sessions: int,
    launches: int,
    trials: int = 400,
    seed: int = 0,
    reference: bool = True,
    relaunch: bool = True,
    launch_s: float = 60.0,
    run_s: float = 20.0,
) -> Rehearsed:
    """Run ``trials`` campaigns over one cell. Each has a store of its own, drawn from the same noise.

    :param change: relative, of a rate (a latency moves the other way); -0.05 injects a loss of 5 %.
    :param sessions: stored sessions of ``launches`` launches each; 0: no baseline.
    :raises ValueError: for a change of -100 % or worse, or no trials.
    """
    if change <= -1 or trials < 1:
        raise ValueError(f"change must be above -1 and trials at least 1, not {change} and {trials}")
    source = random.Random(seed)
    counts: Counter[str] = Counter()
    failed, spent_launches, spent_s = 0, 0, 0.0
    for _ in range(trials):
        stored = stored_baseline(
            noise,
            cell=plan.cell,
            bounds=plan.bounds,
            source=source,
            sessions=sessions,
            launches=launches,
            runs=settings.runs_per_launch,
        )
        bench = RehearsalBench(
            noise=noise,
            bounds=plan.bounds,
            source=source,
            change=math.log1p(change),
            stored=stored if sessions else None,
            can_launch_reference=reference,
            can_relaunch=relaunch,
            launch_s=launch_s,
            run_s=run_s,
        )
        result = Campaign([plan], bench=bench, settings=settings, clock=bench.clock).run()[plan.cell.key]
        counts[result.decision.verdict.value] += 1
        failed += not result.decision.verdict.passes
        spent_launches += bench.launches
        spent_s += bench.now_s
    return Rehearsed(
        change=change,
        trials=trials,
        verdicts={verdict: count / trials for verdict, count in counts.items()},
        failed=failed / trials,
        launches=spent_launches / trials,
        minutes=spent_s / trials / 60,
    )
