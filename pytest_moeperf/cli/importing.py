"""``moeperf import``: numbers that other tools measured, as baselines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_moeperf.cli.commands import DONE, Commands, add_baselines_option
from pytest_moeperf.cli.configuration import settings_here, store_at
from pytest_moeperf.cli.output import print_lines, width
from pytest_moeperf.cli.values import number_above_zero, whole_number
from pytest_moeperf.model.workload import ENGINES

if TYPE_CHECKING:
    from pytest_moeperf.baselines import BaselineStore
    from pytest_moeperf.baselines.importers import Missing
    from pytest_moeperf.model.baseline import Baseline

FORMATS = ("sglang-json", "sglang-one-batch-json", "bench-text", "vllm-json", "aiperf-json", "table-toml", "table-csv")
"""Those of ``baselines.importers``, which is too heavy for a help text."""

_WORKLOAD = {
    "concurrency": "requests in flight at once",
    "input_len": "tokens of each prompt",
    "output_len": "tokens that each request generated",
    "num_prompts": "requests in a run",
    "seed": "seed of the prompts",
}


def add(commands: Commands) -> None:
    parser = commands.add(
        "import",
        run=run,
        summary="take results of other tools as baselines",
        description="Take results of sglang.bench_serving or bench_one_batch_server, vLLM, AIPerf, or a table that "
        "somebody wrote down, as "
        "baselines. Nothing is invented: what a file doesn't say stays unknown and is listed. An imported "
        "baseline shows where one stood, and is INCOMPARABLE to a new run wherever a blocking field is unknown.",
        example="moeperf import results.jsonl --backend=flashinfer_cutlass\nmoeperf import sweep.toml --dry-run",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a result file; one file may hold many cells")
    parser.add_argument("--format", metavar="FORMAT", default="auto", help=f"auto, or one of {', '.join(FORMATS)}")
    parser.add_argument("--engine", choices=ENGINES, default="", help="default: what the file says")
    parser.add_argument("--model", default="", help="default: what the file says")
    parser.add_argument("--backend", metavar="NAME", default="", help="default: what the file says")
    for name, meaning in _WORKLOAD.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="N",
            type=whole_number(0 if name == "seed" else 1),
            help=f"{meaning}, where the file doesn't say",
        )
    parser.add_argument(
        "--request-rate", metavar="R", type=number_above_zero, help="requests/s of an open loop; inf: a closed loop"
    )
    parser.add_argument("--provenance", metavar="TEXT", default="", help="where the numbers come from")
    parser.add_argument("--dry-run", action="store_true", help="say what would be stored, and store nothing")
    add_baselines_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.baselines.importers import import_results

    store = store_at(settings_here(), args.baselines)
    stated = {name: value for name in (*_WORKLOAD, "request_rate") if (value := getattr(args, name)) is not None}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    # All files are read before anything is stored: one that can't be read leaves the store as it was.
    results = [
        import_results(
            file,
            at=at,
            file_format=args.format,
            engine=args.engine,
            model=args.model,
            backend=args.backend,
            workload=stated,
            provenance=args.provenance,
        )
        for file in args.files
    ]
    for file, result in zip(args.files, results, strict=True):
        cells = len(result.baselines)
        print_lines([f"{file}: {cells} cell{'s' * (cells != 1)}, in the form {result.format}"])
        for baseline in result.baselines:
            where = "not stored (--dry-run)" if args.dry_run else _stored(baseline, store)
            runs = len(baseline.runs)
            print_lines([f"  {baseline.cell.label}: {runs} run{'s' * (runs != 1)}", f"    {where}"])
        print_lines(_said(result.missing, result.notes, width=width()))
    return DONE


def _said(missing: tuple[Missing, ...], notes: tuple[str, ...], *, width: int) -> Iterator[str]:
    from pytest_moeperf.reporting.text import safe, wrap

    cells_of: dict[tuple[str, str], list[str]] = {}
    for found in missing:
        cells_of.setdefault((found.field, found.why), []).append(found.cell)
    every = len({found.cell for found in missing})
    if missing:
        yield "  unknown, and equal to nothing:"
    for (field, why), cells in cells_of.items():
        where = "" if len(cells) == every else f" ({', '.join(cells)})"
        yield from wrap(f"{field}: {safe(why)}{where}", width=width, first="    ", rest="      ")
    for note in notes:
        yield from wrap(f"note: {safe(note)}", width=width, first="  ", rest="    ")


def _stored(baseline: Baseline, store: BaselineStore) -> str:
    """Its path. What was imported before is there already: its history gets no second event."""
    path = store.path_of(baseline)
    found = store.find(engine=baseline.engine, model=baseline.model, cell=baseline.cell)
    there = {run.id for entry in found if entry.path == path for run in entry.baseline.runs}
    return path if {run.id for run in baseline.runs} <= there else store.save(baseline).path
