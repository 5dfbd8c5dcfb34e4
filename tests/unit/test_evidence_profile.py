"""Kernel names come out of traces of any size, whole or cut."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.evidence import profile
from pytest_moeperf.evidence.profile import kernel_names, trace_files


def event(name: str, cat: str = "kernel") -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": 1.5,
        "dur": 2,
        "args": {"stream": 7, "grid": [1, 2, {"a": "]}"}]},
    }


EVENTS = [event("fused_moe_kernel"), event("aten::mm", "cpu_op"), event('odd "name" \\ ]}'), event("fused_moe_kernel")]
WANTED = {"fused_moe_kernel": 2, 'odd "name" \\ ]}': 1}


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_trace_is_read_plain_and_packed(tmp_path: Path, name: str, indent: int | None) -> None:
    text = json.dumps(
        {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": EVENTS, "after": [1]}, indent=indent
    )
    assert kernel_names(write(tmp_path / name, text)) == WANTED


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    assert kernel_names(write(tmp_path / "t.json", json.dumps(EVENTS))) == WANTED


@given(chunk=st.integers(1, 400))
def test_the_size_of_the_pieces_read_changes_nothing(tmp_path_factory: pytest.TempPathFactory, chunk: int) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces.json"
    path.write_text(json.dumps({"a": "x", "traceEvents": EVENTS}), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "_CHUNK", chunk)
        assert kernel_names(path) == WANTED


def test_a_trace_cut_in_half_gives_its_first_half(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS})
    cut = text[: text.index("aten::mm")]
    assert kernel_names(write(tmp_path / "t.json", cut)) == {"fused_moe_kernel": 1}
    packed = write(tmp_path / "t.json.gz", json.dumps({"traceEvents": [event(f"k{i}") for i in range(20000)]}))
    packed.write_bytes(packed.read_bytes()[:-2000])
    assert 0 < len(kernel_names(packed)) < 20000


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": ', "not json"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="no traceEvents"):
        kernel_names(write(tmp_path / "t.json", text))


def test_events_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [1, None, {"cat": "kernel"}, {"cat": "kernel", "name": 3}, *EVENTS]})
    assert kernel_names(write(tmp_path / "t.json", text)) == WANTED


def test_traces_are_found_oldest_first(tmp_path: Path) -> None:
    import os

    for index, name in enumerate(("b.json", "deep/a.json.gz")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        write(path, "[]")
        os.utime(path, ns=(index, index))
    assert [path.name for path in trace_files(tmp_path)] == ["b.json", "a.json.gz"]
