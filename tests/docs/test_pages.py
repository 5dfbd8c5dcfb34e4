"""What the pages show runs, and their tables are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from configuration_table import PAGE, with_tables

from pytest_moeperf.engines.simulated.arguments import parse_command_line
from pytest_moeperf.engines.simulated.profile import load_profile
from pytest_moeperf.markers.read import WORKLOAD_FIELDS
from pytest_moeperf.options.resolve import Given, resolve

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_tables_of_the_configuration_are_those_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "python tests/docs/configuration_table.py writes them"


def test_every_field_of_a_workload_is_explained() -> None:
    page = (DOCS / "writing-tests.md").read_text("utf-8")
    assert [name for name in WORKLOAD_FIELDS if f"`{name}`" not in page] == []


def test_the_planted_regression_is_a_configuration_and_a_command_line() -> None:
    (text, _profile) = blocks("simulated.md", "toml")
    table = tomllib.loads(text)
    settings = resolve(Given(file=None, table=table, environ={}, namespace={}), root=Path(), active=True)
    slower = parse_command_line(settings.server_for("slower").args)
    usual = parse_command_line(settings.server_for("triton").args)
    assert (slower.args.time_scale, slower.profile) == (1.1, usual.profile)


def test_the_arguments_of_the_table_are_known() -> None:
    page = (DOCS / "simulated.md").read_text("utf-8")
    rows = re.findall(r"^\| `(--[^|]*)` \|", page, flags=re.MULTILINE)
    assert len(rows) > 5
    for row in rows:
        parse_command_line(row.split())


def test_the_profile_on_the_page_is_one(tmp_path: Path) -> None:
    (_, text) = blocks("simulated.md", "toml")
    own = tmp_path / "own.toml"
    own.write_text(text, encoding="utf-8")
    profile = load_profile(own)
    assert (profile.runner, profile.step.points) == ("triton", ((1.0, 5.1), (64.0, 6.4)))
    documented = {key for table in tomllib.loads(text).values() if isinstance(table, dict) for key in table}
    named = {name for part in (profile.step, profile.noise, profile.warmup, profile.traces) for name in part.__slots__}
    assert documented == named


def test_the_whole_file_runs_without_a_clone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("writing-tests.md", "python")
    pytester.makepyfile(test_serving=text)
    monkeypatch.setenv("MOEPERF_LAUNCHES", "1")
    result = pytester.runpytest_subprocess("-m", "perf", "--backend=triton", "--update-baselines")
    result.assert_outcomes(passed=2)
    assert len(list(pytester.path.glob("baselines/simulated/*/triton/*.json"))) == 2
