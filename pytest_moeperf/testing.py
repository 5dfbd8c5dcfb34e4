"""For those who test a suite or a plugin on top of this one: a project on the simulated engine, and its output made
comparable.

::

    pytest_plugins = ["pytester"]

    def test_my_hook(pytester):
        suite = SimulatedSuite(pytester)
        result = suite.run("--update-baselines")
        assert "recorded" in result.text
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

QUICK_PROFILE = """\
name = "{name}"
runner = "{runner}"
[step]
a_ms = {step_ms}
b_ms = 0.05
prefill_ms_per_token = 0.001
max_running_requests = 64
[noise]
session_sd = 0.0
launch_sd = 0.0
run_sd = 0.0
step_sd = 0.0
step_ar1 = 0.0
run_gap_s = 60.0
[warmup]
runs = 0
factor = 1.0
compile_stall_ms = 0.0
[traces]
log = []
kernels = ["{kernel}"]
"""

PROFILES = {
    "fast": ("triton", "fused_moe_kernel", 5.0),
    "slow": ("flashinfer_cutlass", "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel", 10.0),
}
"""Backend of the suite -> the runner that it executes, a kernel of that, and how long its decode steps are in ms."""

QUICK_CONFIG = """\
engine = "simulated"
min_window = "50ms"
# A starved machine may be late by this much; these tests are about verdicts, not about small changes.
regression = "30%"
win = "25%"
proven = "5%"
"""

QUICK_TEST = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=32)
@pytest.mark.parametrize("concurrency", [1, 2])
def test_decode(moeperf, concurrency):
    moeperf.measure()
"""


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """One pytest run."""

    code: int
    text: str
    """Standard output and error, measured figures replaced by ``#`` (see ``without_figures``)."""
    raw: str

    @property
    def findings(self) -> str:
        """``text`` without what the host's mood adds: void runs that were repeated, pairs that agree by chance."""
        return re.sub(
            r"^  (Odd: |Caution: the (pairs|runs) differ by less).*\n(    .*\n)*", "", self.text, flags=re.MULTILINE
        )

    def section(self, start: str, end: str | None = None) -> str:
        """Of ``findings``: from the line that holds ``start`` to the one before ``end`` (to the end without it)."""
        lines = self.findings.splitlines()
        first = next(number for number, line in enumerate(lines) if start in line)
        last = len(lines)
        if end is not None:
            last = next(number for number in range(first + 1, last) if end in lines[number])
        return "\n".join(lines[first:last]).rstrip()


class SimulatedSuite:
    """A folder with a configuration, one test file and profiles ``fast`` and ``slow`` (half as fast)."""

    def __init__(self, pytester: pytest.Pytester, *, config: str = QUICK_CONFIG, test: str = QUICK_TEST) -> None:
        self.pytester = pytester
        pytester.makefile(".toml", moeperf=config + self._backends())
        pytester.makepyfile(test_serving=test)
        for name, (runner, kernel, step_ms) in PROFILES.items():
            profile = QUICK_PROFILE.format(name=name, runner=runner, kernel=kernel, step_ms=step_ms)
            (pytester.path / f"{name}_profile.toml").write_text(profile, encoding="utf-8")

    def _backends(self) -> str:
        folder = self.pytester.path
        return "".join(
            f'\n[backends.{name}]\nargs = ["--profile={folder}/{name}_profile.toml", "--moe-runner-backend={runner}"]\n'
            for name, (runner, _, _) in PROFILES.items()
        )

    def run(self, *arguments: str, backend: str = "fast", timeout_s: float = 240.0) -> SuiteResult:
        """``pytest -m perf --backend=BACKEND`` in a process of its own."""
        given = ("-m", "perf", f"--backend={backend}", *arguments)
        result = self.pytester.runpytest_subprocess(*given, timeout=timeout_s)
        raw = "\n".join([*result.outlines, *result.errlines])
        return SuiteResult(code=int(result.ret), text=without_figures(raw, str(self.pytester.path)), raw=raw)


_REPLACED: tuple[tuple[str, str], ...] = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"@[0-9a-f]{8}\.json", "@########.json"),
    (r"\b[0-9a-f]{32}\b", "<launch>"),
    (r"\b\d{8}-[0-9a-f]{8}\b", "<session>"),
    (r"[+-]\d+(\.\d+)? ?%", "+# %"),
    (r"\[[+-]?\d[^\]]*\]", "[#]"),
    (r"\b\d+(\.\d+)?k? (tok/s|ms|s|min)\b", r"# \2"),
    (r"\b\d+(\.\d+)?k? against ", "# against "),
    (r"\b\d+\.\d+\b", "#"),
    (r"pid \d+", "pid #"),
)


def without_figures(text: str, folder: str = "") -> str:
    """Replaces what differs from run to run: figures with a unit, changes, intervals, ids, ``folder``."""
    if folder:
        text = text.replace(folder, "<folder>")
    for pattern, replacement in _REPLACED:
        text = re.sub(pattern, replacement, text)
    return text
