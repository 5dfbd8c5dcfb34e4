"""A source build is known by its commit and by its local changes, whatever version it calls itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_moeperf.environment import read_source_build


def git(folder: Path, *arguments: str) -> str:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["/usr/bin/env", "git", *arguments],
        cwd=folder,
        env=os.environ | identity | names,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the engine's package in a folder of it, as SGLang's own."""
    package = tmp_path / "checkout" / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("version = 1\n")
    git(tmp_path / "checkout", "init", "-q")
    git(tmp_path / "checkout", "add", ".")
    git(tmp_path / "checkout", "commit", "-q", "-m", "one")
    return tmp_path / "checkout"


def of(checkout: Path) -> dict[str, object]:
    return dict(
        read_source_build("sglang", env={"PYTHONPATH": str(checkout / "python"), "PYTHONDONTWRITEBYTECODE": "1"})
    )


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    assert of(checkout) == {"engine_commit": git(checkout, "rev-parse", "HEAD"), "engine_changes": "none"}


def test_two_different_dirty_states_differ_and_one_is_equal_to_itself(checkout: Path) -> None:
    module = checkout / "python" / "sglang" / "__init__.py"
    states = [of(checkout)]
    for text in ("version = 2\n", "version = 3\n"):
        module.write_text(text)
        states.append(of(checkout))
    (module.parent / "new_runner.py").write_text("a = 1\n")
    states.append(of(checkout))
    (module.parent / "new_runner.py").write_text("a = 2\n")
    states.append(of(checkout))
    assert len({state["engine_changes"] for state in states}) == len(states)
    assert len({state["engine_commit"] for state in states}) == 1
    assert of(checkout) == states[-1]


def test_what_lies_elsewhere_in_the_repository_is_no_change_of_the_engine(checkout: Path) -> None:
    (checkout / "notes.txt").write_text("not the engine")
    assert of(checkout)["engine_changes"] == "none"


def test_sources_without_git_are_known_by_their_content(tmp_path: Path) -> None:
    package = tmp_path / "python" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("version = 1\n")
    one = of(tmp_path)
    assert set(one) == {"engine_files"}
    (package / "__init__.py").write_text("version = 2\n")
    assert of(tmp_path) != one


def test_an_environment_inside_somebodys_repository_is_not_that_repository(checkout: Path) -> None:
    site = checkout / "venv" / "site-packages" / "sglang"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    assert dict(read_source_build("sglang", env={"PYTHONPATH": str(site.parent)})) == {}


def test_the_commit_of_an_installation_from_a_repository(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    info = site / "sglang-0.5.14.dist-info"
    info.mkdir(parents=True)
    (site / "sglang").mkdir()
    (site / "sglang" / "__init__.py").touch()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.14\n")
    (info / "direct_url.json").write_text('{"url": "https://x/y", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}')
    assert dict(read_source_build("sglang", env={"PYTHONPATH": str(site)})) == {"engine_commit": "abc123"}


def test_an_interpreter_that_cannot_be_asked_says_nothing(tmp_path: Path) -> None:
    assert read_source_build("sglang", str(tmp_path / "missing")) == {}
    assert read_source_build("simulated") == {}
