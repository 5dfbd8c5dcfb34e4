"""When an invocation knows that a baseline is unused: only where it ran all that it collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.settings import ServerSettings, Settings
from pytest_moeperf.model.verdict import Decision, Outcome, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.session.unused import runs_all_collected, unused_baselines

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


@pytest.mark.parametrize("args", [(".",), ("..",), ("tests",), ("test_a.py",), (".", "tests")])
def test_whatever_path_was_given_its_tests_are_all_run(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert runs_all_collected(config(tmp_path, *args))
    assert runs_all_collected(config(tmp_path, "tests", source=ArgsSource.TESTPATHS))


def test_a_test_by_its_id_is_a_choice(tmp_path: Path) -> None:
    assert not runs_all_collected(config(tmp_path, ".", "test_a.py::test_b"))


@pytest.mark.parametrize(
    "chosen",
    [{"keyword": "c10"}, {"deselect": ["test_a.py"]}, {"lf": True}, {"markexpr": "perf and smoke"}],
    ids=lambda chosen: next(iter(chosen)),
)
def test_so_is_a_choice_among_them(tmp_path: Path, chosen: dict[str, Any]) -> None:
    assert not runs_all_collected(config(tmp_path, ".", **chosen))


def names_of_unused(settings: Settings, tmp_path: Path, *backends: str) -> list[str]:
    """Backends whose baselines are named after a run that judged ``new`` at c=1."""
    store = FileStore(tmp_path / "baselines")
    for backend in backends:
        store.save(baseline_of(backend))
    outcome = Outcome(
        decision=Decision(cell=Cell(backend="new", workload=Workload(concurrency=1)), verdict=Verdict.EQUIVALENT),
        session={"engine": "sglang", "model": "m"},
    )
    return [Path(path).parent.name for path in unused_baselines(settings, [outcome])]


def baseline_of(backend: str) -> Baseline:
    values = {"throughput": 1.0}
    run = StoredRun(id=f"r-{backend}", session="s", launch="l", started_at="2026-11-01T00:00:00Z", values=values)
    return Baseline(
        engine="sglang",
        model="m",
        cell=Cell(backend=backend, workload=Workload(concurrency=2)),
        fingerprint=Fingerprint(),
        evidence=Evidence(),
        runs=(run,),
        anchor=(run,),
        history=(),
    )


def test_baselines_of_a_dropped_cell_and_of_a_renamed_backend_are_named(tmp_path: Path) -> None:
    tables = {name: ServerSettings() for name in ("new", "other")}
    settings = Settings(
        root=str(tmp_path), engine="sglang", backends=("new",), reference="base", backend_servers=tables
    )
    assert names_of_unused(settings, tmp_path, "new", "old", "other", "base") == ["new", "old"]


def test_without_tables_a_backend_may_be_named_on_the_command_line_alone(tmp_path: Path) -> None:
    settings = Settings(root=str(tmp_path), engine="sglang", backends=("new",))
    assert names_of_unused(settings, tmp_path, "new", "old") == ["new"]
    listed = replace(settings, provenance={"backends": "moeperf.toml"})
    assert names_of_unused(listed, tmp_path, "old") == ["new", "old"]
