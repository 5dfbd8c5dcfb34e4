"""Options: every source, precedence, provenance, and the whole text of every refusal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options.declared import OPTIONS
from pytest_moeperf.options.files import files_below, find_file, start_folders
from pytest_moeperf.options.resolve import Given, resolve
from pytest_moeperf.options.values import as_url
from pytest_moeperf.options.variables import told_unknown
from pytest_moeperf.servers.proctree import GUARDIAN_VARIABLE, LAUNCH_VARIABLE
from pytest_moeperf.servers.runtime import LOCKS_VARIABLE, RUNTIME_VARIABLE

FILE = Path("/suite/moeperf.toml")


def settings(
    table: dict[str, Any] | None = None,
    *,
    environ: dict[str, str] | None = None,
    active: bool = True,
    **flags: Any,
) -> Settings:
    given = Given(
        file=FILE if table is not None else None,
        table=table or {},
        environ=environ or {},
        namespace={f"moeperf_{name}": value for name, value in flags.items()},
    )
    return resolve(given, root=Path("/suite"), active=active)


def refusal(table: dict[str, Any] | None = None, **more: Any) -> str:
    with pytest.raises(UsageProblem) as caught:
        settings(table, **more)
    return str(caught.value)


def test_defaults_are_named_as_defaults() -> None:
    resolved = settings()
    assert resolved.engine == "simulated"
    assert resolved.gate.regression == 0.05
    assert set(resolved.provenance.values()) == {"default"}
    assert len(resolved.provenance) == len(OPTIONS)


def test_command_line_beats_environment_beats_file() -> None:
    table = {"mode": "screen", "budget": "10min", "launches": 3}
    environ = {"MOEPERF_BUDGET": "20min", "MOEPERF_LAUNCHES": "4"}
    resolved = settings(table, environ=environ, gate_record_launches=5)
    assert resolved.gate.mode == "screen"
    assert resolved.gate.budget_s == 1200
    assert resolved.gate.record_launches == 5
    assert resolved.provenance["gate.mode"] == f"file {FILE}"
    assert resolved.provenance["gate.budget_s"] == "environment MOEPERF_BUDGET"
    assert resolved.provenance["gate.record_launches"] == "command line"


def test_a_backend_table_adds_to_the_table_of_every_backend() -> None:
    resolved = settings(
        {
            "engine": "sglang",
            "server": {"python": "/opt/python", "args": ["--a"], "env": {"X": "1"}, "start_timeout": "60min"},
            "backends": {"cutedsl": {"args": ["--b"], "env": {"Y": "2"}}},
        }
    )
    server = resolved.server_for("cutedsl")
    assert server.python == "/opt/python"
    assert server.args == ("--a", "--b")
    assert server.own_args == ("--b",)
    assert server.env == {"X": "1", "Y": "2"}
    assert server.start_timeout_s == 3600
    assert resolved.server_for("other") == resolved.server


def test_reference_may_be_a_name_or_a_table() -> None:
    assert settings({"reference": "triton"}).reference == "triton"
    tables = {"triton": {"args": ["--t"]}, "cutedsl": {"args": ["--c"], "env": {"Y": "2"}}}
    table = {"reference": {"backend": "triton", "python": "/old/python"}, "backends": tables}
    resolved = settings(table, backends=("cutedsl",))
    assert resolved.reference == "triton"
    against = resolved.reference_servers["cutedsl"]
    assert (against.python, against.args, against.own_args) == ("/old/python", ("--t",), ("--t",))


def test_the_reference_of_a_backend_is_launched_as_the_backend_is_but_for_the_table() -> None:
    tables = {"triton": {"args": ["--t"]}, "cutedsl": {"args": ["--c"], "env": {"Y": "2"}}}
    table = {"server": {"args": ["--a"]}, "reference": {"python": "/old/python", "args": ["--r"]}, "backends": tables}
    resolved = settings(table, backends=("cutedsl", "triton", "other"))
    assert {
        name: (server.python, server.args, server.own_args, server.env)
        for name, server in resolved.reference_servers.items()
    } == {
        "cutedsl": ("/old/python", ("--a", "--c", "--r"), ("--c", "--r"), {"Y": "2"}),
        "triton": ("/old/python", ("--a", "--t", "--r"), ("--t", "--r"), {}),
        "other": ("/old/python", ("--a", "--r"), ("--r",), {}),
    }


def test_a_bad_key_in_the_reference_table_is_refused_with_and_without_a_backend() -> None:
    text = "/suite/moeperf.toml [tool.moeperf.reference]: unknown key 'pyhton'\n  allowed: args, env, python, start_timeout"
    for flags in ({}, {"backends": ("triton",)}):
        assert refusal({"reference": {"pyhton": "/old/python"}}, **flags) == text


def test_attaching_chooses_the_engine_and_names_a_backend() -> None:
    resolved = settings(attach_url="http://127.0.0.1:30000")
    assert resolved.engine == "attached"
    assert resolved.provenance["engine"] == "command line"
    assert resolved.backends == ("attached",)


def test_what_is_said_last_decides_between_a_running_server_and_an_engine() -> None:
    """README's own file has an engine; the server that is attached is not launched by it."""
    file = {"engine": "sglang", "model": "m", "reference": "triton", "server": {"args": ["--a"]}}
    resolved = settings(file, attach_url="http://127.0.0.1:30000")
    assert (resolved.engine, resolved.backends, resolved.reference) == ("attached", ("attached",), "")
    by_variable = settings(file, environ={"MOEPERF_ATTACH": "http://127.0.0.1:30000/v1/"})
    assert (by_variable.engine, by_variable.attach_url) == ("attached", "http://127.0.0.1:30000")
    launched = settings({"attach": "http://127.0.0.1:30000"}, engine="simulated", backends=("triton",))
    assert (launched.engine, launched.attach_url) == ("simulated", "")
    named = settings(file, attach_url="http://127.0.0.1:30000", backends=("new",))
    assert (named.backends, named.reference) == (("new",), "triton")


def test_what_the_user_states_of_an_attached_server() -> None:
    table = {"url": "http://127.0.0.1:30000", "hardware": "8x H200", "engine": "vllm"}
    resolved = settings({"attach": table}, environ={"MOEPERF_ATTACH_HARDWARE": "4x H200"})
    assert (resolved.engine, resolved.attach_url) == ("attached", "http://127.0.0.1:30000")
    assert (resolved.attach_hardware, resolved.attach_engine) == ("4x H200", "vllm")
    assert settings({"attach": {"hardware": "8x H200"}}).engine == "simulated"
    assert "unknown key 'attach.hardwear'" in refusal({"attach": {"hardwear": "8x H200"}})


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_a_base_url_as_clients_of_openai_want_it(url: str) -> None:
    assert settings({"attach": url}).attach_url == "http://h:1"
    assert settings({"attach": url.replace("h:1", "h:1/prefix")}).attach_url == "http://h:1/prefix"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            {"engin": "sglang"},
            (
                "/suite/moeperf.toml [tool.moeperf]: unknown key 'engin'\n  allowed: assumed_launch_sd, assumed_session_sd,"
                " attach, attach.args, attach.engine, attach.hardware, attach.log, attach.model, attach.version, backends, baselines, budget, devices, engine, hosts, inconclusive, keep_server, launcher, launches,"
                " max_drift, min_window, mode, model, nnodes, profile, proven, reference, regression, rendezvous, report, request_timeout,"
                " runs, seed, server, strict_evidence, tensor_parallel, verify_wins, win"
            ),
        ),
        (
            {"engine": "vllm"},
            (
                "/suite/moeperf.toml [tool.moeperf] engine: 'vllm' is not one of simulated, sglang, attached\n"
                "  next: mend the value; nothing was started"
            ),
        ),
        (
            {"regression": 5},
            (
                "/suite/moeperf.toml [tool.moeperf] regression: 5 is not a percentage such as '5%'\n"
                "  next: mend the value; nothing was started"
            ),
        ),
        (
            {"tensor_parallel": 0},
            (
                "/suite/moeperf.toml [tool.moeperf] tensor_parallel: 0 is not a whole number of at least 1\n"
                "  next: mend the value; nothing was started"
            ),
        ),
        (
            {"server": "x"},
            "/suite/moeperf.toml [tool.moeperf] server: 'x' is not a table\n  allowed: [tool.moeperf.server]",
        ),
        (
            {"backends": {"t": {"arg": []}}},
            (
                "/suite/moeperf.toml [tool.moeperf.backends.t]: unknown key 'arg'\n"
                "  allowed: args, env, python, start_timeout"
            ),
        ),
        (
            {"server": {"args": "--x --y"}},
            "/suite/moeperf.toml [tool.moeperf.server] args: '--x --y' is not a list of strings, one an argument",
        ),
        (
            {"proven": "6%"},
            (
                "[tool.moeperf] proven: d0 = 0.06 is not below regression = 0.05\n"
                "  allowed: proven < regression: a change between the two may be called either way"
            ),
        ),
    ],
)
def test_a_bad_file_names_the_key_the_value_and_what_is_allowed(table: dict[str, Any], text: str) -> None:
    assert refusal(table) == text


def test_every_option_has_a_variable_of_its_own() -> None:
    assert len({option.env for option in OPTIONS}) == len(OPTIONS)
    environ = {"MOEPERF_MODEL": "other-moe", "MOEPERF_TENSOR_PARALLEL": "2", "MOEPERF_REGRESSION": "4%"}
    resolved = settings({"engine": "sglang", "model": "moe", "tensor_parallel": 8}, environ=environ)
    assert (resolved.model, resolved.tensor_parallel, resolved.gate.regression) == ("other-moe", 2, 0.04)
    assert resolved.provenance["model"] == "environment MOEPERF_MODEL"


def test_a_variable_that_sets_nothing_is_told() -> None:
    ours = [RUNTIME_VARIABLE, LOCKS_VARIABLE, LAUNCH_VARIABLE, GUARDIAN_VARIABLE, "MOEPERF_API_KEY"]
    assert told_unknown([*ours, *(option.env for option in OPTIONS), "PATH", "OTHER_MOEPERF_MODEL"]) == []
    assert told_unknown(["MOEPERF_TENSOR_PARALEL", "MOEPERF_KERNELS"]) == [
        "MOEPERF_KERNELS is set, but there is no such option",
        "MOEPERF_TENSOR_PARALEL is set, but there is no such option (is MOEPERF_TENSOR_PARALLEL meant?)",
    ]


def test_a_bad_environment_variable_is_named() -> None:
    assert refusal(environ={"MOEPERF_BUDGET": "soon"}) == (
        "MOEPERF_BUDGET: 'soon' is not a duration such as '90s', '30min' or '1h30min'\n"
        "  next: mend the value; nothing was started"
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            {"engine": "sglang", "attach_url": "http://h:1"},
            (
                "--perf-attach and --perf-engine (command line): a running server is attached, but the engine is "
                "'sglang'\n  allowed: one of the two: an attached server says itself what engine it is"
            ),
        ),
        (
            {"engine": "attached"},
            "--perf-engine: 'attached' needs to know the server\n  next: add --perf-attach=http://HOST:PORT",
        ),
        (
            {"reason": "new kernel"},
            "--perf-reason: there is nothing to explain\n  next: use it with --update-baselines or --perf-verify-wins",
        ),
        (
            {"update_baselines": True, "active": False},
            (
                "--update-baselines: performance tests are not selected, so it would do nothing\n"
                "  next: add -m perf or --backend=NAME"
            ),
        ),
    ],
)
def test_contradictions_are_refused(flags: dict[str, Any], text: str) -> None:
    assert refusal(**flags) == text


def test_the_nearest_configuration_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.moeperf]\nengine = "sglang"\n')
    suite = tmp_path / "examples" / "suite"
    suite.mkdir(parents=True)
    assert find_file(suite, tmp_path) == (tmp_path / "pyproject.toml", {"engine": "sglang"})
    (tmp_path / "examples" / "moeperf.toml").write_text('engine = "simulated"\n')
    assert find_file(suite, tmp_path) == (tmp_path / "examples" / "moeperf.toml", {"engine": "simulated"})


def test_a_pyproject_without_our_table_is_not_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert find_file(tmp_path, tmp_path) == (None, {})


def test_a_file_that_is_not_toml_says_where(tmp_path: Path) -> None:
    (tmp_path / "moeperf.toml").write_text("engine = \n")
    with pytest.raises(UsageProblem) as caught:
        find_file(tmp_path, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/moeperf.toml: is not valid TOML: Invalid value (at line 1, column 10)\n"
        "  next: mend that line; nothing was started"
    )


def test_a_file_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    (tmp_path / "moeperf.toml").write_bytes('model = "caf\xe9"\n'.encode("latin-1"))
    with pytest.raises(UsageProblem) as caught:
        find_file(tmp_path, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/moeperf.toml: is not UTF-8 text (byte 12)\n  next: save it as UTF-8; nothing was started"
    )


def test_the_configuration_may_lie_above_pytests_root(tmp_path: Path) -> None:
    tests = tmp_path / "project" / "tests"
    tests.mkdir(parents=True)
    (tmp_path / "moeperf.toml").write_text('engine = "sglang"\n')
    assert find_file(tests, tests.parent) == (tmp_path / "moeperf.toml", {"engine": "sglang"})
    if os.geteuid() == 0:
        os.chown(tmp_path / "moeperf.toml", 12345, -1)
        assert find_file(tests, tests.parent) == (None, {}), "another user's"
        os.chown(tests.parent, 12345, -1)
        assert find_file(tests, tests.parent)[0] is not None, "the project's owner's"


def test_configurations_below_are_found_where_tests_are_looked_for(tmp_path: Path) -> None:
    for name in ("a", "a/nested", "b/c", "node_modules/x", ".hidden", "venv"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "moeperf.toml").touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "b" / "pyproject.toml").write_text("[tool.ruff]\n")
    own = tmp_path / "venv" / "moeperf.toml"
    own.unlink()
    found = files_below([tmp_path], ignored=["node_modules", ".*"])
    assert found == [tmp_path / "a" / "moeperf.toml", tmp_path / "b" / "c" / "moeperf.toml"]


def test_the_start_folders_are_those_of_the_arguments(tmp_path: Path) -> None:
    for name in ("a/x", "a/y"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/x/test_x.py").touch()
    assert start_folders(["a/x/test_x.py::test_y", "a/y"], tmp_path) == [tmp_path / "a/x", tmp_path / "a/y"]
    assert start_folders(["missing"], tmp_path) == [tmp_path]


def test_an_empty_variable_is_unset() -> None:
    assert settings(environ={"MOEPERF_ENGINE": "", "MOEPERF_BUDGET": ""}).engine_is_assumed


@pytest.mark.parametrize("table", [{"model": "/models/glm"}, {"tensor_parallel": 8}, {"server": {"python": "/x"}}])
def test_the_simulated_engine_is_not_assumed_for_a_real_servers_settings(table: dict[str, Any]) -> None:
    text = refusal(table)
    assert text.startswith("[tool.moeperf] engine: ")
    assert "is set, but no engine: the simulated one would be measured" in text
    assert settings({**table, "engine": "simulated"}).engine == "simulated"


@pytest.mark.parametrize("url", ["http://me:planted-pw@h:1", "https://planted-pw@h/v1", "me:planted-pw@h:1"])
def test_a_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    said = "a URL with a user or a password in it (user:password@) is not taken: the key of a server goes into MOEPERF_API_KEY"
    expected = f"MOEPERF_ATTACH: {said}\n  next: mend the value; nothing was started"
    assert refusal(environ={"MOEPERF_ATTACH": url}) == expected
    for table in ({"attach": url}, {"attach": {"url": url}}):
        assert "is not taken" in refusal(table)
        assert "planted" not in refusal(table)
    with pytest.raises(ValueError, match="is not taken"):
        as_url(url)


def test_a_password_in_an_argument_is_refused_and_not_shown() -> None:
    text = refusal({"engine": "simulated", "server": {"args": ["--trace=x", "--to=http://me:planted-pw@h:1"]}})
    assert "every user of this machine can read a command, not so [server.env]" in text
    assert "planted" not in text


def test_a_variable_that_is_no_string_is_named_without_the_others() -> None:
    text = refusal({"engine": "simulated", "server": {"env": {"A": "planted", "B": 1}}})
    assert text == "/suite/moeperf.toml [tool.moeperf.server] env: not a string: B"
