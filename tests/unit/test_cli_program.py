"""The program around the commands: help, version, errors, exit codes, what it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import cell, moeperf, record

from pytest_moeperf import __version__
from pytest_moeperf.baselines.importers import FORMATS
from pytest_moeperf.cli.importing import FORMATS as NAMED_FORMATS

COMMANDS = (
    "show",
    "diff",
    "accept",
    "report",
    "import",
    "audit",
    "ceiling",
    "selftest",
    "rehearse",
    "servers",
    "simulate",
)


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_help_lists_every_command_within_80_columns() -> None:
    ran = moeperf("--help")
    assert ran.code == 0
    listed = [line.split()[0] for line in ran.out.splitlines() if line.startswith("    ")]
    assert tuple(listed) == COMMANDS
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "exit codes: 0 done, 1 the answer is no" in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(command: str) -> None:
    ran = moeperf(command, "--help")
    assert ran.code == 0
    description, _, example = ran.out.rpartition("example:\n")
    assert any(line.startswith(f"  moeperf {command}") for line in example.splitlines())
    assert max(map(len, description.splitlines())) <= 80
    # Sentences of its own between the usage and the options.
    assert len(description.split("\n\n")[1]) > 60


def test_version() -> None:
    assert moeperf("--version").out == f"moeperf {__version__}\n"


def test_importing_names_all_forms_that_are_read() -> None:
    assert NAMED_FORMATS == FORMATS


def test_no_command_is_a_usage_error() -> None:
    ran = moeperf()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("moeperf: error: the following arguments are required: COMMAND\n")


def test_an_unknown_option_is_a_usage_error_but_for_simulate() -> None:
    ran = moeperf("audit", "--fix")
    assert ran.code == 2
    assert ran.err.endswith("moeperf: error: audit: unrecognized arguments: --fix\n")


def test_a_shortened_option_is_refused() -> None:
    assert moeperf("audit", "--js").code == 2


def test_an_error_goes_to_stderr_with_exit_code_2() -> None:
    Path("moeperf.toml").write_text('engine = "vllm"\n')
    ran = moeperf("show")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"moeperf show: {Path.cwd() / 'moeperf.toml'} [tool.moeperf] engine: 'vllm' is not one of simulated, sglang, attached\n"
        "  next: mend the value; nothing was started\n"
    )


def test_a_negative_change_is_a_value_not_an_option() -> None:
    ran = moeperf("rehearse", "--change", "-150%")
    assert ran.code == 2
    assert "argument --change: '-150%' is not a list of changes above -100% such as -5%,+10%" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rehearse", "--trials=0"), "'0' is not a whole number of at least 1"),
        (("rehearse", "--session-sd=0.5"), "'0.5' is not a percentage such as '5%'"),
        (("rehearse", "--budget=30"), "'30' is not a duration such as '90s', '30min' or '1h30min'"),
        (("ceiling", "--concurrency=1,x"), "'x' is not a whole number of at least 1"),
        (("import", "f", "--request-rate=nan"), "'nan' is not a number above 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(arguments: tuple[str, ...], message: str) -> None:
    ran = moeperf(*arguments)
    assert ran.code == 2
    assert message in ran.err


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from pytest_moeperf.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'numpy', 'scipy', 'pytest', '_pytest', 'msgspec', 'filelock', 'psutil', 'starlette', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_do_their_work_without_pytest() -> None:
    record(Path("baselines"), cell(), days=[1])
    script = (
        "import sys\n"
        "from pytest_moeperf.cli import main\n"
        "assert main(['show', 'triton']) == 0\n"
        "print('pytest' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_reader_that_has_had_enough_sees_no_traceback() -> None:
    for concurrency in (1, 10, 64):
        record(Path("baselines"), cell(concurrency), days=[1])
    program = [sys.executable, "-m", "pytest_moeperf.cli", "show", "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 2
