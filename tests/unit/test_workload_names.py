"""What a workload is called: by every field that is not its default, and stored ones are still found."""

from __future__ import annotations

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.baselines.naming import earlier_path, relative_path
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.workload import Cell, Workload


@pytest.mark.parametrize(
    ("fields", "key", "label"),
    [
        ({}, "c10-in512-out128", "c=10 512/128"),
        ({"num_prompts": 40}, "c10-in512-out128", "c=10 512/128"),
        ({"num_prompts": 120}, "c10-in512-out128-n120", "c=10 512/128 n=120"),
        ({"seed": 3}, "c10-in512-out128-seed3", "c=10 512/128 seed=3"),
        ({"request_rate": 2.5}, "c10-in512-out128-r2.5", "c=10 512/128 2.5/s"),
        ({"shared_prefix_len": 128}, "c10-in512-out128-prefix128", "c=10 512/128 prefix=128"),
        (
            {"num_prompts": 99, "seed": 1, "request_rate": 2.0, "shared_prefix_len": 8},
            "c10-in512-out128-r2-prefix8-n99-seed1",
            "c=10 512/128 2/s prefix=8 n=99 seed=1",
        ),
    ],
)
def test_every_field_is_in_the_name(fields: dict[str, float], key: str, label: str) -> None:
    workload = Workload(concurrency=10, **fields)  # type: ignore[arg-type]
    assert (workload.key, workload.label) == (key, label)


def test_a_file_with_the_name_of_before_is_found_and_stays_where_it_is(tmp_path: object) -> None:
    store = FileStore(str(tmp_path))
    cell = Cell(backend="triton", workload=Workload(concurrency=2, num_prompts=32))
    run = StoredRun(id="r1", session="s", launch="l", started_at="2026-11-30T00:00:00Z", values={"throughput": 10.0})
    baseline = Baseline(
        engine="sglang",
        model="m",
        cell=cell,
        fingerprint=Fingerprint(workload=cell.workload.as_fields()),
        evidence=Evidence(),
        runs=(run,),
        anchor=(run,),
    )
    saved = store.save(baseline)
    assert saved.path.endswith(relative_path(baseline))
    assert "c2-in512-out128-n32@" in saved.path
    earlier = FileStore(str(tmp_path))._root / earlier_path(baseline)
    FileStore(str(tmp_path))._root.joinpath(relative_path(baseline)).rename(earlier)
    (found,) = store.find(engine="sglang", model="m", cell=cell)
    assert (found.path, found.baseline) == (str(earlier), baseline)
    assert store.save(baseline).path == str(earlier)
    assert store.all() == (found,)
