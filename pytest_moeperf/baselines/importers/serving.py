"""Results of ``sglang.bench_serving`` and ``vllm bench serve``: the JSON that they write, the table that they print."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_moeperf.baselines.importers.record import (
    Record,
    failed_requests,
    latency_names,
    lengths,
    number,
    picked,
    refuse,
    whole,
)
from pytest_moeperf.foreign import parse_json
from pytest_moeperf.model.run import Plain

_TOKEN_GAP_CLIENTS = frozenset({"sglang", "sglang-native"})
"""Their ITL is a gap divided by its new tokens; every other client's is the gap between chunks, which is no ITL."""
_FIXED_LENGTHS = frozenset({"random", "random-ids"})
_SWEEP_WARM_UP = -1
"""Run number of a sweep's warm-up."""
_VLLM_RESULTS = re.compile(
    r"(date|endpoint_type|backend|label|model_id|tokenizer_id|dataset_name|seed|num_prompts|request_rate|burstiness"
    r"|max_concurrency|duration|completed|failed|run_number|rtfx)$"
    r"|(mean|median|std|p[\d.]+|total|max_output|max_concurrent|spec_decode)_|.*(throughput|goodput|_lens)"
)
"""What ``vllm bench serve`` writes itself."""


def read_sglang_json(text: str, *, path: str) -> list[Record]:
    """JSON lines, one run each; or a list of runs."""
    return [_sglang_record(found, where=where, path=path) for where, found in json_objects(text, path=path)]


def read_vllm_json(text: str, *, path: str) -> list[Record]:
    """One JSON object, a line each (``--append-result``), or a list of them (``vllm bench sweep serve``)."""
    return [
        _vllm_record(found, where=where, path=path)
        for where, found in json_objects(text, path=path)
        if found.get("run_number") != _SWEEP_WARM_UP
    ]


def json_objects(text: str, *, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each result of a file and its place: one object, a list of them, or one a line."""
    try:
        whole_file = parse_json(text)
    except json.JSONDecodeError:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        if isinstance(whole_file, list):
            for index, found in enumerate(whole_file):
                yield f"[{index}]", _object(found, where=f"[{index}]", path=path)
        else:
            yield "", _object(whole_file, where="", path=path)
        return
    for n, line in lines:
        try:
            found = parse_json(line)
        except json.JSONDecodeError as error:
            raise refuse(path, f"line {n}", f"is no JSON ({error.msg} at column {error.colno})") from None
        yield f"line {n}", _object(found, where=f"line {n}", path=path)


def _object(found: object, *, where: str, path: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise refuse(path, where, "is no JSON object")
    return found


def _sglang_record(source: Mapping[str, Any], *, where: str, path: str) -> Record:
    failure = failed_requests(source)
    if failure:
        raise refuse(path, where, failure)
    info = source.get("server_info")
    info = info if isinstance(info, dict) else None
    completed = whole(source.get("completed"))
    workload, doubts = _common_workload(source, completed=completed)
    names = {"throughput": "output_throughput", **latency_names("tpot", "tpot"), **latency_names("ttft", "ttft")}
    names |= latency_names("e2el", "e2e_latency")
    if source.get("backend") in _TOKEN_GAP_CLIENTS:
        names |= latency_names("itl", "itl")
    else:
        client = source.get("backend") or "that wrote it"
        doubts["itl"] = f"the client {client} may count chunks, not tokens"
    if "seed" not in workload and "server_info" in source:
        doubts["seed"] = "bench_serving does not write it"
    if info is None:
        doubts["server"] = "server_info is not in the file"
    ratio = source.get("random_range_ratio")
    if source.get("dataset_name") in _FIXED_LENGTHS:
        workload["shared_prefix_len"] = 0
        for side in ("input", "output"):
            asked = whole(source.get(f"random_{side}_len"))
            if asked is None:
                continue
            workload[f"{side}_len"] = asked
            doubts.pop(f"{side}_len", None)
            if ratio != 1.0:
                shown = "unknown" if ratio is None else f"{ratio:g}"
                doubts[f"{side}_len"] = f"random_range_ratio is {shown}: lengths may vary from 1 to {asked}"
    return Record(
        where=where,
        values=picked(source, names),
        workload=workload,
        doubts=doubts,
        engine="sglang",
        model=str(info.get("model_path") or "") if info else str(source.get("model") or ""),
        backend=str(info.get("moe_runner_backend") or "") if info else "",
        duration_s=number(source.get("duration")),
        completed=completed,
        server_info=info,
    )


def _vllm_record(source: Mapping[str, Any], *, where: str, path: str) -> Record:
    failed = whole(source.get("failed"))
    failure = f"{failed} requests failed" if failed else failed_requests(source)
    if failure:
        raise refuse(path, where, failure)
    completed = whole(source.get("completed"))
    workload, doubts = _common_workload(source, completed=completed)
    doubts["itl"] = "vLLM's is the gap between chunks, not between tokens"
    doubts["seed"] = "vllm bench serve does not write it"
    names = {"throughput": "output_throughput", "goodput": "request_goodput"}
    for metric in ("tpot", "ttft", "e2el"):
        names |= latency_names(metric, metric)
    return Record(
        where=where,
        values=picked(source, names),
        workload=workload,
        doubts=doubts,
        engine="attached",
        model=str(source.get("model_id") or ""),
        groups={"server": swept} if (swept := _swept(source)) else {},
        started_at=_vllm_date(source.get("date")),
        duration_s=number(source.get("duration")),
        completed=completed,
    )


def _common_workload(source: Mapping[str, Any], *, completed: int | None) -> tuple[dict[str, Plain], dict[str, str]]:
    workload: dict[str, Plain] = {}
    doubts: dict[str, str] = {}
    for side in ("input", "output"):
        length, doubt = lengths(source, kind=side, completed=completed)
        if length is not None:
            workload[f"{side}_len"] = length
        if doubt:
            doubts[f"{side}_len"] = doubt
    concurrency = whole(source.get("max_concurrency"))
    if concurrency is not None:
        workload["concurrency"] = concurrency
    rate = source.get("request_rate")
    if rate is not None:
        workload["request_rate"] = math.inf if rate == "inf" else float(rate)
    details = source.get("errors") if isinstance(source.get("errors"), list) else None
    sent = whole(source.get("num_prompts")) or (len(details) if details else None)
    if sent is not None:
        workload["num_prompts"] = sent
    elif completed is not None:
        doubts["num_prompts"] = f"only that {completed} requests succeeded is in the file"
    if isinstance(source.get("seed"), int):
        workload["seed"] = source["seed"]
    if source.get("dataset_name"):
        workload["dataset"] = str(source["dataset_name"])
    return workload, doubts


def _swept(source: Mapping[str, Any]) -> dict[str, Plain]:
    """What a sweep set for this run: it writes its parameters beside the results, under their own names. Runs of other
    parameters are other servers."""
    if "run_number" not in source:
        return {}
    return {
        name: value
        for name, value in source.items()
        if not _VLLM_RESULTS.match(name) and isinstance(value, str | int | float | bool)
    }


def _vllm_date(text: object) -> str:
    """``20261101-101500``, local time of an unknown zone."""
    match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)", str(text))
    return "{}-{}-{}T{}:{}:{}".format(*match.groups()) if match else ""


# What they print. Labels are the same in both, and have been for years.
_BLOCK = re.compile(r"=+ ?(?:Serving Benchmark Result|Concurrency (?P<concurrency>\d+)) ?=+")
_ARGUMENTS = re.compile(r"\bNamespace\(.*\)")
_LATENCY = re.compile(
    r"\b(?P<kind>Mean|Median|P99) (?P<metric>TTFT|TPOT|ITL|E2E Latency|E2EL) \(ms\):\s+(?P<value>[\d.]+)"
)
_LABELS = {
    "completed": r"Successful requests:\s+([\d.]+)",
    "failed": r"Failed requests:\s+([\d.]+)",
    "max_concurrency": r"Max(?:imum)? request concurrency:\s+(\d+)",
    "request_rate": r"(?:Traffic request rate|Request rate configured \(RPS\)):\s+(inf|[\d.]+)",
    "duration": r"Benchmark duration \(s\):\s+([\d.]+)",
    "total_input_tokens": r"Total input tokens:\s+([\d.]+)",
    "total_output_tokens": r"Total generated tokens:\s+([\d.]+)",
    "output_throughput": r"Output token throughput \(tok/s\):\s+([\d.]+)",
    "request_goodput": r"Request goodput \(req/s\):\s+([\d.]+)",
}
_CLIENT = re.compile(r"^Backend:\s+(\S+)", re.MULTILINE)
_LATENCY_NAMES = {"E2E Latency": "e2e_latency", "E2EL": "e2e_latency"}


def read_text(text: str, *, path: str) -> list[Record]:
    """One printed result or a log with many of them, arguments included where they were printed too."""
    records: list[Record] = []
    blocks = list(_BLOCK.finditer(text))
    arguments: dict[str, Any] = {}
    concurrency: str | None = None
    ends = [block.start() for block in blocks[1:]] + [len(text)]
    before = 0
    for block, end in zip(blocks, ends, strict=True):
        for printed in _ARGUMENTS.finditer(text, before, block.start()):
            arguments = _namespace(printed[0])
        before = block.start()
        concurrency = block["concurrency"] or concurrency
        source = {**arguments, **({"max_concurrency": int(concurrency)} if concurrency else {})}
        found = _printed(text[block.end() : end])
        if "output_throughput" not in found:
            continue
        where = f"line {text.count(chr(10), 0, block.start()) + 1}"
        if found.get("failed"):
            raise refuse(path, where, f"{found['failed']:g} requests failed")
        records.append(_sglang_record({**source, **found}, where=where, path=path))
        concurrency = None
    return records


def _printed(block: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, pattern in _LABELS.items():
        match = re.search(pattern, block)
        if match:
            found[name] = "inf" if match[1] == "inf" else float(match[1])
    for match in _LATENCY.finditer(block):
        metric = _LATENCY_NAMES.get(match["metric"], match["metric"].lower())
        found[f"{match['kind'].lower()}_{metric}_ms"] = float(match["value"])
    client = _CLIENT.search(block)
    if client:
        found["backend"] = client[1]
    return found


def _namespace(printed: str) -> dict[str, Any]:
    """``Namespace(seed=42, request_rate=inf, ...)`` as a dict of its plain values."""
    try:
        call = ast.parse(printed, mode="eval").body
    except SyntaxError:
        return {}
    if not isinstance(call, ast.Call):
        return {}
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg and isinstance(keyword.value, ast.Constant):
            found[keyword.arg] = keyword.value.value
        elif keyword.arg and isinstance(keyword.value, ast.Name) and keyword.value.id == "inf":
            found[keyword.arg] = "inf"
    return found
