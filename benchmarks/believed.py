"""What does the product believe? Every variant of a server is measured by whole pytest invocations, and compared with
its truth.

    python benchmarks/believed.py --json FILE            # a few minutes on two cores
    python benchmarks/believed.py --only replica         # those whose name holds that

A variant ends as one of:

- right: the figures were taken, and they are the server's own (or a slower server failed its test),
- refused: nothing was believed, and the text names the cause,
- refused for another cause: nothing was believed, but what is wrong with this server was not named,
- refused though sound: nothing is wrong with this server,
- believed though wrong: a figure was taken that is not true, or was compared with what it can't be compared with.

The last two must be empty, and the third too; the exit status says so. A machine that others use makes a sound run void
now and then, so a sound variant that is refused is tried again, three times in all. One that is believed though wrong
is not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from believed_variants import REFUSED, RIGHT, VARIANTS, Variant

HERE = Path(__file__).resolve().parent
TRIES = 3
DEADLINE_S = 90.0
FIGURES_OFF = 0.15
"""Of the truth: a busy machine wakes a sleeping server late, and the client sees that too."""
RECORDED = "recorded"
COMPARED = frozenset({"EQUIVALENT", "NON_INFERIOR", "NO_CHANGE_SEEN", "REGRESSION", "UNVERIFIED_WIN", "INCONCLUSIVE"})
PASSED = frozenset({"EQUIVALENT", "NON_INFERIOR", "NO_CHANGE_SEEN", "VERIFIED_WIN", RECORDED})
REFUSED_AT_START = "not measured"

TEST = """\
import pytest

@pytest.mark.perf(concurrency=4, input_len=64, output_len=40, num_prompts=12)
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
    tries: int
    took_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the counts and names there")
    parser.add_argument("--only", default="", help="variants whose name holds this text")
    parser.add_argument("--verbose", action="store_true", help="print what each invocation printed")
    options = parser.parse_args()
    found = []
    for variant in VARIANTS:
        if options.only in variant.name:
            found.append(_tried(variant, verbose=options.verbose))
            one = found[-1]
            again = f", {one.tries} tries" if one.tries > 1 else ""
            print(f"{one.ending:26} {variant.name:46} {one.took_s:5.1f} s{again}  {one.why}", flush=True)
    counts = Counter(one.ending for one in found)
    print("\n" + ", ".join(f"{count} {ending}" for ending, count in counts.most_common()) + f", of {len(found)} tried")
    if options.json is not None:
        options.json.write_text(json.dumps(_summary(found), indent=1) + "\n")
    return int(bool(set(counts) - {"right", "refused"}))


def _summary(found: list[Found]) -> dict[str, Any]:
    def names(ending: str) -> list[str]:
        return [one.variant.name for one in found if one.ending == ending]

    return {
        "tried": len(found),
        "right": len(names("right")),
        "refused": len(names("refused")),
        "refused_though_sound": names("refused though sound"),
        "believed_though_wrong": names("believed though wrong"),
        "refused_for_another_cause": names("refused for another cause"),
    }


def _tried(variant: Variant, *, verbose: bool) -> Found:
    started_s = time.monotonic()
    tries = 0
    ending = ""
    while tries < TRIES and ending not in {"right", "refused", "believed though wrong"}:
        tries += 1
        ending, why, text = _once(variant)
        if verbose:
            print(text)
    return Found(variant=variant, ending=ending, why=why, tries=tries, took_s=time.monotonic() - started_s)


def _once(variant: Variant) -> tuple[str, str, str]:
    """How it ended, why, and all that was printed."""
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
        text = "\n".join(end.text for end in ends)
        return (*_judged(variant, ends, truth), text)


def _judged(variant: Variant, ends: list[Ended], truth: Mapping[str, Any] | None) -> tuple[str, str]:
    last = ends[-1]
    if last.how not in {RECORDED, *COMPARED}:
        return _refused(variant, last)
    if variant.fails and last.how not in PASSED:
        return "right", f"{last.how}: the test fails"
    if variant.truth == REFUSED:
        return "believed though wrong", last.how
    off = [text for end in ends for text in _off(end.figures, truth)]
    if off:
        return "believed though wrong", f"{last.how}: {'; '.join(off)}"
    if variant.then is not None and len(ends) == 1:
        return "refused though sound", f"not recorded: {last.how}"
    return "right", last.how


def _refused(variant: Variant, last: Ended) -> tuple[str, str]:
    why = _reason(last)
    if variant.truth == RIGHT:
        return "refused though sound", why
    if not re.search(variant.cause, last.text):
        return "refused for another cause", why
    return "refused", why


def _reason(end: Ended) -> str:
    """The first words of the failure."""
    lines = [line.strip() for line in end.text.splitlines()]
    told = [
        line.removeprefix("E").strip()
        for line in lines
        if re.match(r"E\s+\S|ERROR:|.*\b(INVALID|INCOMPARABLE)\b", line)
    ]
    return f"{end.how}: {(told or lines or [''])[0]}"[:150]


def _off(figures: Mapping[str, float], truth: Mapping[str, Any] | None) -> Iterator[str]:
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
            yield f"{name} {value:.2f}, true {true:.2f}"


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
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "perf"]
    command += [f"--perf-attach={url}{variant.path}"] if url else ["--backend=triton"]
    command += ["--perf-mode=screen"] if compares else ["--update-baselines"]
    own = {name: str(folder / name) for name in ("MOEPERF_RUNTIME_DIR", "MOEPERF_LOCK_DIR")}
    env = os.environ | own | {"COLUMNS": "200"} | variant.env
    done = subprocess.run(
        [*command, *variant.options],
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
        check=False,
    )
    report = folder / ".moeperf" / "last" / "moeperf.json"
    data = json.loads(report.read_text()) if report.is_file() else {"outcomes": []}
    report.unlink(missing_ok=True)
    outcomes = data["outcomes"]
    if not outcomes:
        return Ended(how=REFUSED_AT_START, text=done.stdout, figures={})
    (outcome,) = outcomes
    how = RECORDED if outcome["recorded"] else outcome["decision"]["verdict"]
    if how in PASSED and done.returncode != 0:
        how = f"{how}, but exit status {done.returncode}"
    return Ended(how=how, text=done.stdout, figures=_figures(outcome["runs"]))


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
    server = subprocess.Popen(
        [sys.executable, str(HERE / "believed_server.py"), "0", json.dumps(traits)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().split()[1]}"
    finally:
        server.kill()
        server.wait()


def _truth(url: str) -> dict[str, Any] | None:
    if url.endswith(":9"):
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/truth", timeout=10) as answer:
        truth: dict[str, Any] = json.load(answer)
        return truth


if __name__ == "__main__":
    sys.exit(main())
