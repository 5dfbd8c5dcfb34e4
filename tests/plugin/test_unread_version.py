"""An engine of a version that nobody read for the evidence rules is told so at the top of the run."""

from __future__ import annotations

import pytest

CONFIG = """\
engine = "sglang"
model = "some/hub-name"
[server]
python = "engine"
args = ["--device=cpu"]
"""
TEST = """\
import pytest

@pytest.mark.perf(concurrency=1)
def test_decode(moeperf):
    moeperf.measure()
"""
FLAGS = '{"--moe-runner-backend": ["auto", "triton"], "--device": []}'


@pytest.mark.parametrize(("version", "told"), [("0.6.0", True), ("0.5.20", False)])
def test_a_claim_stays_a_claim_and_the_header_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, version: str, told: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    engine = pytester.path / "engine"
    engine.write_text(f"#!/bin/sh\ncase \"$2\" in *m.version*) echo {version};; *) echo '{FLAGS}';; esac\n")
    engine.chmod(0o755)
    pytester.makepyfile(TEST)
    (pytester.path / "moeperf.toml").write_text(CONFIG)
    result = pytester.runpytest_subprocess("-m", "perf", "--backend=triton", "--perf-plan")
    lines = [line for line in result.outlines if line.startswith("moeperf: sglang ")]
    text = (
        f"moeperf: sglang {version}: the evidence rules were read in 0.5.14 to 0.5.23; here only lines that name the "
        "runner in their own words prove which one ran, a flag stays a claim (--perf-profile settles it in any version)"
    )
    # At the top, and again under a plan or a table.
    assert lines == ([text, text] if told else [])
    assert "collecting" not in "\n".join(result.outlines[: result.outlines.index(text)] if told else [])
