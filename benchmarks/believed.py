"""What does the product believe? Every variant of a server is measured by whole pytest invocations, and compared with
its truth.

    python benchmarks/believed.py --json FILE            # 3 minutes on two cores
    python benchmarks/believed.py --only replica         # those whose name holds that

A variant ends as one of:

- right: the figures were taken, and they are the server's own (or a slower server failed its test),
- refused: nothing was believed, and the text names the cause,
- refused for another cause: nothing was believed, but what is wrong with this server was not named,
- refused though sound: nothing is wrong with this server,
- believed though wrong: a figure was taken that is not true, or was compared with what it can't be compared with.

The last two must be empty; the exit status says so. A machine that others use makes a sound run void now and then, and
figures late. So what such a machine alone may explain is tried again, alone, and counts if it ends so three times:
refusals of what is sound or for another cause, and figures off by what a process that waits for a core does to them
(``host_may_explain``). What is believed of a server of which nothing may be believed counts at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from believed_forks import preload, pytest_in, serving
from believed_variants import REFUSED, RIGHT, VARIANTS, Variant

TRIES = 3
DEADLINE_S = 90.0
FIGURES_OFF = 0.15
"""Of the truth: a busy machine wakes a sleeping server late, and the client sees that too."""
HOST_TTFT_MS = 15.0
HOST_TPOT = 0.3
"""More than that no busy host adds to a figure, or takes off one."""
REFUSED_THOUGH_SOUND, BELIEVED_THOUGH_WRONG = "refused though sound", "believed though wrong"
RECORDED = "recorded"
COMPARED = frozenset({"EQUIVALENT", "NON_INFERIOR", "NO_CHANGE_SEEN", "REGRESSION", "UNVERIFIED_WIN", "INCONCLUSIVE"})
PASSED = frozenset({"EQUIVALENT", "NON_INFERIOR", "NO_CHANGE_SEEN", "VERIFIED_WIN", RECORDED})
REFUSED_AT_START = "not measured"

TEST = """\
import pytest

@pytest.mark.perf(concurrency=4, input_len=64, output_len=40, num_prompts=8)
@pytest.mark.perf({perf})
{bounds}
def test_decode(moeperf):
    moeperf.measure()
"""
CONFIG = """\
min_window = "100ms"
launches = 1
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One pytest invocation."""

    how: str
    """A verdict, ``recorded``, or ``not measured``."""
    text: str
    figures: Mapping[str, float]
    """Of its valid runs: the medians of ``tpot_ms``, ``ttft_ms`` and ``throughput``, where they are defined."""


@dataclass(frozen=True, kw_only=True)
class Found:
    variant: Variant
    ending: str
    why: str
    again: bool
    """It counts only if it ends so again, without others beside it."""
    text: str
    took_s: float


@dataclass(frozen=True, kw_only=True)
class Off:
    """A figure that is not the server's own."""

    name: str
    value: float
    true: float

    @property
    def text(self) -> str:
        return f"{self.name} {self.value:.2f}, true {self.true:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the counts and names there")
    parser.add_argument("--only", default="", help="variants whose name holds this text")
    parser.add_argument("--lanes", type=int, default=3, help="variants that are tried at a time")
    parser.add_argument("--verbose", action="store_true", help="print what each invocation printed")
    options = parser.parse_args()
    preload()
    # Those that launch a server take longest.
    asked = sorted((one for one in VARIANTS if options.only in one.name), key=lambda one: one.traits is not None)
    found: dict[str, Found] = {}
    left = asked
    for number in range(1, TRIES + 1):
        # What a busy host may have spoilt is tried again with the host for itself.
        with ThreadPoolExecutor(options.lanes if number == 1 else 1) as lanes:
            for one in lanes.map(_tried, left):
                found[one.variant.name] = one
                again = "" if number == 1 else f", try {number}"
                print(f"{one.ending:26} {one.variant.name:46} {one.took_s:5.1f} s{again}  {one.why}", flush=True)
                if options.verbose:
                    print(one.text)
        left = [one.variant for one in found.values() if one.again]
    counts = Counter(one.ending for one in found.values())
    print("\n" + ", ".join(f"{count} {ending}" for ending, count in counts.most_common()) + f", of {len(found)} tried")
    if options.json is not None:
        options.json.write_text(json.dumps(_summary([found[one.name] for one in asked]), indent=1) + "\n")
    return int(bool({REFUSED_THOUGH_SOUND, BELIEVED_THOUGH_WRONG} & set(counts)))


def _summary(found: list[Found]) -> dict[str, Any]:
    def names(ending: str) -> list[str]:
        return [one.variant.name for one in found if one.ending == ending]

    return {
        "tried": len(found),
        "right": len(names("right")),
        "refused": len(names("refused")),
        "refused_though_sound": names(REFUSED_THOUGH_SOUND),
        "believed_though_wrong": names(BELIEVED_THOUGH_WRONG),
        "refused_for_another_cause": names("refused for another cause"),
    }


def _tried(variant: Variant) -> Found:
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="believed-") as name:
        folder = Path(name)
        traits, then = variant.traits, variant.then or {}
        if traits is None:
            ends = [_invoke(variant, folder, args=variant.args)]
            if variant.then is not None:
                ends.append(_invoke(variant, folder, args=(*variant.args, *then.get("args", ())), compares=True))
            truth: dict[str, Any] | None = None
        else:
            with _serving(traits) as url:
                ends = [_invoke(variant, folder, url=url)]
                truth = _truth(url)
            if variant.then is not None and ends[0].how == RECORDED:
                with _serving({**traits, **then}) as url:
                    ends.append(_invoke(variant, folder, url=url, compares=True))
    ending, why, again = _judged(variant, ends, truth)
    text, took_s = "\n".join(end.text for end in ends), time.monotonic() - started_s
    return Found(variant=variant, ending=ending, why=why, again=again, text=text, took_s=took_s)


def _judged(variant: Variant, ends: list[Ended], truth: Mapping[str, Any] | None) -> tuple[str, str, bool]:
    """How it ended, why, and whether a busy host alone may be the cause."""
    last = ends[-1]
    if last.how not in {RECORDED, *COMPARED}:
        return _refused(variant, last)
    if variant.fails and last.how not in PASSED:
        return "right", f"{last.how}: the test fails", False
    if variant.truth == REFUSED:
        return BELIEVED_THOUGH_WRONG, last.how, False
    off = [one for end in ends for one in _off(end.figures, truth)]
    if off:
        again = all(host_may_explain(one, sound=variant.truth == RIGHT) for one in off)
        return BELIEVED_THOUGH_WRONG, f"{last.how}: {'; '.join(one.text for one in off)}", again
    if variant.then is not None and len(ends) == 1:
        return REFUSED_THOUGH_SOUND, f"not recorded: {last.how}", True
    return "right", last.how, False


def _refused(variant: Variant, last: Ended) -> tuple[str, str, bool]:
    why = _reason(last)
    if variant.truth == RIGHT:
        return REFUSED_THOUGH_SOUND, why, True
    if not re.search(variant.cause, last.text):
        return "refused for another cause", why, True
    return "refused", why, False


def _reason(end: Ended) -> str:
    """The first words of the failure."""
    lines = [line.strip() for line in end.text.splitlines()]
    told = [
        line.removeprefix("E").strip()
        for line in lines
        if re.match(r"E\s+\S|ERROR:|.*\b(INVALID|INCOMPARABLE)\b", line)
    ]
    return f"{end.how}: {(told or lines or [''])[0]}"[:150]


def _off(figures: Mapping[str, float], truth: Mapping[str, Any] | None) -> Iterator[Off]:
    """Figures that are not the server's own."""
    if truth is None:
        return
    servers = truth["servers"]
    told: dict[str, float] = {
        name: statistics.fmean(server[name] for server in servers)
        for name in ("tpot_ms", "ttft_ms")
        if all(server[name] for server in servers)
    }
    for name, true in told.items():
        value = figures.get(name)
        # A millisecond of a waking process is no error of the time to the first token.
        if value is not None and abs(value - true) > max(FIGURES_OFF * true, 3.0 if name == "ttft_ms" else 0.0):
            yield Off(name=name, value=value, true=true)


def host_may_explain(off: Off, *, sound: bool) -> bool:
    """Whether processes that had to wait for a core can have made this of the truth, so that it has to come again
    before it counts.

    They add to the time to the first token and never take from it. They move a first or a last token by some ms, which
    an answer's mean time per token dilutes. Where nothing is planted any such error may be theirs: one of the product
    is there at every try. A planted error is larger than what they may have in it: 34 ms and more of the time to the
    first token, half of the time per token.
    """
    if off.name == "ttft_ms":
        return off.value > off.true and (sound or off.value <= off.true + HOST_TTFT_MS)
    return off.true * (1 - HOST_TPOT) <= off.value and (sound or off.value <= off.true * (1 + HOST_TPOT))


def _invoke(
    variant: Variant, folder: Path, *, url: str = "", args: tuple[str, ...] = (), compares: bool = False
) -> Ended:
    attach = variant.attach if not compares or variant.then_attach is None else variant.then_attach
    config = CONFIG
    if url:
        config += f"[attach]\n{attach}\n"
    else:
        quiet = ["--time-scale=0.5", "--run-sd=0", "--launch-sd=0", "--session-sd=0", "--profile=triton"]
        config += f'engine = "simulated"\n[backends.triton]\nargs = {json.dumps([*quiet, *args])}\n'
    (folder / "moeperf.toml").write_text(config)
    (folder / "test_believed.py").write_text(TEST.format(perf=variant.perf, bounds=variant.bounds))
    command = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", "perf"]
    command += [f"--perf-attach={url}{variant.path}"] if url else ["--backend=triton"]
    command += ["--perf-mode=screen"] if compares else ["--update-baselines"]
    own = {name: str(folder / name) for name in ("MOEPERF_RUNTIME_DIR", "MOEPERF_LOCK_DIR")}
    env = os.environ | own | {"COLUMNS": "200"} | variant.env
    status, text = pytest_in(folder, [*command, *variant.options], env, timeout_s=DEADLINE_S)
    report = folder / ".moeperf" / "last" / "moeperf.json"
    data = json.loads(report.read_text()) if report.is_file() else {"outcomes": []}
    report.unlink(missing_ok=True)
    outcomes = data["outcomes"]
    if not outcomes:
        return Ended(how=REFUSED_AT_START, text=text, figures={})
    (outcome,) = outcomes
    how = RECORDED if outcome["recorded"] else outcome["decision"]["verdict"]
    if how in PASSED and status != 0:
        how = f"{how}, but exit status {status}"
    return Ended(how=how, text=text, figures=_figures(outcome["runs"]))


def _figures(runs: list[dict[str, Any]]) -> dict[str, float]:
    valid = [run for run in runs if not run["warmup"] and all(check["status"] != "fail" for check in run["checks"])]
    found: dict[str, list[float]] = {}
    for run in valid:
        metrics = run["metrics"]
        for name in ("tpot_ms", "ttft_ms"):
            if metrics[name]["mean"] is not None:
                found.setdefault(name, []).append(metrics[name]["mean"])
    return {name: statistics.median(values) for name, values in found.items()}


@contextmanager
def _serving(traits: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a server of these traits; nobody listens there for the engine ``gone``."""
    if traits.get("engine") == "gone":
        yield "http://127.0.0.1:9"
        return
    with serving(traits) as url:
        yield url


def _truth(url: str) -> dict[str, Any] | None:
    if url.endswith(":9"):
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/truth", timeout=10) as answer:
        truth: dict[str, Any] = json.load(answer)
        return truth


if __name__ == "__main__":
    sys.exit(main())
