"""Advice that is followed works: for each situation, every command that a failure names is run as it stands, and ends
where it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_moeperf.testing import QUICK_CONFIG, SimulatedSuite

DEADLINE_S = 240.0
UNFILLED = re.compile(r"\b(DIR|TIME|BACKEND|NAME|URL|TEXT|CELL)\b|\.\.\.")
WRAPPER = """\
#!/bin/sh
# The installation before: the same engine, as it was.
exec {python} "$@" --profile={profile}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One "Next" or "Or", as it was printed."""

    text: str
    lines: tuple[str, ...] = ()
    """To be written into a file."""
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    code: int
    raw: str

    @property
    def verdicts(self) -> list[str]:
        """Of the table's rows."""
        return re.findall(
            r"^(?:c=|  ?\w).*? ([A-Z]+(?:_[A-Z]+)+|EQUIVALENT|REGRESSION|INCONCLUSIVE|INVALID|INCOMPARABLE|recorded) ",
            self.raw + " ",
            re.MULTILINE,
        )

    @property
    def steps(self) -> list[Step]:
        """Of the only failure or remark."""
        found: list[list[str]] = []
        for line in self.raw.splitlines():
            if re.match(r"  (Next|Or)\b", line):
                found.append([line])
            elif found and line.startswith("    "):
                found[-1].append(line)
            elif found and found[-1][-1]:
                found[-1].append("")  # nothing that follows belongs to it
        return [_step([line for line in block if line]) for block in found]


def _step(block: Sequence[str]) -> Step:
    joined = "\n".join(block).replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    inline = re.match(r"(?:Next|Or)(?:: .*?)?: ((?:pytest|moeperf) .*)", lines[0])
    commands = [inline[1].partition("    (")[0]] if inline else []
    commands += [line for line in lines[1:] if line.startswith(("pytest ", "moeperf "))]
    files = tuple(line for line in lines if line.startswith(("[reference]", "python =", "@pytest.mark.")))
    assert len(commands) <= 1, block
    return Step(text=" ".join(lines), lines=files, command=" ".join(commands[0].split()) if commands else "")


class World:
    """A small suite, and a shell in its folder."""

    def __init__(self, pytester: pytest.Pytester, *, config: str = QUICK_CONFIG, concurrency: str = "1") -> None:
        self.suite = SimulatedSuite(pytester, config=f"launches = 1\n{config}")
        self.folder = pytester.path
        test = self.folder / "test_serving.py"
        test.write_text(test.read_text().replace("[1, 2]", f"[{concurrency}]"))

    def change(self, name: str, *replaced: tuple[str, str]) -> None:
        path = self.folder / name
        text = path.read_text()
        for old, new in replaced:
            assert old in text, (name, old)
            text = text.replace(old, new)
        path.write_text(text)

    def speed(self, backend: str, step_ms: float) -> None:
        """What an update of the engine does to a backend."""
        path = self.folder / f"{backend}_profile.toml"
        path.write_text(re.sub(r"a_ms = \S+", f"a_ms = {step_ms}", path.read_text()))

    def keep_installation(self, backend: str) -> Path:
        """The engine as it is now, to be launched beside what comes."""
        profile = self.folder / f"{backend}_before.toml"
        profile.write_text((self.folder / f"{backend}_profile.toml").read_text())
        wrapper = self.folder / "python-before"
        wrapper.write_text(WRAPPER.format(python=sys.executable, profile=profile))
        wrapper.chmod(0o755)
        return wrapper

    def run(self, command: str, *, folder: str = ".") -> Ran:
        """As pasted into a shell. Nothing is left to be filled in but a reason, which is words already."""
        assert not UNFILLED.search(command), command
        ended = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.folder / folder,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ran(code=ended.returncode, raw=f"{ended.stdout}{ended.stderr}")

    def perf(self, arguments: str = "", *, backend: str = "fast", folder: str = ".") -> Ran:
        return self.run(f"pytest -m perf --backend={backend} {arguments}", folder=folder)

    def follow(self, step: Step, *, before: Path | None = None, folder: str = ".") -> Ran:
        """Write what it says to write, then run what it says to run."""
        tables = [line.replace("/opt/sglang-before/bin/python", str(before)) for line in step.lines if "@" not in line]
        if tables:
            config = self.folder / "moeperf.toml"
            config.write_text("\n".join([config.read_text(), *tables, ""]))
        markers = [line for line in step.lines if line.startswith("@")]
        if markers:
            self.change("test_serving.py", ("@pytest.mark.perf", "\n".join([*markers, "@pytest.mark.perf"])))
        return self.run(step.command, folder=folder) if step.command else Ran(code=0, raw="")


@pytest.fixture
def world(pytester: pytest.Pytester) -> World:
    return World(pytester)


def names(steps: Sequence[Step]) -> list[str]:
    """What the steps come down to."""
    return [re.sub(r" (-q|-k \S+|--backend=\S+|--reason='why')", "", step.command) or step.text for step in steps]


def ended(ran: Ran, *verdicts: str, code: int | None = None) -> None:
    assert ran.verdicts == list(verdicts), ran.raw
    if code is not None:
        assert ran.code == code, ran.raw


def test_no_baseline(world: World) -> None:
    missing = world.perf()
    ended(missing, "NO_BASELINE", code=1)
    (record,) = missing.steps
    ended(world.follow(record), "recorded", code=0)
    ended(world.perf(), "EQUIVALENT", code=0)


def test_a_loss_against_its_own_baseline(world: World) -> None:
    world.perf("--update-baselines")
    world.speed("fast", 8)
    lost = world.perf()
    ended(lost, "REGRESSION", code=1)
    again, differs, accept = lost.steps
    ended(world.follow(again), "REGRESSION", code=1)
    told = world.follow(differs)
    assert told.code == 0, told.raw
    assert "simulated_profile" in told.raw
    assert world.follow(accept).code == 0
    ended(world.perf(), "EQUIVALENT", code=0)


def test_a_win_without_anything_to_launch_beside_it(world: World) -> None:
    world.perf("--update-baselines")
    before = world.keep_installation("fast")
    world.speed("fast", 3)
    won = world.perf()
    ended(won, "UNVERIFIED_WIN", code=1)
    (verify,) = won.steps
    assert verify.lines[0] == "[reference]"
    verified = world.follow(verify, before=before)
    ended(verified, "VERIFIED_WIN", code=0)
    (accept,) = verified.steps
    assert world.follow(accept).code == 0
    ended(world.perf(), "EQUIVALENT", code=0)


def test_a_win_that_was_to_be_recorded_at_once(world: World) -> None:
    world.perf("--update-baselines")
    before = world.keep_installation("fast")
    world.speed("fast", 3)
    refused = world.perf("--update-baselines --perf-reason='faster kernel'")
    ended(refused, "UNVERIFIED_WIN", code=1)
    (verify,) = refused.steps
    verified = world.follow(verify, before=before)
    ended(verified, "VERIFIED_WIN", code=0)
    (accept,) = verified.steps
    assert world.follow(accept).code == 0
    ended(world.perf(), "EQUIVALENT", code=0)


def test_a_loss_against_another_backend(world: World) -> None:
    world.speed("slow", 8)
    lost = world.perf("--perf-reference=fast", backend="slow")
    ended(lost, "REGRESSION", code=1)
    again, margin, own = lost.steps
    ended(world.follow(again), "REGRESSION", code=1)
    ended(world.follow(own), "recorded", code=0)
    ended(world.perf("--perf-reference=slow", backend="slow"), "EQUIVALENT", code=0)
    world.follow(margin)
    assert world.perf("--perf-reference=fast", backend="slow").code == 0


def test_a_lead_over_another_backend(world: World) -> None:
    world.speed("slow", 8)
    won = world.perf("--perf-reference=slow")
    ended(won, "UNVERIFIED_WIN", code=1)
    (verify,) = won.steps
    verified = world.follow(verify)
    ended(verified, "VERIFIED_WIN", code=0)
    margin, own = verified.steps
    ended(world.follow(own), "recorded", code=0)
    ended(world.perf("--perf-reference=fast"), "EQUIVALENT", code=0)
    world.follow(margin)
    assert world.perf("--perf-reference=slow").code == 0
