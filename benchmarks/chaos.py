"""kill -9 for random processes at random moments of whole pytest runs: what is left behind?

    python benchmarks/chaos.py --kills 100 --json FILE        # 5 to 10 minutes on two cores
    python benchmarks/chaos.py --kills 6 --seed 3             # a quick look

Each round starts ``pytest -m perf`` over two cells of the simulated engine (compare, record, or go on from what an
interrupted one left; alone or under xdist), waits for a random moment, and kills one of: pytest, an xdist worker, the
server, its guardian, a load worker. When the rest has come to its end:

- orphans: processes of the round that still live after 30 s,
- damaged_baselines: stored baselines that can't be read, or that have lost a run,
- stale_locks: locks that somebody still holds, records, keys and sockets of servers that are gone,
- lost_runs: runs of cells that were finished when pytest was killed, and that neither the journal nor a baseline holds,
- cut_runs: runs of the one cell that was being measured then. A cell's runs of one launch are kept together or not at
  all, so these are measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_moeperf.baselines.levels import all_runs
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.session.journal import JOURNAL_FOLDER, Journal

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "faults"))
from fault_world import Invocation, World, cleaned_up

TARGETS = {"pytest": 8, "server": 4, "guardian": 4, "load worker": 2, "xdist worker": 4}
"""What is killed, and how often."""
MODES = (
    ("--update-baselines",),
    ("--update-baselines", "--perf-continue"),
    ("--perf-mode=screen", "--perf-inconclusive=warn"),
)
GONE_S = 30.0
TEST = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=16)
@pytest.mark.parametrize("concurrency", [2, 4])
def test_decode(moeperf, concurrency):
    moeperf.measure()
"""
RUN_LINE = re.compile(r"^moeperf  (\S+ c=\d+ \S+) \| candidate \| (?:warm-up|run \d+) \|", re.MULTILINE)

StoredIds = defaultdict[str, frozenset[str]]
"""Ids of the stored runs of each cell."""


@dataclass
class Tally:
    """What was seen."""

    kills: int = 0
    by_target: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    damaged_baselines: int = 0
    stale_locks: int = 0
    lost_runs: int = 0
    cut_runs: int = 0
    kept_runs: int = 0
    unharmed: int = 0
    """Rounds that ended before their victim appeared; not counted as kills."""
    findings: list[str] = field(default_factory=list)


class Chaos:
    """Rounds in one folder, so that baselines and journals of one meet the next."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.world = World(folder / "suite", config="[backends.one]\n", test=TEST, scale=1.0)
        self.tally = Tally()
        self._draws = random.Random(seed)
        self._usual_s = 0.0
        self._stored: StoredIds = defaultdict(frozenset)
        self._seen: set[str] = set()
        """Stale files that were counted already."""

    def warm_up(self) -> None:
        """A round without a victim: how long one takes here."""
        began_s = time.monotonic()
        self.world.run("--backend=one", "--update-baselines")
        self._stored = self._stored_runs()
        self._usual_s = time.monotonic() - began_s

    def round(self) -> None:
        (target,) = self._draws.choices(list(TARGETS), weights=list(TARGETS.values()))
        mode = self._draws.choice(MODES)
        split = target == "xdist worker" or (target == "pytest" and self._draws.random() < 0.3)
        began_s = time.monotonic()
        invocation = self.world.start("--backend=one", *mode, *(("-n1",) if split else ()))
        victim = self._victim(target, invocation, not_before_s=began_s + self._draws.uniform(0.0, self._usual_s))
        if victim is not None:
            with_luck_s = time.monotonic() - began_s
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                victim = None
        finished = invocation.end()
        if victim is None:
            self.tally.unharmed += 1
            self._usual_s = 0.8 * self._usual_s + 0.2 * (time.monotonic() - began_s)
        else:
            self.tally.kills += 1
            self.tally.by_target[target] += 1
            what = f"{target} after {with_luck_s:.1f} s, {' '.join(mode)}{' -n1' if split else ''}"
            self._look(what, finished.raw if target == "pytest" and not split else "")

    def _victim(self, target: str, invocation: Invocation, *, not_before_s: float) -> int | None:
        """The pid to kill, as soon as there is one after that moment; None once pytest has ended by itself."""
        while invocation.process.poll() is None:
            if time.monotonic() >= not_before_s and (pid := self._find(target, invocation)) is not None:
                return pid
            time.sleep(0.01)
        return None

    def _find(self, target: str, invocation: Invocation) -> int | None:
        if target == "pytest":
            return invocation.process.pid
        if target in ("server", "guardian"):
            pids = [
                record.pid if target == "server" else record.guardian_pid
                for record in self.world.records()
                if record.state != "exited"
            ]
        else:
            mark = "pytest_moeperf.load.worker" if target == "load worker" else "exec(eval(sys.stdin.readline()))"
            pids = [pid for pid, command in self.world.processes().items() if mark in command]
        return self._draws.choice(pids) if pids else None

    def _look(self, what: str, output: str) -> None:
        deadline_s = time.monotonic() + GONE_S
        while self.world.processes() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        orphans = self.world.processes()
        left = {each for each in self.world.leftovers() if not each.startswith("process ")}
        stale, self._seen = left - self._seen, self._seen | left
        lost = cut = 0
        damage: list[str] = []
        try:
            stored = self._stored_runs()
            damage = [
                f"{cell}: {len(gone)} of {len(runs)} stored runs are gone"
                for cell, runs in self._stored.items()
                if (gone := runs - stored[cell])
            ]
            lost, cut = self._missing(output, self._stored, recording="--update-baselines" in what)
            self._stored = stored
        except BaselineError as error:
            damage = [str(error)]
        self.tally.orphans += len(orphans)
        self.tally.stale_locks += len(stale)
        self.tally.damaged_baselines += len(damage)
        self.tally.lost_runs += lost
        self.tally.cut_runs += cut
        logs = [f"an orphan's guardian says: {text}" for text in self._guardians_of(orphans)]
        found = [*orphans.values(), *logs, *sorted(stale), *damage, *([f"{lost} runs lost"] if lost else [])]
        self.tally.findings += [f"{what}: {each}" for each in found]

    def _guardians_of(self, orphans: Mapping[int, str]) -> list[str]:
        """The last lines of the youngest guardian, where there are orphans to explain."""
        paths = list(self.world.runtime.glob("launches/*/guardian.log")) if orphans else []
        newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
        return [newest.read_text()[-600:]] if newest is not None else []

    def _missing(self, output: str, stored_before: StoredIds, *, recording: bool) -> tuple[int, int]:
        """Runs that the killed pytest had told of, and that are kept nowhere: of finished cells, of the last one."""
        told = Counter(match[1] for match in RUN_LINE.finditer(output))
        if not told:
            return 0, 0
        folder = self.world.folder / JOURNAL_FOLDER
        journals = [Journal(self.world.folder, path.stem).runs() for path in folder.glob("*.jsonl")]
        kept = Counter(run.cell.label for runs in journals for run in runs)
        self.tally.kept_runs += kept.total()
        stored = self._stored_runs()
        # The journal goes when all verdicts are out; a comparison stores nothing.
        compared = set() if recording else {cell for cell in told if f"moeperf  {cell}: " in output}
        # Stored ids are sets: more of them than before.
        safe = compared | {cell for cell in told if kept[cell] or stored[cell] > stored_before[cell]}
        *finished, last = told
        lost = sum(told[cell] for cell in finished if cell not in safe)
        return lost, 0 if last in safe else told[last]

    def _stored_runs(self) -> StoredIds:
        """Earlier levels and old sessions included: a baseline never forgets a run."""
        found: StoredIds = defaultdict(frozenset)
        for entry in self.world.baselines():
            found[entry.baseline.cell.label] |= {run.id for run in all_runs(entry.baseline)}
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moeperf-chaos-") as folder:
        chaos = Chaos(Path(folder), seed=options.seed)
        began_s = time.monotonic()
        with cleaned_up(chaos.world):
            chaos.warm_up()
            while chaos.tally.kills < options.kills:
                chaos.round()
                print_progress(chaos.tally, options.kills)
    tally = chaos.tally
    figures = {
        "kills": tally.kills,
        "orphans": tally.orphans,
        "damaged_baselines": tally.damaged_baselines,
        "stale_locks": tally.stale_locks,
        "lost_runs": tally.lost_runs,
        "cut_runs": tally.cut_runs,
        "kept_runs": tally.kept_runs,
        "unharmed_rounds": tally.unharmed,
        "by_target": dict(tally.by_target),
        "seconds": round(time.monotonic() - began_s, 1),
        "findings": tally.findings,
    }
    for name, value in figures.items():
        print(f"{name:18} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def print_progress(tally: Tally, kills: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{tally.kills} of {kills} kills, {len(tally.findings)} findings", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
