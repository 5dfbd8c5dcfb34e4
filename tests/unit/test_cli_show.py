"""``moeperf show``: whole texts at 80 columns, from stores that the product wrote."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import BOUNDS, ENGINE, MODEL, cell, decided, evidence, fingerprint, moeperf, record, runs

from pytest_moeperf.baselines import FileStore, Update, propose_update, stored_runs
from pytest_moeperf.baselines.importers import import_results
from pytest_moeperf.model.verdict import Verdict

HERE = Path("baselines")


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


LEGEND = """\
stored: sessions x launches in each; *: provisional (fewer than 4 launches in 2
  sessions): sd assumed, not known.
sd: of the throughput between sessions/launches/runs, estimated from the stored
  runs; -: they can't show it.
drift: of the throughput, from the first level recorded.
"""


def test_the_table() -> None:
    record(HERE, cell(64), days=[1])
    record(HERE, cell(10), days=[1, 2, 3, 4])
    record(HERE, cell(1), days=[2, 3])
    record(HERE, cell(10, "flashinfer_cutedsl"), days=[5])
    ran = moeperf("show")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
flashinfer_cutedsl (simulated, moe-64x8)
  cell          stored   tok/s  sd [%]       drift  last change
  c=10 512/128  1 x 2 *  2222   -/0.30/0.09  0.0 %  2024-11-05 recorded

triton (simulated, moe-64x8)
  cell          stored   tok/s  sd [%]          drift   last change
  c=1 512/128   2 x 2    362    0.69/0.23/0.08  -0.5 %  2024-11-03 extended
  c=10 512/128  4 x 2    2211   0.00/0.42/0.10  +0.1 %  2024-11-04 extended
  c=64 512/128  1 x 2 *  11.6k  -/0.32/0.15     0.0 %   2024-11-01 recorded

"""
        + LEGEND
    )


def test_two_baselines_of_one_cell_are_told_apart_and_named_one_by_one() -> None:
    record(HERE, cell(10), days=[1, 2])
    record(HERE, cell(10), days=[9], given=fingerprint(cell(10), driver="590.1"), factor=0.9)
    ran = moeperf("show", "triton/c10-in512-out128")
    assert (
        ran.out
        == """\
triton (simulated, moe-64x8)
  cell                stored   tok/s  sd [%]          drift   last change
  c=10 512/128 @14cd  1 x 2 *  1973   -/0.52/0.16     0.0 %   2024-11-09 recorded
  c=10 512/128 @8529  2 x 2    2207   0.00/0.58/0.12  -0.1 %  2024-11-02 extended

"""
        + LEGEND
    )
    assert moeperf("show", "triton/c10-in512-out128@14").out.startswith("triton c=10 512/128")


def test_one_cell_in_detail() -> None:
    path = record(HERE, cell(), days=[1, 2])
    stored = FileStore(HERE).all()[0].baseline
    update = propose_update(
        stored,
        stored_runs(runs(cell(), day=7, launches=3, factor=0.94)),
        engine=ENGINE,
        model=MODEL,
        bounds=BOUNDS,
        decision=decided(cell(), Verdict.REGRESSION, estimate=-0.06),
        fingerprint=fingerprint(cell()),
        evidence=evidence(cell()),
        max_drift=0.1,
        by="moeperf accept",
        at="2024-11-07T12:00:00+00:00",
        reason="slower since the security fix in 0.5.15",
    )
    assert isinstance(update, Update)
    FileStore(HERE).save(update.baseline)
    ran = moeperf("show", path)
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
triton c=10 512/128 (simulated, moe-64x8)
  baselines/simulated/moe-64x8/triton/c10-in512-out128@85291ea3.json
  stored: 1 x 3 (sessions x launches in each), 9 runs, provisional: sd between
    sessions assumed, not known

metric      level       sd [%] session  launch  run   drift
throughput  2073 tok/s  -               0.33    0.11  -6.1 %
tpot        4.82 ms     -               0.33    0.11  +6.5 %
sd of the throughput, 90 % intervals: sessions not known, launch means 0.19 to
  1.49 %, runs 0.08 to 0.21 %

history
  2024-11-01T11:00:00  recorded, 6 runs, by --update-baselines; reason: first
  2024-11-02T11:00:00  extended, 6 runs, by --update-baselines; throughput
      -0.1 % (drift 0.0 %); tpot +0.1 % (drift +0.1 %); reason: EQUIVALENT
  2024-11-07T12:00:00  moved, 9 runs, by moeperf accept; throughput -6.1 %
      (drift -6.1 %); tpot +6.4 % (drift +6.5 %); reason given: slower since the
      security fix in 0.5.15
change points of the throughput over 7 launches
  2024-11-07T10:01:00  -6.1 % from launch d7-1

launches, oldest first
  started              session  launch  runs  tok/s  start   level
  2024-11-01T10:01:00  d1       d1-1    3     2220   12.1 s  retired, anchor
  2024-11-01T10:02:00  d1       d1-2    3     2195   12.2 s  retired, anchor
  2024-11-02T10:01:00  d2       d2-1    3     2203   12.1 s  retired
  2024-11-02T10:02:00  d2       d2-2    3     2208   12.2 s  retired
  2024-11-07T10:01:00  d7       d7-1    3     2077   12.1 s  current
  2024-11-07T10:02:00  d7       d7-2    3     2065   12.2 s  current
  2024-11-07T10:03:00  d7       d7-3    3     2077   12.3 s  current

ran: triton (confirmed)
  confirmed: server log line 32: "Using default MoE kernel config"

fingerprint
  the workload
    concurrency: 10
    dataset: random-ids
    prompt length (tokens): 512
    number of prompts in a run: 40
    output length (tokens): 128
    request rate: none (closed loop)
    seed of the prompts: 0
    shared prefix (tokens): 0
  the server's resolved arguments
    --moe-runner-backend: triton
    --num-continuous-decode-steps: 1
    --tp-size: 8
  software versions
    engine: simulated
    engine version: 0.5.14
  the hardware
    GPU driver: 580.95
    number of GPUs: 8
    GPU: RTX PRO 6000
  the machine's settings
    cpu governor: performance
    kernel: 6.14.11
"""
    )
    assert moeperf("show", "triton/c10-in512-out128").out == ran.out
    assert moeperf("show", "triton c=10").out == ran.out


def test_without_the_library_change_points_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    record(HERE, cell(), days=[1, 2])
    ran = moeperf("show", "triton/c10")
    assert ran.code == 0
    assert (
        "\nchange points: not looked for, ruptures is not installed: pip install\n  'pytest-moeperf[report]'\n"
        in ran.out
    )


def test_an_imported_cell_says_what_nobody_knows() -> None:
    Path("sweep.csv").write_text("backend,model,concurrency,input_len,output_len,tpot\nmarlin,m,2,512,128,95.14\n")
    result = import_results("sweep.csv", at="2024-11-01T10:00:00+00:00", provenance="a report of\x1b[31m October")
    FileStore(HERE).save(result.baselines[0])
    assert (
        moeperf("show").out
        == """\
marlin (attached, m)
  cell         stored   tok/s  sd [%]  drift  last change
  c=2 512/128  1 x 1 *  -      -       -      2024-11-01 imported

"""
        + LEGEND
    )
    assert (
        moeperf("show", "marlin").out
        == """\
marlin c=2 512/128 (attached, m)
  baselines/attached/m/marlin/c2-in512-out128@7a31ef36.json
  stored: 1 x 1 (sessions x launches in each), 1 run, provisional: sd between
    sessions assumed, not known
  imported from: a report of October

metric  level    sd [%] session  launch  run  drift
tpot    95.1 ms  -               -       -    0.0 %

history
  2024-11-01T10:00:00  imported, 1 run, by moeperf import; reason: a report of
      October
change points: not looked for, 0 launches are fewer than 4

launches, oldest first
  started  session   launch    runs  tok/s  start  level
  -        imported  imported  1     -      -      current, anchor

ran: marlin (unknown)
  looked for: the server's log, a kernel profile

fingerprint
  the workload
    concurrency: 2
    dataset: unknown
    prompt length (tokens): 512
    number of prompts in a run: unknown
    output length (tokens): 128
    request rate: unknown
    seed of the prompts: unknown
    shared prefix (tokens): unknown
    token ids that prompts are made of: unknown
  the server's resolved arguments
    model: m
  not known: software versions, the hardware, the machine's settings
"""
    )


def test_an_empty_store_names_the_next_step() -> None:
    ran = moeperf("show")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "no baselines in baselines\n  next: pytest -m perf --backend=NAME --update-baselines\n"


def test_a_cell_that_is_not_there_lists_those_that_are() -> None:
    record(HERE, cell(1), days=[1])
    record(HERE, cell(10), days=[1])
    ran = moeperf("show", "triton/c100")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "moeperf show: triton/c100: names no baseline in baselines\n"
        "  allowed: triton/c1-in512-out128, triton/c10-in512-out128\n"
    )


def test_a_name_that_is_a_whole_one_does_not_mean_longer_ones() -> None:
    record(HERE, cell(1), days=[1])
    other = cell(10)
    record(HERE, replace(other, workload=replace(other.workload, output_len=1280)), days=[1])
    record(HERE, other, days=[1])
    assert moeperf("show", "triton/c10-in512-out128").out.startswith("triton c=10 512/128 (simulated, moe-64x8)\n")
    assert moeperf("show", "triton/c10-in512-out128x").code == 2


def test_the_configuration_says_where_and_a_flag_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("moeperf.toml").write_text('baselines = "perf/stored"\n')
    record(Path("perf/stored"), cell(), days=[1])
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep/er")
    assert "c=10 512/128" in moeperf("show").out
    assert moeperf("show", "--baselines=none").out.startswith("no baselines in none\n")
    assert "c=10 512/128" in moeperf("show", "../../perf/stored").out


def test_a_broken_file_is_named_and_nothing_else_shown() -> None:
    path = record(HERE, cell(), days=[1])
    Path(path).write_text(Path(path).read_text()[:200])
    for arguments in (("show",), ("show", path)):
        ran = moeperf(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"moeperf show: {path}: is cut off or broken: ")
    assert moeperf("show", "away.json").err == "moeperf show: away.json: can't be read: No such file or directory\n"


def test_a_stray_file_costs_a_warning() -> None:
    record(HERE, cell(), days=[1])
    (Path(HERE) / "notes.json").write_text("{}")
    for arguments in (("show",), ("show", "triton/c10")):
        ran = moeperf(*arguments)
        assert ran.code == 0
        assert "c=10 512/128" in ran.out
        assert ran.err.startswith(f"left out: {HERE}/notes.json: ")


def test_json_has_the_whole_baseline_and_what_is_computed() -> None:
    path = record(HERE, cell(), days=[1, 2])
    (found,) = json.loads(moeperf("show", "--json").out)
    assert list(found) == ["path", "cell", "sessions", "launches", "provisional", "levels", "baseline"]
    assert found["path"] == path
    assert (found["cell"], found["sessions"], found["launches"], found["provisional"]) == (
        "triton/c10-in512-out128",
        2,
        4,
        False,
    )
    throughput = found["levels"][0]
    assert (throughput["key"], throughput["unit"]) == ("throughput", "tok/s")
    values = [run["values"]["throughput"] for run in found["baseline"]["runs"]]
    assert min(values) < throughput["level"] < max(values)
    assert len(values) == 12


def test_estimated_spreads_are_those_of_the_runs() -> None:
    """Launches that differ by 3 % with runs that repeat themselves: all of it is the launches'."""
    made = [
        replace(run, metrics=replace(run.metrics, out_tps_steady=1000.0 * (1.03 if run.launch.id.endswith("2") else 1)))
        for day in (1, 2)
        for run in runs(cell(), day=day)
    ]
    update = propose_update(
        None,
        stored_runs(made),
        engine=ENGINE,
        model=MODEL,
        bounds=BOUNDS,
        decision=decided(cell(), Verdict.NO_BASELINE),
        fingerprint=fingerprint(cell()),
        evidence=evidence(cell()),
        max_drift=0.1,
        by="--update-baselines",
        at="2024-11-02T11:00:00+00:00",
    )
    assert isinstance(update, Update)
    FileStore(HERE).save(update.baseline)
    row = next(line for line in moeperf("show").out.splitlines() if "c=10" in line)
    # ln(1.03) / sqrt(2) = 0.0209
    assert row.split() == [
        "c=10",
        "512/128",
        "2",
        "x",
        "2",
        "1015",
        "0.00/2.09/0.00",
        "0.0",
        "%",
        "2024-11-02",
        "recorded",
    ]
