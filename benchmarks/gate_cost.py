"""How often is each rule wrong, and what does it cost? Rules side by side in the same worlds.

    python benchmarks/gate_cost.py                        # about 4 minutes on one core
    python benchmarks/gate_cost.py --json FILE            # the same figures for machines
    python benchmarks/gate_cost.py --trials 500           # a quick look

Worlds: ``quiet`` and ``noisy`` are simulated (their variances are stated, not measured), ``pair_1.5`` is
simulated with a pair sd of 1.5 %, ``h200_c10`` and ``h200_c10_tpot`` are simulated with the variance that throughput
and TPOT of a real LLM server have between H200 machines, launches and runs, ``go_nightly`` is public: one Go commit
measured for 23 nights (all three: ``data/README.md``). ``moeperf`` is the project's own gate and campaign, run over
servers that exist only as noise; the other rules see launches of the same worlds. A launch's value is the mean of its
runs.

Rules with a threshold of 5 % are undecided at a true -5 % by design: half of such changes pass. They are marked (*).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from pytest_moeperf.campaign import Campaign
from pytest_moeperf.model.baseline import Baseline, BaselineMatch, StoredRun
from pytest_moeperf.model.bench import CellPlan, Launched
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, Evidence, Fingerprint, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Decision, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import LEVEL, SOUND, Noise, RehearsalBench, metrics_of, stored_baseline
from pytest_moeperf.stats.components import components
from pytest_moeperf.stats.effects import launch_means

Floats = np.ndarray
THROUGHPUT = Bound(metric="throughput")
PLAN = CellPlan(cell=Cell(backend="simulated", workload=Workload(concurrency=64)), bounds=(THROUGHPUT,))
CHANGES = {"aa": 0.0, "3": -0.03, "5": -0.05, "10": -0.10, "win_10": 0.10}
RUNS_PER_LAUNCH = 3
BENCHER_HISTORY = 30
FIXED_LAUNCHES = 16
RULE_TRIALS = 5
"""Trials of the other rules for each one of the gate: they are cheap."""
FAMILY = (1, 2, 10, 64, 256, 1024)
"""Concurrencies of the cells that are gated together, each with two bounds."""
DATA = Path(__file__).with_name("data") / "go117_aa.csv"
H200_DATA = DATA.with_name("h200_runs.csv")
WINS = (Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN)

REQUEST_SD, REQUEST_AR1, REQUESTS = 0.08, 0.7, 300
REQUEST_NOISE = REQUEST_SD * math.sqrt((1 + REQUEST_AR1) / (1 - REQUEST_AR1) / REQUESTS)
"""Sd of a run's mean over 300 requests with AR(1) coefficient 0.7: drawn directly, it is the same as drawing
the requests."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What the other rules see: launch means (effects), a row a trial. All without any change."""

    now: Floats
    """16 launches in a row of one session."""
    before: Floats
    """8 launches in a row of an earlier session."""
    history: Floats
    """One launch of each of many earlier sessions."""


class World:
    """Where launches come from."""

    settings = GateSettings(runs_per_launch=RUNS_PER_LAUNCH)

    def bench(self, source: random.Random, change: float, *, reference: bool) -> RehearsalBench | Replay:
        """A bench for the real campaign, with a store of its own."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, trials: int) -> Draw:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Simulated(World):
    noise: Noise
    sessions: int
    launches: int

    def bench(self, source: random.Random, change: float, *, reference: bool) -> RehearsalBench:
        stored = stored_baseline(
            self.noise,
            cell=PLAN.cell,
            bounds=PLAN.bounds,
            source=source,
            sessions=self.sessions,
            launches=self.launches,
            runs=RUNS_PER_LAUNCH,
        )
        return RehearsalBench(
            noise=self.noise,
            bounds=PLAN.bounds,
            source=source,
            change=change,
            stored=stored,
            can_launch_reference=reference,
        )

    def draw(self, rng: np.random.Generator, trials: int) -> Draw:
        history = np.concatenate([self._session(rng, trials, 1) for _ in range(BENCHER_HISTORY)], axis=1)
        return Draw(now=self._session(rng, trials, 16), before=self._session(rng, trials, 8), history=history)

    def _session(self, rng: np.random.Generator, trials: int, launches: int) -> Floats:
        noise = self.noise
        runs = rng.normal(0, noise.run_sd, (trials, launches, RUNS_PER_LAUNCH))
        if noise.drift_sd:
            steps = rng.normal(0, noise.drift_sd, (trials, launches * RUNS_PER_LAUNCH))
            runs += steps.cumsum(axis=1).reshape(runs.shape)
        session = rng.normal(0, noise.session_sd, (trials, 1))
        values: Floats = runs.mean(axis=2) + rng.normal(0, noise.launch_sd, (trials, launches)) + session
        return values


@dataclass(frozen=True, kw_only=True)
class Nightly(World):
    """Real runs of one commit. A night is a session, a run is a launch; the 8 nights before are the store, 2
    runs of each."""

    values: Floats
    """(benchmarks, nights, runs), effects."""
    sessions: int = 8
    launches: int = 2

    settings = GateSettings(runs_per_launch=1)

    def bench(self, source: random.Random, change: float, *, reference: bool) -> Replay:
        benchmarks, nights, runs = self.values.shape
        benchmark, night = source.randrange(benchmarks), source.randrange(self.sessions, nights)
        kept = tuple(
            StoredRun(
                id=f"{earlier}/{run}",
                session=str(earlier),
                launch=f"{earlier}/{run}",
                started_at="",
                values={"throughput": math.exp(LEVEL + float(self.values[benchmark, earlier, run]))},
            )
            for earlier in range(night - self.sessions, night)
            for run in source.sample(range(runs), self.launches)
        )
        stored = Baseline(
            engine="data", model="", cell=PLAN.cell, fingerprint=Fingerprint(), evidence=Evidence(), runs=kept
        )
        start = source.randrange(runs - FIXED_LAUNCHES)
        tonight = [float(value) for value in self.values[benchmark, night, start:]]
        return Replay(stored=stored, night=tonight, change=change, can_launch_reference=reference)

    def draw(self, rng: np.random.Generator, trials: int) -> Draw:
        benchmarks, nights, runs = self.values.shape
        benchmark = rng.integers(benchmarks, size=(trials, 1))
        night = rng.integers(self.sessions, nights, size=(trials, 1))
        earlier = night - 1 - np.arange(self.sessions)
        return Draw(
            now=self.values[benchmark, night, _row_of(rng, trials, runs, 16)],
            before=self.values[benchmark, night - 1, _row_of(rng, trials, runs, 8)],
            history=self.values[benchmark, earlier, rng.integers(runs, size=earlier.shape)],
        )


def h200(metric: str) -> Simulated:
    """A real server at 10 concurrent requests, unchanged. Its sessions are machines.

    :param metric: column of the data.
    """
    with H200_DATA.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["concurrency"] == "10" and row["backend"] == "triton"]
    effects = [
        (row["machine"], row["launch"], math.log(float(row[metric])))
        for row in rows
        if row["warmup"] == "0" and not row["failed_checks"] and not row["planted_sleep_ms"]
    ]
    parts = components(launch_means(effects))
    noise = Noise(
        session_sd=math.sqrt(parts.session_var),
        launch_sd=math.sqrt(parts.launch_var),
        run_sd=math.sqrt(parts.run_var),
    )
    return Simulated(noise=noise, sessions=4, launches=2)


def _row_of(rng: np.random.Generator, trials: int, runs: int, length: int) -> Floats:
    """Indices of ``length`` runs in a row, from a random start."""
    rows: Floats = rng.integers(runs - length + 1, size=(trials, 1)) + np.arange(length)
    return rows


@dataclass
class Replay:
    """A bench whose launches are the runs of one night, in their order."""

    stored: Baseline
    night: list[float]
    change: float
    can_launch_reference: bool = True
    can_relaunch: bool = True
    launches: int = 0

    @contextmanager
    def launch(self, arm: str, *, fresh: bool) -> Iterator[Launched]:
        del fresh
        effect = LEVEL + self.night[self.launches] + (self.change if arm == CANDIDATE else 0.0)
        self.launches += 1
        yield _Replayed(Launch(id=str(self.launches), session="tonight", arm=arm), effect)

    def baseline_for(self, run: Run) -> BaselineMatch:
        del run
        return BaselineMatch(baseline=self.stored)

    def running(self, arm: str) -> str:
        del arm
        return ""

    def expected_launch_s(self, arm: str) -> float:
        del arm
        return 1.0

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        del cell, runs
        return 1.0


@dataclass
class _Replayed:
    launch: Launch
    effect: float

    def measure(self, cell: Cell, *, runs: int) -> Sequence[Run]:
        del runs
        metrics = metrics_of(self.effect, (THROUGHPUT,))
        client = ClientReport(clock="data")
        return [
            Run(
                id=self.launch.id,
                cell=cell,
                launch=self.launch,
                index=0,
                started_at="",
                metrics=metrics,
                client=client,
                checks=SOUND,
            )
        ]


def nightly() -> Nightly:
    """The public A/A data."""
    rows: dict[str, dict[str, list[float]]] = {}
    with DATA.open(newline="") as file:
        for row in list(csv.reader(file))[1:]:
            # ns/op is a latency: its effect has the other sign
            rows.setdefault(row[0], {})[row[1]] = [-1e-4 * float(value) for value in row[2:]]
    return Nightly(values=np.array([[rows[name][day] for day in sorted(rows[name])] for name in sorted(rows)]))


# -- the other rules: each says FAIL, WIN or neither for every trial of a draw


@dataclass(frozen=True, kw_only=True)
class Said:
    fail: Floats
    win: Floats
    launches: float
    """New launches that the rule asks for."""


def pytest_benchmark(draw: Draw, change: float) -> Said:
    """``--benchmark-compare-fail=mean:5%``: the mean time of one launch against one stored launch."""
    ratio = np.exp(draw.before[:, 0] - (draw.now[:, 0] + change))
    return Said(fail=ratio > 1.05, win=np.zeros(len(ratio), bool), launches=1)


def benchstat_stored(draw: Draw, change: float) -> Said:
    """5 new launches against 5 stored of one earlier session, Mann-Whitney p < 0.05 on both sides."""
    return _mann_whitney(draw.now[:, :5] + change, draw.before[:, :5], p=0.05, launches=5)


def benchstat_interleaved(draw: Draw, change: float) -> Said:
    reference, candidate = _arms(draw.now[:, :10], change)
    return _mann_whitney(candidate, reference, p=0.05, launches=10)


def asv(draw: Draw, change: float) -> Said:
    """``asv continuous --interleave-rounds``, 8 + 8: medians differ by the factor 1.1 and Mann-Whitney p < 0.002."""
    reference, candidate = _arms(draw.now, change)
    said = _mann_whitney(candidate, reference, p=0.002, launches=16)
    moved = np.median(candidate, axis=1) - np.median(reference, axis=1)
    return Said(fail=said.fail & (moved < -math.log(1.1)), win=said.win & (moved > math.log(1.1)), launches=16)


def bencher(draw: Draw, change: float) -> Said:
    """Bencher's t_test threshold: one launch below the 0.99 prediction limit of the history."""
    count = draw.history.shape[1]
    limit = float(stdtrit(count - 1, 0.99)) * draw.history.std(axis=1, ddof=1) * math.sqrt(1 + 1 / count)
    fail = draw.now[:, 0] + change < draw.history.mean(axis=1) - limit
    return Said(fail=fail, win=np.zeros(len(fail), bool), launches=1)


def paired_t(draw: Draw, change: float) -> Said:
    """A fixed 8 + 8 design, interleaved, t-test of the pairs at p < 0.05 two-sided."""
    mean, half = _pairs(draw, change, 0.975)
    return Said(fail=mean + half < 0, win=mean - half > 0, launches=FIXED_LAUNCHES)


def paired_t_margins(draw: Draw, change: float) -> Said:
    """The same design with this project's margins: worse than -1.5 % or better than +1.5 % (and +3 % in the
    mean), 5 % a side."""
    mean, half = _pairs(draw, change, 0.95)
    win = (mean - half > math.log1p(0.015)) & (mean > math.log1p(0.03))
    return Said(fail=mean + half < math.log1p(-0.015), win=win, launches=FIXED_LAUNCHES)


def _pairs(draw: Draw, change: float, probability: float) -> tuple[Floats, Floats]:
    reference, candidate = _arms(draw.now, change)
    difference = candidate - reference
    n = difference.shape[1]
    half = float(stdtrit(n - 1, probability)) * difference.std(axis=1, ddof=1) / math.sqrt(n)
    return difference.mean(axis=1), half


def _arms(launches: Floats, change: float) -> tuple[Floats, Floats]:
    """Reference and candidate of an A B B A A B B A ... order."""
    first = np.arange(launches.shape[1]) % 4 % 3 == 0
    return launches[:, first], launches[:, ~first] + change


def _mann_whitney(new: Floats, old: Floats, *, p: float, launches: float) -> Said:
    """Exact two-sided test; FAIL where the new launches are the slower ones."""
    above = (new[:, :, None] > old[:, None, :]).sum(axis=(1, 2))
    critical = _critical_u(new.shape[1], old.shape[1], p)
    return Said(fail=above <= critical, win=above >= new.shape[1] * old.shape[1] - critical, launches=launches)


@lru_cache(maxsize=8)
def _critical_u(n: int, m: int, p: float) -> int:
    """Largest U whose two-sided exact p-value is below ``p``; -1: none is."""
    counts = np.zeros((n + 1, n * m + 1))
    counts[0, 0] = 1
    for rank in range(1, n + m + 1):  # which ranks belong to the first sample: count subsets by their sum
        for size in range(min(n, rank), 0, -1):
            shift = rank - size
            if shift <= n * m:
                counts[size, shift:] += counts[size - 1, : n * m + 1 - shift]
    tail = 2 * counts[n].cumsum() / math.comb(n + m, n)
    return int((tail < p).sum()) - 1


RULES: Mapping[str, Callable[[Draw, float], Said]] = {
    "pytest_benchmark_5pct": pytest_benchmark,
    "benchstat_5_5_stored": benchstat_stored,
    "benchstat_5_5_interleaved": benchstat_interleaved,
    "asv_8_8_interleaved": asv,
    "bencher_t_test": bencher,
    "paired_t_8_8": paired_t,
    "paired_t_8_8_margins": paired_t_margins,
}
UNDECIDED_AT_5 = frozenset({"pytest_benchmark_5pct", "asv_8_8_interleaved"})


# -- measuring

Figures = dict[str, float]


def share(hits: int, trials: int) -> tuple[float, float]:
    """A fraction and its Monte-Carlo standard error (of one hit, where there was none)."""
    fraction = hits / trials
    return fraction, math.sqrt(max(fraction * (1 - fraction), 1 / trials) / trials)


def figures_of(outcomes: Mapping[str, tuple[int, int, int, float]], trials: int) -> Figures:
    """:param outcomes: by change: FAIL, WIN and undecided trials, and the mean number of launches."""
    found: Figures = {}

    def add(name: str, hits: int) -> None:
        found[name], found[f"{name}_error"] = share(hits, trials)

    add("aa_false_fail", outcomes["aa"][0])
    add("aa_false_win", outcomes["aa"][1])
    add("aa_inconclusive", outcomes["aa"][2])
    for name in ("3", "5", "10"):
        add(f"caught_{name}", outcomes[name][0])
    add("win_10_flagged", outcomes["win_10"][1])
    found["mean_launches_aa"] = outcomes["aa"][3]
    found["mean_launches_5"] = outcomes["5"][3]
    return found


def run_gate(world: World, *, trials: int, seed: int, reference: bool = True) -> Figures:
    """The project's own gate and campaign."""
    outcomes = {}
    for number, (name, change) in enumerate(CHANGES.items()):
        source = random.Random(1000 * seed + number)
        decisions, launches = campaigns(world, source, change, trials=trials, reference=reference)
        fail = sum(item.verdict is Verdict.REGRESSION for item in decisions)
        win = sum(item.verdict in WINS for item in decisions)
        undecided = sum(item.verdict is Verdict.INCONCLUSIVE for item in decisions)
        outcomes[name] = (fail, win, undecided, launches / trials)
    return figures_of(outcomes, trials)


def campaigns(
    world: World,
    source: random.Random,
    change: float,
    *,
    trials: int,
    reference: bool = True,
    settings: GateSettings | None = None,
) -> tuple[list[Decision], int]:
    """Decisions of many campaigns over one cell, and how many launches they made in all."""
    decisions, launches = [], 0
    for _ in range(trials):
        bench = world.bench(source, math.log1p(change), reference=reference)
        results = Campaign([PLAN], bench=bench, settings=settings or world.settings, clock=lambda: 0.0).run()
        decisions.append(results[PLAN.cell.key].decision)
        launches += bench.launches
    return decisions, launches


def run_rule(rule: Callable[[Draw, float], Said], world: World, *, trials: int, seed: int) -> Figures:
    outcomes = {}
    for number, (name, change) in enumerate(CHANGES.items()):
        said = rule(world.draw(np.random.default_rng([seed, number]), trials), math.log1p(change))
        outcomes[name] = (int(said.fail.sum()), int(said.win.sum()), 0, said.launches)
    return figures_of(outcomes, trials)


def run_screen(trials: int, seed: int) -> list[dict[str, float]]:
    """What one launch alone decides, by variances and size of the store: shares that it passes as not worse."""
    rows = []
    settings = GateSettings(mode="screen", runs_per_launch=RUNS_PER_LAUNCH)
    for session_sd, launch_sd, sessions, launches in SCREENS:
        noise = Noise(session_sd=session_sd, launch_sd=launch_sd, run_sd=RUN_SD)
        world = Simulated(noise=noise, sessions=sessions, launches=launches)
        row = {"session_sd": session_sd, "launch_sd": launch_sd, "sessions": sessions, "launches": launches}
        for name, change in (("aa", 0.0), ("3", -0.03), ("5", -0.05)):
            decisions, _ = campaigns(world, random.Random(seed), change, trials=trials, settings=settings)
            passes = sum(item.verdict in {Verdict.EQUIVALENT, Verdict.NON_INFERIOR} for item in decisions)
            row[f"passes_{name}"], row[f"passes_{name}_error"] = share(passes, trials)
        rows.append(row)
    return rows


def run_gross(trials: int, seed: int) -> list[dict[str, float]]:
    """What one ABBA block alone decides in the noisy world, by the true change: shares called REGRESSION or a win."""
    rows = []
    for number, change in enumerate((0.0, -0.015, -0.05, -0.10, -0.20, -0.50, 0.67)):
        decisions, _ = campaigns(WORLDS["noisy"], random.Random(1000 * seed + number), change, trials=trials)
        early = [item for item in decisions if item.phase == "confirm" and item.pairs == 2]
        row = {"change": change}
        row["regression"], row["regression_error"] = share(
            sum(item.verdict is Verdict.REGRESSION for item in early), trials
        )
        row["win"], row["win_error"] = share(sum(item.verdict in WINS for item in early), trials)
        rows.append(row)
    return rows


def run_family(trials: int, seed: int) -> list[dict[str, float]]:
    """Six cells with two bounds each in one campaign of the noisy world, nothing changed: Holm over what entered."""
    bounds = (THROUGHPUT, Bound(metric="tpot"))
    plans = [
        CellPlan(cell=Cell(backend="simulated", workload=Workload(concurrency=concurrency)), bounds=bounds)
        for concurrency in FAMILY
    ]
    source = random.Random(seed)
    world = NOISY
    wrong = passed = launches = 0
    for _ in range(trials):
        stored = stored_baseline(
            world.noise,
            cell=PLAN.cell,
            bounds=bounds,
            source=source,
            sessions=world.sessions,
            launches=world.launches,
            runs=RUNS_PER_LAUNCH,
        )
        bench = RehearsalBench(noise=world.noise, bounds=bounds, source=source, stored=stored)
        results = Campaign(plans, bench=bench, settings=world.settings, clock=lambda: 0.0).run().values()
        verdicts = [result.decision.verdict for result in results]
        wrong += any(verdict is Verdict.REGRESSION or verdict in WINS for verdict in verdicts)
        passed += all(verdict.passes for verdict in verdicts)
        launches += bench.launches
    row = {"cells": float(len(plans)), "hypotheses": float(len(plans) * len(bounds))}
    row["any_false"], row["any_false_error"] = share(wrong, trials)
    row["all_pass"], row["all_pass_error"] = share(passed, trials)
    row["mean_launches"] = launches / trials
    return [row]


RUN_SD = 0.001
NOISY = Simulated(
    noise=Noise(session_sd=0.025, launch_sd=0.01, run_sd=REQUEST_NOISE, drift_sd=0.004), sessions=8, launches=2
)
WORLDS: Mapping[str, World] = {
    "quiet": Simulated(noise=Noise(session_sd=0.005, launch_sd=0.005, run_sd=RUN_SD), sessions=4, launches=2),
    "noisy": NOISY,
    "pair_1.5": Simulated(
        noise=Noise(session_sd=0.025, launch_sd=0.015 / math.sqrt(2), run_sd=RUN_SD), sessions=8, launches=2
    ),
}
SCREENS = (
    (0.005, 0.005, 4, 2),
    (0.005, 0.005, 8, 2),
    (0.005, 0.01, 4, 4),
    (0.01, 0.005, 8, 2),
    (0.01, 0.01, 4, 2),
    (0.01, 0.01, 8, 2),
    (0.025, 0.01, 8, 2),
)


def measure(*, trials: int, seed: int, only: Sequence[str] = ()) -> dict[str, object]:
    """:param only: names of the worlds to measure, without the tables below them; empty: everything."""
    worlds: dict[str, World] = {
        **WORLDS,
        "h200_c10": h200("out_tps_steady"),
        "h200_c10_tpot": h200("tpot_ms_mean"),
        "go_nightly": nightly(),
    }
    if unknown := set(only) - set(worlds):
        raise SystemExit(f"no such world: {', '.join(sorted(unknown))}; worlds: {', '.join(worlds)}")
    worlds = {name: world for name, world in worlds.items() if not only or name in only}
    found: dict[str, dict[str, Figures]] = {}
    for name, world in worlds.items():
        found[name] = {
            "moeperf": run_gate(world, trials=trials, seed=seed),
            "moeperf_stored_only": run_gate(world, trials=trials, seed=seed, reference=False),
        }
        for rule, function in RULES.items():
            found[name][rule] = run_rule(function, world, trials=RULE_TRIALS * trials, seed=seed)
        print_world(name, found[name])
    if only:
        return {"worlds": found, "trials": trials, "fixed_launches": FIXED_LAUNCHES}
    screen, gross, family = run_screen(trials, seed), run_gross(trials, seed), run_family(max(1, trials // 4), seed)
    print_rows("screen alone: share passed as not worse", screen)
    print_rows("one ABBA block alone, noisy world: share called", gross)
    print_rows("six cells gated together, noisy world, nothing changed: share of campaigns", family)
    return {
        "worlds": found,
        "screen": screen,
        "gross": gross,
        "family": family,
        "trials": trials,
        "fixed_launches": FIXED_LAUNCHES,
        "undecided_at_5_by_design": sorted(UNDECIDED_AT_5),
    }


def print_world(name: str, rules: Mapping[str, Figures]) -> None:
    columns = {
        "aa_false_fail": "A/A FAIL",
        "aa_false_win": "A/A WIN",
        "aa_inconclusive": "A/A ?",
        "caught_3": "-3 %",
        "caught_5": "-5 %",
        "caught_10": "-10 %",
        "win_10_flagged": "+10 %",
    }
    print(f"\n{name}: share called FAIL (for +10 %: WIN), in percent; launches at A/A and -5 %")
    print(f"{'rule':28}" + "".join(f"{title:>10}" for title in columns.values()) + f"{'launches':>15}")
    for rule, figures in rules.items():
        star = "(*)" if rule in UNDECIDED_AT_5 else ""
        cells = "".join(f"{100 * figures[key]:10.2f}" for key in columns)
        print(f"{rule + star:28}{cells}{figures['mean_launches_aa']:8.2f}{figures['mean_launches_5']:7.2f}", flush=True)


def print_rows(title: str, rows: Sequence[Mapping[str, float]]) -> None:
    print(f"\n{title}")
    keys = [key for key in rows[0] if not key.endswith("_error")]
    print("".join(f"{key:>12}" for key in keys))
    for row in rows:
        print("".join(f"{row[key]:12.4g}" for key in keys), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--trials", type=int, default=4000, help="campaigns for each world and change (default: 4000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="WORLD", default=(), help="these worlds, and no further tables")
    options = parser.parse_args()
    found = measure(trials=options.trials, seed=options.seed, only=options.only)
    print(
        "\n(*) a rule with a threshold of 5 % or more is undecided at a true -5 % by design: half of such changes pass."
    )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
