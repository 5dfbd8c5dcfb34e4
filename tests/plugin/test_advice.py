"""Advice that is followed works: for each situation, every command that a failure names is run as it stands, and ends
where it promises."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.testing import QUICK_CONFIG, SimulatedSuite

pytestmark = pytest.mark.timeout(900)  # a situation takes up to twenty launches

DEADLINE_S = 240.0
VERDICTS = {*map(str, Verdict), "recorded"}
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
        """Of the table's rows, those of further bounds left out."""
        rows = [line for line in self.raw.splitlines() if re.match(r"c=\d", line)]
        return [word for row in rows for word in row.split() if word in VERDICTS]

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
            test = self.folder / "test_serving.py"
            plain = re.sub(r"^@pytest\.mark\.(throughput|tpot).*\n", "", test.read_text(), flags=re.MULTILINE)
            test.write_text(plain.replace("@pytest.mark.perf", "\n".join([*markers, "@pytest.mark.perf"])))
        return self.run(step.command, folder=folder) if step.command else Ran(code=0, raw="")


@pytest.fixture
def world(pytester: pytest.Pytester) -> World:
    return World(pytester)


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
    refused = world.perf("--update-baselines --perf-reason='faster kernel'")
    ended(refused, "UNVERIFIED_WIN", code=1)
    (verify,) = refused.steps
    assert verify.lines[0] == "[reference]"
    assert "--update-baselines" not in verify.command, "what records does not verify"
    assert world.perf().steps[0].text.replace(" --update-baselines", "") == verify.text
    verified = world.follow(verify, before=before)
    ended(verified, "VERIFIED_WIN", code=0)
    (accept,) = verified.steps
    accepted = world.follow(accept)
    assert accepted.code == 0, accepted.raw
    ended(world.perf(), "EQUIVALENT", code=0)


def test_a_loss_against_another_backend(world: World) -> None:
    world.speed("slow", 8)
    lost = world.perf("--perf-reference=fast", backend="slow")
    ended(lost, "REGRESSION", code=1)
    again, own = lost.steps
    ended(world.follow(again), "REGRESSION", code=1)
    ended(world.follow(own), "recorded", code=0)
    ended(world.perf("--perf-reference=slow", backend="slow"), "EQUIVALENT", code=0)


def test_a_lead_over_another_backend(world: World) -> None:
    world.speed("slow", 8)
    world.perf("--update-baselines", backend="slow")
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


def test_other_conditions(world: World) -> None:
    world.perf("--update-baselines")
    world.change("test_serving.py", ("output_len=32", "output_len=32, num_prompts=10"))
    other = world.perf()
    ended(other, "INCOMPARABLE", code=1)
    back, _, record = other.steps
    ended(world.follow(record), "recorded", code=0)
    ended(world.perf(), "EQUIVALENT", code=0)
    world.change("test_serving.py", (", num_prompts=10", ""))
    ended(world.follow(back), "EQUIVALENT", code=0)


def test_other_conditions_head_to_head(world: World) -> None:
    world.perf("--update-baselines")
    world.change("test_serving.py", ("output_len=32", "output_len=32, num_prompts=10"))
    _, beside, _ = world.perf().steps
    ended(world.follow(beside, before=world.keep_installation("fast")), "EQUIVALENT", code=0)


def test_one_launch_that_leaves_it_open(pytester: pytest.Pytester) -> None:
    world = World(pytester, config=f'{QUICK_CONFIG}assumed_session_sd = "25%"\n')
    world.speed("slow", 5)
    world.perf("--update-baselines", backend="slow")
    looked = world.perf("--perf-reference=slow --perf-mode=screen")
    ended(looked, "NO_CHANGE_SEEN", code=0)
    (confirm,) = looked.steps
    ended(world.follow(confirm), "EQUIVALENT", code=0)


def test_one_launch_and_nothing_stored_of_the_other_backend(world: World) -> None:
    world.speed("slow", 5)
    unstored = world.perf("--perf-reference=fast --perf-mode=screen", backend="slow")
    ended(unstored, "NO_BASELINE", code=1)
    confirm, record = unstored.steps
    assert "--backend=fast --update-baselines" in record.text
    ended(world.follow(confirm), "EQUIVALENT", code=0)


def test_sessions_that_leave_it_open(pytester: pytest.Pytester) -> None:
    world = World(pytester, config=f'{QUICK_CONFIG}assumed_session_sd = "25%"\n')
    world.perf("--update-baselines")
    undecided = world.perf()
    ended(undecided, "INCONCLUSIVE", code=1)
    beside, record, *_, audit = undecided.steps
    ended(world.follow(record), "recorded", code=0)
    assert world.follow(audit).code in {0, 1}, "0: nothing was found; 1: something was"
    ended(world.follow(beside, before=world.keep_installation("fast")), "EQUIVALENT", code=0)


def test_a_budget_that_ran_out(world: World) -> None:
    world.perf("--update-baselines")
    undecided = world.perf("--perf-budget=1ms")
    ended(undecided, "INCONCLUSIVE", code=1)
    enough, beside, audit = undecided.steps
    assert audit.command == "moeperf audit"
    assert beside.lines
    ended(world.follow(enough), "EQUIVALENT", code=0)


def test_a_limit_of_the_tests_own(world: World) -> None:
    world.change("test_serving.py", ("@pytest.mark.perf", "@pytest.mark.tpot(at_most_ms=2)\n@pytest.mark.perf"))
    world.perf("--update-baselines")
    beyond = world.perf()
    ended(beyond, "REGRESSION", code=1)
    again, differs, limit = beyond.steps
    ended(world.follow(again), "REGRESSION", code=1)
    assert world.follow(differs).code == 0
    world.follow(limit)
    ended(world.perf(), "EQUIVALENT", code=0)


def test_runs_that_cannot_be_trusted(world: World) -> None:
    world.perf("--update-baselines")
    world.change("moeperf.toml", ('min_window = "50ms"', 'min_window = "10min"'))
    void = world.perf()
    ended(void, "INVALID", code=1)
    (again,) = void.steps
    world.change("moeperf.toml", ('min_window = "10min"', 'min_window = "50ms"'))
    ended(world.follow(again), "EQUIVALENT", code=0)


def test_from_another_folder(world: World) -> None:
    """Where the configuration is not above the folder that pytest is started in, commands say where things are."""
    above = f"../{world.folder.name}"
    (world.folder / "elsewhere").mkdir()
    world.perf("--update-baselines")
    world.speed("fast", 8)
    lost = world.perf(f"--perf-report=perf-report ../../{above[3:]}", folder="elsewhere")
    ended(lost, "REGRESSION", code=1)
    assert (world.folder / "elsewhere/perf-report/comment.md").is_file(), "as the command line says"
    *_, accept = lost.steps
    assert "--from=perf-report" in accept.command
    accepted = world.follow(accept, folder="elsewhere")
    assert accepted.code == 0, accepted.raw
    ended(world.perf(), "EQUIVALENT", code=0)
    assert (world.folder / ".moeperf/last/moeperf.json").is_file()


@contextlib.contextmanager
def served(world: World) -> Iterator[str]:
    """The address of a server that nobody here launched."""
    log = world.folder / "server.log"
    command = [sys.executable, "-m", "pytest_moeperf.engines.simulated", "--port=0"]
    command.append(f"--profile={world.folder}/fast_profile.toml")
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        end_s = time.monotonic() + DEADLINE_S
        while (found := re.search(r"running on (http://[^:]+:\d+)", log.read_text())) is None:
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.05)
        yield found[1]
    finally:
        child.kill()
        child.wait(DEADLINE_S)


def slow_down(url: str, seconds: float) -> None:
    """What an update of the engine undoes."""
    body = json.dumps({"forward_sleep_time": seconds}).encode()
    request = urllib.request.Request(f"{url}/slow_down", data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    urllib.request.urlopen(request, timeout=DEADLINE_S).close()  # noqa: S310


def test_a_server_that_was_up_already(world: World) -> None:
    config = world.folder / "moeperf.toml"
    config.write_text(f'{config.read_text()}\n[attach]\nhardware = "this machine"\n')
    with served(world) as url:
        attached = f"pytest -m perf --perf-attach={url}"
        slow_down(url, 0.003)
        ended(world.run(f"{attached} --update-baselines"), "recorded", code=0)
        slow_down(url, 0.0)
        won = world.run(attached)
        ended(won, "UNVERIFIED_WIN", code=1)
        assert not [step for step in won.steps if "reference" in step.text]
        again, margin = won.steps
        ended(world.follow(again), "UNVERIFIED_WIN", code=1)
        world.follow(margin)
        assert world.run(attached).code == 0
