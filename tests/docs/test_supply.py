"""What CI installs is pinned by hashes, and the recipe for a pull request's comment keeps one comment."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest

from pytest_moeperf.reporting.github import COMMENT_MARK, COMMENT_NAME

ROOT = Path(__file__).parents[2]
PINNED = (ROOT / ".ci" / "requirements.txt").read_text("utf-8")
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)(.*(?:\n    .*)*)", re.MULTILINE)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(text: str) -> dict[str, str]:
    return {canonical(name): version for name, version, _ in _PIN.findall(text)}


def test_everything_that_ci_installs_has_hashes_and_names_no_index() -> None:
    assert "://" not in PINNED
    assert not re.search(r"^\s*-[a-z-]", PINNED.replace("--hash", ""), re.MULTILINE)
    without = [name for name, _, rest in _PIN.findall(PINNED) if not re.search(r"--hash=sha256:[0-9a-f]{64}", rest)]
    assert without == []
    assert "--require-hashes -r .ci/requirements.txt" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_they_are_the_versions_of_the_constraints_and_all_that_the_project_asks_for() -> None:
    pinned, constrained = versions(PINNED), versions((ROOT / "constraints.txt").read_text("utf-8"))
    assert {name: pinned[name] for name in pinned.keys() & constrained.keys()} == {
        name: constrained[name] for name in pinned.keys() & constrained.keys()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["report"], *extras["nvidia"], *extras["speed"], *extras["dev"]]
    names = {canonical(re.split(r"[\[<>=!~ ;]", text)[0]) for text in asked} - {"pytest-moeperf"}
    missing = names - pinned.keys()
    assert not missing, f"make .ci/requirements.txt anew, as its first lines say: {missing}"


@pytest.mark.parametrize("there", ["", "4711\n", "4711\n4712\n"], ids=["first", "again", "twice by accident"])
def test_a_pull_request_keeps_one_comment(tmp_path: Path, there: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    recipe = re.search(r"        run: \|\n((?:          .*\n)+)", readme)
    assert recipe
    assert f'startswith("{COMMENT_MARK}")' in recipe[1]
    assert f"@{COMMENT_NAME}" in recipe[1]
    gh = tmp_path / "gh"
    gh.write_text(f"#!/bin/sh\necho \"$@\" >>calls\ncase \"$*\" in *--paginate*) printf '%s' '{there}';; esac\n")
    gh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REPO": "o/r", "PR": "7"}
    subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", textwrap.dedent(recipe[1])], cwd=tmp_path, env=env, check=True
    )
    asked, told = (tmp_path / "calls").read_text().splitlines()
    assert asked.startswith("api --paginate repos/o/r/issues/7/comments --jq")
    place = "PATCH repos/o/r/issues/comments/4711" if there else "POST repos/o/r/issues/7/comments"
    assert told == f"api --silent --method {place} -F body=@comment.md"


def test_no_job_of_the_recipe_can_write_what_it_need_not() -> None:
    recipe = re.search(r"```yaml\npermissions: \{\}.*?```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert recipe
    assert re.findall(r"^    permissions: (.*)$", recipe[0], re.MULTILINE) == [
        "{ contents: read }",
        "{ pull-requests: write }",
    ]
