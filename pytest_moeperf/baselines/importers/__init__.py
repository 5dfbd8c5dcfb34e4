"""Numbers that other tools measured, as baselines: what a file says, and a list of what it doesn't say.

Nothing is invented: what is unknown stays unknown, which is equal to nothing, so an imported baseline shows where one
stood and is INCOMPARABLE to a new run wherever a blocking field is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_moeperf import foreign
from pytest_moeperf.baselines.importers.aiperf import read_aiperf_json
from pytest_moeperf.baselines.importers.assemble import ImportResult, Missing, Stated, assemble
from pytest_moeperf.baselines.importers.one_batch import KEYS as ONE_BATCH_KEYS
from pytest_moeperf.baselines.importers.one_batch import read_one_batch_json
from pytest_moeperf.baselines.importers.record import Record
from pytest_moeperf.baselines.importers.serving import read_sglang_json, read_text, read_vllm_json
from pytest_moeperf.baselines.importers.table import read_csv, read_toml
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.run import Plain

__all__ = ["FORMATS", "ImportResult", "Missing", "import_results"]

_READERS: dict[str, Callable[..., list[Record]]] = {
    "sglang-json": read_sglang_json,
    "sglang-one-batch-json": read_one_batch_json,
    "bench-text": read_text,
    "vllm-json": read_vllm_json,
    "aiperf-json": read_aiperf_json,
    "table-toml": read_toml,
    "table-csv": read_csv,
}
FORMATS: tuple[str, ...] = tuple(_READERS)


def import_results(
    path: str | Path,
    *,
    at: str,
    file_format: str = "auto",
    engine: str = "",
    model: str = "",
    backend: str = "",
    workload: Mapping[str, Plain] | None = None,
    provenance: str = "",
) -> ImportResult:
    """Read ``path`` into baselines, which are not saved yet.

    :param at: now, ISO 8601, UTC.
    :param file_format: one of ``FORMATS``, or ``auto``.
    :param engine, model, backend: of every result in the file; they go before what it says.
    :param workload: fields of ``Workload`` that the file leaves open (concurrency, input_len, num_prompts, seed, ...).
    :param provenance: where the numbers come from; default: what the file says, else its path.
    :raises UsageProblem: for a file that can't be read, or doesn't say what its cells are; names the option that can.
    :raises BaselineError: for results of which requests failed.
    """
    try:
        text = foreign.read_text(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(where=str(path), problem=f"can't be read: {reason}") from None
    if file_format == "auto":
        file_format = _recognise(text, path=Path(path))
    if file_format not in _READERS:
        raise UsageProblem(where="--format", problem=f"{file_format!r} is not a known form", allowed=", ".join(FORMATS))
    return assemble(
        _READERS[file_format](text, path=str(path)),
        path=str(path),
        file_format=file_format,
        stated=Stated(
            engine=engine, model=model, backend=backend, workload=dict(workload or {}), provenance=provenance
        ),
        at=at,
    )


def _recognise(text: str, *, path: Path) -> str:
    by_name = {".toml": "table-toml", ".csv": "table-csv"}.get(path.suffix.lower())
    if by_name:
        return by_name
    first = _first_object(text)
    if "aiperf_version" in first or "input_config" in first or isinstance(first.get("time_to_first_token"), dict):
        return "aiperf-json"
    if first.keys() >= ONE_BATCH_KEYS:
        return "sglang-one-batch-json"
    if "output_throughput" in first:
        return "vllm-json" if "model_id" in first else "sglang-json"
    if "Output token throughput (tok/s):" in text:
        return "bench-text"
    raise UsageProblem(
        where=str(path),
        problem="is in no form that is known",
        allowed=", ".join(FORMATS),
        next_step="name it with --format, or write the numbers down in the form table-toml or table-csv",
    )


def _first_object(text: str) -> dict[str, object]:
    start = text.lstrip()
    try:
        found, _ = json.JSONDecoder().raw_decode(start)
    except (json.JSONDecodeError, RecursionError):
        return {}
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, dict) else {}
