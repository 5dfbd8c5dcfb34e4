"""The SGLang command, and what is refused before it runs. A small script stands for the engine's interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_moeperf.engines.sglang import KEY_IN_COMMAND, SglangEngine, on_cpu
from pytest_moeperf.engines.sglang_flags import installed_sglang, option_of
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.outgoing.key import ApiKey

FLAGS = {
    "--moe-runner-backend": ["auto", "triton", "flashinfer_cutlass"],
    "--tp-size": [],
    "--quantization": [],
    "--disable-radix-cache": [],
    "--cuda-graph-backend-prefill": ["full", "disabled"],
}


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Answers the two questions that are put to an interpreter, and counts them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "python"
    script.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\n"
        f"case \"$2\" in *importlib.metadata*) echo 0.5.14;; *) printf 'noise\\n%s\\n' '{json.dumps(FLAGS)}';; esac\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "moe"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def spec(**changes: object) -> ServerSpec:
    values: dict[str, object] = {"engine": "sglang", "backend": "triton"}
    return ServerSpec(**(values | changes))  # type: ignore[arg-type]


def refusal(checked: ServerSpec) -> str:
    with pytest.raises(UsageProblem) as caught:
        SglangEngine().check(checked)
    return str(caught.value)


def test_the_backend_is_implied_and_the_users_arguments_come_last(python: str, model: str) -> None:
    plan = SglangEngine().launch_plan(
        spec(python=python, model=model, tensor_parallel=8, args=("--quantization=modelopt_fp4",)),
        devices=("GPU-1",),
        session="s",
        launch="l",
    )
    assert plan.command == (
        *(python, "-m", "sglang.launch_server", "--model-path", model, "--host", "127.0.0.1", "--port", "{port}"),
        *("--tp-size", "8", "--moe-runner-backend=triton", "--enable-metrics", "--config", "{key_file}"),
        "--quantization=modelopt_fp4",
    )
    assert plan.devices == ("GPU-1",)
    assert plan.name == "triton (sglang, TP8)"


def test_what_the_user_says_is_not_said_twice(python: str, model: str) -> None:
    arguments = ("--moe-runner-backend=flashinfer_cutlass", "--enable-metrics")
    plan = SglangEngine().launch_plan(
        spec(python=python, model=model, args=arguments), devices=(), session="s", launch="l"
    )
    assert [part for part in plan.command if "moe-runner" in part] == ["--moe-runner-backend=flashinfer_cutlass"]
    assert plan.command.count("--enable-metrics") == 1


@pytest.mark.parametrize("arguments", [("--api-key=mine",), ("--api-key", "mine")])
def test_the_users_own_key_stands_in_no_command(python: str, model: str, arguments: tuple[str, ...]) -> None:
    plan = SglangEngine().launch_plan(
        spec(python=python, model=model, args=("--mem-fraction-static=0.5", *arguments, "--disable-radix-cache")),
        devices=(),
        session="s",
        launch="l",
    )
    assert plan.command[-4:] == ("--config", "{key_file}", "--mem-fraction-static=0.5", "--disable-radix-cache")
    assert "mine" not in " ".join(plan.command)
    assert plan.api_key == ApiKey("mine")
    assert plan.key_file == 'api-key: "{api_key}"\n'


@pytest.mark.parametrize("arguments", [("--config", "mine.yaml"), ("--api-key=-dash",), ("--api-key=a'b",)])
def test_a_key_that_fits_into_no_file_is_in_the_command_and_that_is_told(
    python: str, model: str, arguments: tuple[str, ...]
) -> None:
    own = spec(python=python, model=model, args=arguments)
    plan = SglangEngine().launch_plan(own, devices=(), session="s", launch="l")
    assert "--api-key={api_key}" in plan.command
    assert plan.key_file == ""
    assert SglangEngine().notes(own) == (KEY_IN_COMMAND,)


def test_every_launch_has_a_key_of_its_own(python: str, model: str) -> None:
    keys = {
        SglangEngine().launch_plan(spec(python=python, model=model), devices=(), session="s", launch=name).api_key
        for name in ("one", "two")
    }
    assert len(keys) == 2
    assert all(key is not None and len(key.reveal()) >= 32 for key in keys)


def test_the_flags_are_asked_once_a_version(python: str, tmp_path: Path) -> None:
    first = installed_sglang(python)
    second = installed_sglang(python)
    assert first == second
    assert first.version == "0.5.14"
    assert first.flags["--moe-runner-backend"] == ("auto", "triton", "flashinfer_cutlass")
    # Version and flags the first time, the version alone the second.
    assert (tmp_path / "asked").read_text().count("asked") == 3


def test_an_edited_checkout_is_asked_again_though_its_version_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    srt = tmp_path / "checkout" / "sglang" / "srt"
    srt.mkdir(parents=True)
    (srt.parent / "__init__.py").touch()
    (srt / "__init__.py").touch()
    source = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--moe-runner-backend", choices=[CHOICES])
"""
    env = {"PYTHONPATH": str(srt.parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    (srt / "server_args.py").write_text(source.replace("CHOICES", "'auto', 'triton'"))
    first = installed_sglang(sys.executable, env=env)
    assert first.flags["--moe-runner-backend"] == ("auto", "triton")
    (srt / "server_args.py").write_text(source.replace("CHOICES", "'auto', 'triton', 'my_new_runner'"))
    second = installed_sglang(sys.executable, env=env)
    assert second.flags["--moe-runner-backend"] == ("auto", "triton", "my_new_runner")
    assert first.version == second.version


def test_a_good_spec_passes(python: str, model: str) -> None:
    SglangEngine().check(spec(python=python, model=model, args=("--disable-radix-cache",)))


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--port=31000", "none: each launch gets a free port"),
        ("--host", "none: each launch gets a free port"),
        ("--tp=2", "tensor_parallel = N"),
        ("--model-path=x", 'model = "..."'),
        ("--nnodes=2", "nnodes, launcher, hosts"),
    ],
)
def test_a_flag_that_the_launcher_sets_names_the_key(python: str, model: str, flag: str, key: str) -> None:
    text = refusal(spec(python=python, model=model, args=("--disable-radix-cache", flag)))
    name = flag.partition("=")[0]
    assert f"args: triton: {name} is set by the launcher, and this one would take its place\n  allowed: {key}" in text
    assert text.endswith(f"next: take {flag} out of the arguments; nothing was started")


def test_an_unknown_backend_without_a_table(python: str, model: str) -> None:
    assert refusal(spec(python=python, model=model, backend="cutedls")) == (
        "--backend=cutedls: sglang 0.5.14 has no MoE runner of that name, and there is no [tool.moeperf.backends.cutedls]"
        " table that says what it is\n"
        "  allowed: auto, triton, flashinfer_cutlass\n"
        "  next: mend the name, or add [tool.moeperf.backends.cutedls] args = [...]"
    )


def test_a_backend_whose_table_says_what_it_is_may_have_any_name(python: str, model: str) -> None:
    SglangEngine().check(spec(python=python, model=model, backend="mine", args=("--moe-runner-backend", "triton")))


def test_a_missing_model(python: str, tmp_path: Path) -> None:
    hub = "a folder with config.json, or a hub name such as 'zai-org/GLM-5-NVFP4'"
    assert refusal(spec(python=python)) == (
        f"[tool.moeperf] model: the engine 'sglang' needs a model\n  allowed: {hub}"
    )
    assert refusal(spec(python=python, model="/no/such/model")) == (
        f"[tool.moeperf] model: '/no/such/model' is not a folder\n  allowed: {hub}"
    )
    assert refusal(spec(python=python, model=str(tmp_path))) == (
        f"[tool.moeperf] model: '{tmp_path}' has no config.json in it\n  allowed: a model folder"
    )


def test_a_missing_interpreter(model: str) -> None:
    assert refusal(spec(python="/no/python", model=model)) == (
        "[tool.moeperf.server] python: '/no/python' is not a file\n"
        "  allowed: the path of the Python interpreter that has the engine installed"
    )


def test_an_interpreter_without_sglang(tmp_path: Path, model: str) -> None:
    script = tmp_path / "bare"
    script.write_text("#!/bin/sh\necho 'PackageNotFoundError: No package metadata was found for sglang' >&2; exit 1\n")
    script.chmod(0o755)
    assert refusal(spec(python=str(script), model=model)) == (
        f"[tool.moeperf.server] python: {script} has no sglang:"
        " PackageNotFoundError: No package metadata was found for sglang\n"
        "  next: pip install sglang there, or name another interpreter"
    )


@pytest.mark.parametrize(
    ("flag", "allowed"),
    [
        ("--disable-radix-cach", "did you mean --disable-radix-cache?"),
        (
            "--enable-piecewise-cuda-graph",
            "--cuda-graph-backend-prefill=full (piecewise graphs were removed)",
        ),
    ],
)
def test_a_flag_that_this_version_lacks(python: str, model: str, flag: str, allowed: str) -> None:
    assert refusal(spec(python=python, model=model, args=(flag,))) == (
        f"[tool.moeperf.server] args: sglang 0.5.14 has no {flag}\n"
        f"  allowed: {allowed}\n"
        f"  next: {python} -m sglang.launch_server --help lists them"
    )


def test_options_are_read_in_both_spellings() -> None:
    assert option_of(("--device", "cpu"), "--device") == "cpu"
    assert option_of(("--device=cuda", "--device=cpu"), "--device") == "cpu"
    assert option_of(("--devices=cpu",), "--device") is None
    assert on_cpu(("--device=cpu",))
