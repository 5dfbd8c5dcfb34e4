"""README and docs say what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from readme_blocks import README, quick_start_blocks

from pytest_moeperf.markers.described import DESCRIPTIONS
from pytest_moeperf.markers.read import WORKLOAD_FIELDS
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.options.declared import ALIASES, OPTIONS

ROOT = README.parent
PACKAGE = ROOT / "pytest_moeperf"
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_the_quick_start_is_two_blocks() -> None:
    blocks = quick_start_blocks(README.read_text(encoding="utf-8"))
    assert len(blocks) == 2
    assert "pytest -m perf --backend=triton examples/quickstart" in blocks[0]
    # Together they are all tests, and what measures on a busy CPU runs alone.
    assert re.findall(r"^\.venv/bin/pytest (.*?)(?:  +#.*)?$", blocks[1], flags=re.MULTILINE) == [
        '-n 2 -m "not sglang"',
        "-m sglang",
    ]


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_flags_that_are_named_exist(page: Path) -> None:
    known = {option.flag for option in OPTIONS} | set(ALIASES.values())
    named = set(re.findall(r"--perf-[a-z-]+", page.read_text(encoding="utf-8")))
    assert named <= known


def test_the_verdicts_of_the_readme_are_the_verdicts() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \|", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(rows) == sorted(verdict.value for verdict in Verdict)


def test_the_checks_of_the_docs_are_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    table = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").split("## When a run does not count", 1)[1]
    table = table.partition("\n## ")[0]
    names = [
        name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert len(names) > 15
    assert [name for name in names if f'"{name}"' not in code] == []


def test_the_workload_of_the_perf_marker_is_described() -> None:
    assert all(name in DESCRIPTIONS[0] for name in WORKLOAD_FIELDS)
