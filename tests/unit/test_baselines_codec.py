"""The text of a baseline file: what a reviewer sees, and what is refused."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace

import pytest

from pytest_moeperf.baselines.codec import decode, encode
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun
from pytest_moeperf.model.run import Evidence, EvidenceItem, Fingerprint
from pytest_moeperf.model.workload import Cell, Workload

RUN = StoredRun(
    id="r1",
    session="s1",
    launch="l1",
    started_at="2026-11-01T10:00:00Z",
    values={"tpot": 95.14, "throughput": 10.36},
    start_s=131.0,
)
BASELINE = Baseline(
    engine="sglang",
    model="zai-org/GLM-5-NVFP4",
    cell=Cell(backend="flashinfer_cutlass", workload=Workload(concurrency=1)),
    fingerprint=Fingerprint(server={"tp": 8, "radix": False}, software={"driver": None}),
    evidence=Evidence(
        status="confirmed",
        requested="flashinfer_cutlass",
        runner="flashinfer_cutlass",
        items=(EvidenceItem(source="server log line 32", text="MoE runner: é", says="confirmed"),),
    ),
    runs=(RUN,),
    anchor=(RUN,),
    history=(BaselineEvent(at="2026-11-01T10:05:00Z", kind="recorded", reason="first", runs=1, change={}),),
)
TEXT = """\
{
  "anchor": [
    {"id": "r1", "launch": "l1", "run_s": null, "session": "s1", "start_s": 131.0, \
"started_at": "2026-11-01T10:00:00Z", "values": {"throughput": 10.36, "tpot": 95.14}}
  ],
  "cell": {
    "backend": "flashinfer_cutlass",
    "workload": {
      "concurrency": 1,
      "dataset": "random-ids",
      "input_len": 512,
      "num_prompts": 4,
      "output_len": 128,
      "queueing": false,
      "request_rate": null,
      "seed": 0,
      "shared_prefix_len": 0
    }
  },
  "engine": "sglang",
  "evidence": {
    "items": [
      {
        "rule": "",
        "runner": null,
        "says": "confirmed",
        "source": "server log line 32",
        "text": "MoE runner: é"
      }
    ],
    "looked_for": [],
    "requested": "flashinfer_cutlass",
    "runner": "flashinfer_cutlass",
    "status": "confirmed"
  },
  "fingerprint": {
    "environment": {},
    "hardware": {},
    "server": {
      "radix": false,
      "tp": 8
    },
    "software": {
      "driver": null
    },
    "workload": {}
  },
  "history": [
    {"accepted": false, "at": "2026-11-01T10:05:00Z", "by": "", "change": {}, "drift": {}, \
"kind": "recorded", "reason": "first", "runs": 1}
  ],
  "model": "zai-org/GLM-5-NVFP4",
  "provenance": "",
  "retired": [],
  "runs": [
    {"id": "r1", "launch": "l1", "run_s": null, "session": "s1", "start_s": 131.0, \
"started_at": "2026-11-01T10:00:00Z", "values": {"throughput": 10.36, "tpot": 95.14}}
  ],
  "schema": 1
}
"""


def refused(text: str) -> str:
    with pytest.raises(BaselineError) as caught:
        decode(text, path="b.json")
    return str(caught.value)


RESTORE = "restore it with `git checkout -- b.json` or from a backup; pytest-moeperf itself replaces files as a whole"


def test_the_whole_text() -> None:
    assert encode(BASELINE) == TEXT


def test_it_is_json_with_sorted_keys_and_reads_back_equal() -> None:
    assert encode(BASELINE).endswith("}\n")
    plain = json.loads(encode(BASELINE))
    assert list(plain) == sorted(plain)
    assert decode(encode(BASELINE), path="b.json") == BASELINE


def test_one_more_run_is_one_more_line_in_a_review() -> None:
    more = replace(BASELINE, runs=(RUN, replace(RUN, id="r2", started_at="2026-11-02T10:00:00Z")))
    # Without commas: the one after the line before is JSON's own doing.
    old, new = (encode(each).replace("},\n", "}\n").splitlines() for each in (BASELINE, more))
    changed = [line for line in difflib.ndiff(old, new) if not line.startswith("  ")]
    assert len(changed) == 1
    assert changed[0].startswith('+     {"id": "r2", ')


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_file_cut_off_anywhere_says_where(fraction: float) -> None:
    cut = TEXT[: int(len(TEXT) * fraction)].rstrip("}\n") if fraction > 0.99 else TEXT[: int(len(TEXT) * fraction)]
    message = refused(cut)
    assert message.startswith("b.json: is cut off or broken: ")
    assert " at line " in message
    assert message.endswith(f"\n  next: {RESTORE}")


def test_the_whole_message_of_a_file_cut_in_half() -> None:
    assert refused('{\n  "anchor": [\n    {"id": "r') == (
        f"b.json: is cut off or broken: Unterminated string starting at at line 3, column 12\n  next: {RESTORE}"
    )
    assert refused("") == f"b.json: is empty: Expecting value at line 1, column 1\n  next: {RESTORE}"


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    assert refused(TEXT.replace('"schema": 1', '"schema": 2')) == (
        "b.json: has schema 2; this version of pytest-moeperf reads up to 1\n"
        "  next: upgrade it (`pip install --upgrade pytest-moeperf`), or use the version that wrote the file"
    )


@pytest.mark.parametrize("schema", ['"1"', "true", "0", "null", "1.0"])
def test_an_impossible_schema_is_no_baseline(schema: str) -> None:
    shown = repr(json.loads(schema))
    assert refused(TEXT.replace('"schema": 1', f'"schema": {schema}')) == (
        f"b.json: is no baseline: schema is {shown}\n  next: {RESTORE}"
    )


def test_an_unknown_key_is_refused_with_its_path() -> None:
    text = TEXT.replace('"seed": 0,', '"seed": 0,\n      "colour": "red",')
    assert refused(text) == (
        "b.json: $.cell.workload.colour is not a key of schema 1\n"
        f"  next: remove the key if it was added by hand; otherwise {RESTORE}"
    )
    assert "$.runs[0].note is not a key" in refused(
        '"runs": [\n    {"note": 1, '.join(TEXT.rsplit('"runs": [\n    {', 1))
    )


def test_a_wrong_type_is_refused_with_its_path() -> None:
    assert refused(TEXT.replace('"num_prompts": 4', '"num_prompts": "4"')) == (
        f"b.json: is no baseline: Expected `int`, got `str` - at `$.cell.workload.num_prompts`\n  next: {RESTORE}"
    )


def test_other_things_that_are_no_baseline() -> None:
    assert refused("[1, 2]") == f"b.json: is no baseline: not a JSON object\n  next: {RESTORE}"
    assert refused(TEXT.replace("10.36", "NaN")) == (f"b.json: is no baseline: NaN is not a number\n  next: {RESTORE}")
    assert refused(TEXT.replace('"tp": 8', '"tp": 8, "tp": 4')) == (
        f"b.json: is no baseline: the key 'tp' stands twice in one object\n  next: {RESTORE}"
    )
    assert refused(TEXT.replace("95.14", "0")) == (
        "b.json: run r1 has tpot = 0, which is not a measurement (finite and above 0)\n"
        "  next: leave this run out: nothing can be held against it"
    )


def test_a_merge_conflict_is_named_with_the_way_out() -> None:
    text = TEXT.replace('  "runs": [\n', '  "runs": [\n<<<<<<< HEAD\n')
    line = text.splitlines().index("<<<<<<< HEAD") + 1
    assert refused(text) == (
        f"b.json: has an unresolved merge conflict at line {line}\n"
        "  next: keep the runs and the events of both sides (each is one line) and remove the markers"
    )
