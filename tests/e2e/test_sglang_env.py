"""The SGLang test environment and the tiny model: their scripts, checked without the minutes that a real build takes.

Only the tests marked ``sglang`` need the real environment; they are skipped until ``sglang_env.py`` has made it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sglang_env
import tiny_moe

TEXTS = [
    "The rain in Spain stays mainly in the plain.",
    "1234 + 5678 = 6912",
    "naïve  Ünïcode → 你好 🙂\n\ttabs",
    "<|endoftext|>",
]


class FakeBuilder:
    """Makes what a real build leaves behind, or breaks off half-way; counts its calls."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls = 0
        self.fails = fails

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "bin").mkdir(parents=True)
        sglang_env.interpreter(folder).symlink_to(sys.executable)
        if self.fails:
            raise sglang_env.EnvironmentProblem("installing torch failed with exit status 1: pip")


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("sglang==0.5.14\n", encoding="utf-8")
    return path


def test_the_folder_name_changes_with_everything_that_goes_into_it(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name() -> str:
        return sglang_env.environment_folder(root=tmp_path, requirements=requirements).name

    first = name()
    assert first.startswith("sglang-cpu-")
    assert name() == first
    seen = {first}
    requirements.write_text("sglang==0.5.15\n", encoding="utf-8")
    seen.add(name())
    for constant, value in (
        ("PYTHON_VERSION", "3.12"),
        ("RECIPE_VERSION", "other"),
        ("TORCH_REQUIREMENTS", ("torch==0.0.0",)),
    ):
        monkeypatch.setattr(sglang_env, constant, value)
        seen.add(name())
    assert len(seen) == 5


def test_the_cache_is_outside_the_checkout_and_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOEPERF_SGLANG_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert sglang_env.cache_root() == Path.home() / ".cache" / "pytest-moeperf"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert sglang_env.cache_root() == tmp_path / "xdg" / "pytest-moeperf"
    monkeypatch.setenv("MOEPERF_SGLANG_CACHE", str(tmp_path / "here"))
    assert sglang_env.cache_root() == tmp_path / "here"


def test_a_complete_environment_is_built_once_and_reused(tmp_path: Path, requirements: Path) -> None:
    build = FakeBuilder()
    first = sglang_env.ensure_environment(root=tmp_path / "cache", requirements=requirements, build=build)
    second = sglang_env.ensure_environment(root=tmp_path / "cache", requirements=requirements, build=build)
    assert first == second
    assert first.is_file()
    assert build.calls == 1


def test_an_incomplete_environment_is_built_anew_and_others_are_left_alone(tmp_path: Path, requirements: Path) -> None:
    folder = sglang_env.environment_folder(root=tmp_path, requirements=requirements)
    other = tmp_path / "sglang-cpu-0123456789abcdef"
    for each in (folder, other):
        each.mkdir()
        (each / "half_installed").touch()
    build = FakeBuilder()
    sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=build)
    assert build.calls == 1
    assert sglang_env.is_complete(folder)
    assert not (folder / "half_installed").exists()
    assert (other / "half_installed").exists()


def test_a_failed_build_is_not_taken_for_an_environment(tmp_path: Path, requirements: Path) -> None:
    failing, working = FakeBuilder(fails=True), FakeBuilder()
    with pytest.raises(sglang_env.EnvironmentProblem, match="installing torch failed"):
        sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=failing)
    assert not sglang_env.is_complete(sglang_env.environment_folder(root=tmp_path, requirements=requirements))
    sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=working)
    assert (failing.calls, working.calls) == (1, 1)


def test_an_environment_whose_python_is_gone_is_built_anew(tmp_path: Path, requirements: Path) -> None:
    build = FakeBuilder()
    python = sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=build)
    python.unlink()
    python.symlink_to(tmp_path / "uninstalled-python")
    sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=build)
    assert build.calls == 2
    assert python.exists()


def test_two_callers_at_once_build_once(tmp_path: Path, requirements: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started, go_on = threading.Event(), threading.Event()
    calls: list[Path] = []

    def slow_build(folder: Path) -> None:
        calls.append(folder)
        started.set()
        assert go_on.wait(30)
        FakeBuilder()(folder)

    def ensure() -> None:
        found.append(sglang_env.ensure_environment(root=tmp_path, requirements=requirements, build=slow_build))

    found: list[Path] = []
    first = threading.Thread(target=ensure)
    second = threading.Thread(target=ensure)
    first.start()
    assert started.wait(30)
    second.start()
    said = ""
    give_up_at = time.monotonic() + 30
    while "waiting for another process" not in said and len(calls) == 1 and time.monotonic() < give_up_at:
        time.sleep(0.01)
        said += capsys.readouterr().err
    go_on.set()
    first.join(30)
    second.join(30)
    assert "waiting for another process" in said
    assert len(calls) == 1
    assert len(found) == 2
    assert found[0] == found[1]


def test_a_missing_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_env, "PYTHON_VERSION", "3.99")
    with pytest.raises(sglang_env.EnvironmentProblem) as caught:
        sglang_env.find_python()
    assert str(caught.value) == (
        f"SGLang's CPU environment needs Python 3.99 with venv: this is {sys.version.split()[0]} ({sys.executable}) "
        "and no working python3.99 is on PATH. Install Python 3.99, or run this script with it."
    )


def test_the_script_prints_the_interpreter_last_and_a_failure_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOEPERF_SGLANG_CACHE", str(tmp_path))
    folder = sglang_env.environment_folder()
    FakeBuilder()(folder)
    (folder / sglang_env.COMPLETE_MARKER).touch()
    assert sglang_env.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "bin" / "python")
    monkeypatch.setattr(sglang_env, "PYTHON_VERSION", "3.99")
    assert sglang_env.main() == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "sglang_env: SGLang's CPU environment needs Python 3.99" in captured.err


def test_the_requirements_pin_every_package_and_leave_torch_to_the_script() -> None:
    lines = [line for line in sglang_env.REQUIREMENTS.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)
    names = {line.split("==")[0] for line in lines}
    assert "sglang" in names
    assert names.isdisjoint(requirement.split("==")[0] for requirement in sglang_env.TORCH_REQUIREMENTS)


@pytest.mark.parametrize("preset", sorted(tiny_moe.PRESETS))
def test_every_id_of_the_model_is_a_token(tmp_path: Path, preset: str) -> None:
    directory = tiny_moe.make_tiny_moe(tmp_path / preset, preset=preset)
    config = json.loads((directory / "config.json").read_text("utf-8"))
    model = json.loads((directory / "tokenizer.json").read_text("utf-8"))["model"]
    assert sorted(model["vocab"].values()) == list(range(config["vocab_size"]))
    assert all(left + right in model["vocab"] for left, right in model["merges"])
    assert len(model["vocab"]) == 1 + 256 + len(model["merges"])


def test_the_model_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = tiny_moe.make_tiny_moe(tmp_path / "a"), tiny_moe.make_tiny_moe(tmp_path / "b")
    names = sorted(path.name for path in first.iterdir())
    assert names == ["config.json", "tokenizer.json", "tokenizer_config.json"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_an_unknown_preset_and_a_vocabulary_without_enough_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^unknown preset 'b300'; presets: cpu, h200, h200-fp8$"):
        tiny_moe.make_tiny_moe(tmp_path / "model", preset="b300")
    assert not (tmp_path / "model").exists()
    with pytest.raises(ValueError, match=r"^a vocabulary with 100000 pairs was asked for; there are \d+$"):
        tiny_moe.merges(100_000)


@pytest.fixture(scope="module")
def sglang_python() -> Path:
    """The real environment's interpreter; a test that needs minutes of installing says so instead of doing it."""
    folder = sglang_env.environment_folder()
    if not sglang_env.is_complete(folder):
        pytest.skip(f"{folder} is not made; run: python tests/e2e/sglang_env.py")
    return sglang_env.interpreter(folder)


ROUND_TRIP = """
import json, sys
from transformers import AutoConfig, AutoTokenizer
directory, texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(directory)
ids = [tokenizer.encode(text) for text in texts]
json.dump({
    "vocab_size": len(tokenizer), "config_vocab_size": AutoConfig.from_pretrained(directory).vocab_size,
    "eos": tokenizer.eos_token_id, "ids": ids, "texts": [tokenizer.decode(each) for each in ids],
    "empty": sum(tokenizer.decode([number]) == "" for number in range(len(tokenizer))),
    "chat": tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    ),
}, sys.stdout)
"""


@pytest.mark.sglang
@pytest.mark.parametrize("preset", sorted(tiny_moe.PRESETS))
def test_the_tokenizer_loads_and_gives_back_what_it_read(sglang_python: Path, tmp_path: Path, preset: str) -> None:
    directory = tiny_moe.make_tiny_moe(tmp_path, preset=preset)
    done = subprocess.run(
        [str(sglang_python), "-c", ROUND_TRIP],
        input=json.dumps([str(directory), TEXTS]),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HF_HUB_OFFLINE": "1"},
    )
    found = json.loads(done.stdout)
    assert found["texts"] == TEXTS
    assert found["vocab_size"] == found["config_vocab_size"] == tiny_moe.PRESETS[preset].vocab_size
    assert found["eos"] == 0
    assert found["ids"][-1] == [0]
    assert len(found["ids"][0]) < len(TEXTS[0])
    assert found["empty"] == 0
    assert found["chat"] == "user: hi\nassistant:"


@pytest.mark.sglang
def test_the_environment_has_the_pinned_versions(sglang_python: Path) -> None:
    done = subprocess.run(
        [str(sglang_python), "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    def pins(lines: list[str]) -> dict[str, str]:
        # 2.14.1+cpu is 2.14.1 from another index; names differ in case and separators only.
        pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
        return {name.lower().replace("_", "-"): version.split("+")[0] for name, version in pairs}

    wanted = pins([*sglang_env.REQUIREMENTS.read_text("utf-8").splitlines(), *sglang_env.TORCH_REQUIREMENTS])
    installed = pins(done.stdout.splitlines())
    assert {name: installed.get(name) for name in wanted} == wanted
