"""When an invocation knows that a baseline is unused: only when it ran everything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_moeperf.session.unused import runs_everything

ArgsSource = pytest.Config.ArgsSource


def config(here: Path, *args: str, source: Any = ArgsSource.ARGS, **options: Any) -> pytest.Config:
    option = {"keyword": "", "deselect": None, "lf": False, "markexpr": "perf"} | options
    return cast(
        pytest.Config,
        SimpleNamespace(
            option=SimpleNamespace(**option),
            args=list(args),
            args_source=source,
            invocation_params=SimpleNamespace(dir=here),
        ),
    )


@pytest.mark.parametrize("args", [(".",), ("project",), ("..",)])
def test_a_folder_that_holds_the_project_is_everything(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "project").mkdir()
    assert runs_everything(config(tmp_path, *args), str(tmp_path / "project"))


def test_the_projects_own_test_folders_are_everything(tmp_path: Path) -> None:
    assert runs_everything(config(tmp_path, "tests", source=ArgsSource.TESTPATHS), str(tmp_path))


@pytest.mark.parametrize("args", [("tests",), ("test_a.py",), (".", "tests"), (".", "test_a.py::test_b")])
def test_a_part_of_the_project_is_not(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert not runs_everything(config(tmp_path, *args), str(tmp_path))


@pytest.mark.parametrize(
    "chosen",
    [{"keyword": "c10"}, {"deselect": ["test_a.py"]}, {"lf": True}, {"markexpr": "perf and smoke"}],
    ids=lambda chosen: next(iter(chosen)),
)
def test_nor_is_a_choice_of_its_tests(tmp_path: Path, chosen: dict[str, Any]) -> None:
    assert not runs_everything(config(tmp_path, ".", **chosen), str(tmp_path))
    assert not runs_everything(config(tmp_path, "tests", source=ArgsSource.TESTPATHS, **chosen), str(tmp_path))
