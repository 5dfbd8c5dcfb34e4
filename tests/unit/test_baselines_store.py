"""One contract, both stores: what holds for the files holds in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_moeperf.baselines import BaselineStore, FileStore, MemoryStore
from pytest_moeperf.baselines.naming import model_slug, relative_path, slug
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun
from pytest_moeperf.model.bounds import METRICS
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.workload import Cell, Workload

CELL = Cell(backend="triton", workload=Workload(concurrency=10))
MODEL = "zai-org/GLM-5-NVFP4"


def stored(name: str, *, session: str = "s1", tok_s: float = 100.0, at: str = "2026-11-01T10:00:00Z") -> StoredRun:
    return StoredRun(
        id=name, session=session, launch=f"{session}-l1", started_at=at, values={"throughput": tok_s, "tpot": 12.5}
    )


def event(kind: str = "recorded", *, at: str = "2026-11-01T10:05:00Z", reason: str = "first") -> BaselineEvent:
    return BaselineEvent(at=at, kind=kind, reason=reason, runs=1, change={})


def baseline(*runs: StoredRun, gpu: str | None = "H200", history: tuple[BaselineEvent, ...] = (event(),)) -> Baseline:
    return Baseline(
        engine="sglang",
        model=MODEL,
        cell=CELL,
        fingerprint=Fingerprint(workload={"num_prompts": 40}, hardware={"gpu": gpu}, software={"cuda": None}),
        evidence=Evidence(status="confirmed", requested="triton", runner="triton"),
        runs=runs,
        anchor=runs[:1],
        history=history,
    )


def compare(stored_one: Fingerprint, here: Fingerprint) -> tuple[Difference, ...]:
    """Strict on every field, so that the number of differences can be chosen by a test."""
    fields = [(group, key) for group in ("workload", "hardware") for key in {**getattr(stored_one, group)}]
    return tuple(
        Difference(field=f"{group}.{key}", baseline=str(old), here=str(new), blocking=True)
        for group, key in fields
        if (old := getattr(stored_one, group).get(key)) != (new := getattr(here, group).get(key))
    )


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BaselineStore:
    return FileStore(tmp_path / "baselines") if request.param == "files" else MemoryStore()


def test_what_is_saved_is_found_again(store: BaselineStore) -> None:
    assert store.find(engine="sglang", model=MODEL, cell=CELL) == ()
    saved = store.save(baseline(stored("r1"), stored("r2", tok_s=101.5)))
    assert saved.baseline == baseline(stored("r1"), stored("r2", tok_s=101.5))
    assert store.find(engine="sglang", model=MODEL, cell=CELL) == (saved,)
    assert store.all() == (saved,)
    assert saved.path.endswith(relative_path(saved.baseline))


def test_only_the_same_cell_is_found(store: BaselineStore) -> None:
    store.save(baseline(stored("r1")))
    other_load = replace(CELL, workload=Workload(concurrency=64))
    assert store.find(engine="sglang", model=MODEL, cell=other_load) == ()
    assert store.find(engine="sglang", model=MODEL, cell=replace(CELL, backend="cutlass")) == ()
    assert store.find(engine="simulated", model=MODEL, cell=CELL) == ()
    assert store.find(engine="sglang", model="other/model", cell=CELL) == ()


def test_a_different_number_of_prompts_is_found_and_left_to_the_comparison(store: BaselineStore) -> None:
    saved = store.save(baseline(stored("r1")))
    cell = replace(CELL, workload=Workload(concurrency=10, num_prompts=7))
    assert store.find(engine="sglang", model=MODEL, cell=cell) == (saved,)


def test_baselines_of_two_fingerprints_live_side_by_side(store: BaselineStore) -> None:
    one = store.save(baseline(stored("r1"), gpu="H200"))
    two = store.save(baseline(stored("r2"), gpu="H100"))
    assert one.path != two.path
    assert store.find(engine="sglang", model=MODEL, cell=CELL) == tuple(
        sorted([one, two], key=lambda entry: entry.path)
    )


def test_the_comparable_one_matches_and_not_a_newer_one(store: BaselineStore) -> None:
    here = baseline(stored("r1")).fingerprint
    comparable = store.save(baseline(stored("r1")))
    store.save(baseline(stored("r2"), gpu="H100", history=(event(at="2026-12-24T00:00:00Z"),)))
    match = store.match(engine="sglang", model=MODEL, cell=CELL, fingerprint=here, compare=compare)
    assert (match.path, match.baseline, match.comparable) == (comparable.path, comparable.baseline, True)


def test_of_two_comparable_ones_the_newer_matches(store: BaselineStore) -> None:
    store.save(baseline(stored("r1"), gpu="a"))
    newer = store.save(baseline(stored("r2"), gpu="b", history=(event(at="2026-12-24T00:00:00Z"),)))
    store.save(baseline(stored("r3"), gpu="c"))
    match = store.match(
        engine="sglang", model=MODEL, cell=CELL, fingerprint=Fingerprint(), compare=lambda _stored, _here: ()
    )
    assert match.path == newer.path


def test_without_a_comparable_one_the_nearest_comes_with_its_differences(store: BaselineStore) -> None:
    far = replace(baseline(stored("r1")), fingerprint=Fingerprint(workload={"num_prompts": 9}, hardware={"gpu": "A"}))
    store.save(replace(far, history=(event(at="2026-12-24T00:00:00Z"),)))
    near = store.save(baseline(stored("r2"), gpu="A"))
    here = Fingerprint(workload={"num_prompts": 40}, hardware={"gpu": "B"})
    match = store.match(engine="sglang", model=MODEL, cell=CELL, fingerprint=here, compare=compare)
    assert match.path == near.path
    assert not match.comparable
    assert match.differences == (Difference(field="hardware.gpu", baseline="A", here="B", blocking=True),)


def test_nothing_of_this_shape_matches_nothing(store: BaselineStore) -> None:
    match = store.match(engine="sglang", model=MODEL, cell=CELL, fingerprint=Fingerprint(), compare=compare)
    assert (match.baseline, match.path, match.differences, match.comparable) == (None, "", (), False)


def test_orphans_are_those_that_no_cell_finds(store: BaselineStore) -> None:
    used = store.save(baseline(stored("r1")))
    orphan = store.save(replace(baseline(stored("r2")), cell=replace(CELL, workload=Workload(concurrency=3))))
    store.save(replace(baseline(stored("r3")), engine="simulated"))
    assert store.orphans(engine="sglang", model=MODEL, cells=[CELL]) == (orphan,)
    assert store.orphans(engine="sglang", model=MODEL, cells=[]) == (used, orphan)


def test_of_two_recordings_from_the_same_state_no_run_is_lost(store: BaselineStore) -> None:
    first = store.save(baseline(stored("r1"))).baseline
    mine = replace(first, runs=(*first.runs, stored("r2", session="s2")), history=(*first.history, event("extended")))
    other_event = event("extended", at="2026-11-01T10:06:00Z")
    theirs = replace(first, runs=(*first.runs, stored("r3", session="s3")), history=(*first.history, other_event))
    store.save(theirs)
    now = store.save(mine).baseline
    assert {run.id for run in now.runs} == {"r1", "r2", "r3"}
    assert [entry.kind for entry in now.history] == ["recorded", "extended", "extended"]
    assert now.anchor == first.anchor


def test_two_first_recordings_become_one_baseline_with_the_first_anchor(store: BaselineStore) -> None:
    store.save(baseline(stored("r1")))
    now = store.save(
        baseline(stored("r2", session="s2", tok_s=110.0), history=(event(at="2026-11-01T10:06:00Z"),))
    ).baseline
    assert [run.id for run in now.anchor] == ["r1"]
    assert {run.id for run in now.runs} == {"r1", "r2"}
    assert [entry.kind for entry in now.history] == ["recorded", "extended"]
    assert now.history[-1].drift == {"throughput": pytest.approx(0.047655), "tpot": 0.0}


def test_a_level_that_was_moved_meanwhile_is_not_overwritten(store: BaselineStore) -> None:
    first = store.save(baseline(stored("r1"))).baseline
    moved_event = event("moved", at="2026-11-02T09:00:00Z", reason="driver 610")
    moved = store.save(
        replace(first, runs=(stored("r2", tok_s=80.0),), retired=first.runs, history=(*first.history, moved_event))
    )
    mine = replace(first, runs=(*first.runs, stored("r3")), history=(*first.history, event("extended")))
    with pytest.raises(BaselineError) as caught:
        store.save(mine)
    assert str(caught.value) == (
        f"{moved.path}: was changed by somebody else at 2026-11-02T09:00:00Z (moved: driver 610), and one of the two "
        "changes moves the level\n"
        "  next: run again: the new runs have to be held against what is stored now; nothing was written"
    )
    assert store.all() == (moved,)


def test_runs_that_a_writer_leaves_out_are_retired_not_lost(store: BaselineStore) -> None:
    first = store.save(baseline(stored("r1"), stored("r2"))).baseline
    now = store.save(
        replace(first, runs=(stored("r3", tok_s=80.0),), history=(*first.history, event("moved")))
    ).baseline
    assert [run.id for run in now.runs] == ["r3"]
    assert [run.id for run in now.anchor] == ["r1"]
    assert [run.id for run in now.retired] == ["r2"]


def test_the_stored_anchor_is_frozen(store: BaselineStore) -> None:
    first = store.save(baseline(stored("r1"))).baseline
    other = stored("r9", tok_s=1.0)
    now = store.save(replace(first, runs=(other,), anchor=(other,), history=(*first.history, event("moved")))).baseline
    assert [run.id for run in now.anchor] == ["r1"]


def test_an_old_copy_that_is_saved_again_changes_nothing(store: BaselineStore) -> None:
    first = store.save(baseline(stored("r1"))).baseline
    extended = store.save(replace(first, runs=(*first.runs, stored("r2")), history=(*first.history, event("extended"))))
    assert store.save(first) == extended


@pytest.mark.parametrize("value", [0.0, -3.0, float("nan"), float("inf")])
def test_values_that_are_no_measurements_are_refused_and_the_old_runs_stay(store: BaselineStore, value: float) -> None:
    before = store.save(baseline(stored("r1")))
    bad = replace(before.baseline, runs=(*before.baseline.runs, stored("r2", tok_s=value)))
    with pytest.raises(BaselineError) as caught:
        store.save(bad)
    assert str(caught.value) == (
        f"{before.path}: run r2 has throughput = {value:g}, which is not a measurement (finite and above 0)\n"
        "  next: leave this run out: nothing can be held against it"
    )
    assert store.all() == (before,)


def test_a_baseline_without_runs_or_values_or_with_a_made_up_metric_is_refused(store: BaselineStore) -> None:
    one = stored("r1")
    for bad, problem in (
        (baseline(), "has no runs"),
        (baseline(replace(one, values={})), "run r1 has no values"),
        (
            baseline(replace(one, values={"speed": 1.0})),
            f"run r1 has a value for 'speed', which is not a metric (they are {', '.join(METRICS)})",
        ),
        (baseline(replace(one, start_s=-1.0)), "run r1 has start_s = -1, which is not a duration"),
        (baseline(one, one), "holds a run twice in one list"),
        (replace(baseline(one), retired=(stored("r1", tok_s=7.0),)), "holds two different runs with the id r1"),
    ):
        with pytest.raises(BaselineError) as caught:
            store.save(bad)
        assert caught.value.problem == problem
    assert store.all() == ()


def test_a_credential_is_not_written_and_not_shown(store: BaselineStore) -> None:
    key = "sk-" + "a1b2c3d4" * 4
    leaking = replace(baseline(stored("r1")), fingerprint=Fingerprint(server={"args": f"--api-key {key}"}))
    with pytest.raises(BaselineError) as caught:
        store.save(leaking)
    assert caught.value.message().partition(": ")[2] == (
        "not written: $.fingerprint.server.args holds what looks like a credential\n"
        "  next: take it out of what was given (server arguments, --perf-reason), and revoke it if it was shown"
    )
    assert store.all() == ()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("zai-org/GLM-5-NVFP4", "zai-org--GLM-5-NVFP4"),
        ("/models/GLM-5", "GLM-5"),
        ("/data/GLM-5/", "GLM-5"),
        ("../../etc/passwd", "passwd"),
        ("", "unnamed-model"),
    ],
)
def test_models_have_readable_names_that_stay_in_the_store(model: str, expected: str) -> None:
    assert model_slug(model) == expected


@pytest.mark.parametrize("text", ["..", ".", ".hidden", "a b", "a\x00b", "a/b", "käse", "x" * 500, "-rf"])
def test_no_name_leaves_its_folder_or_hides(text: str) -> None:
    name = slug(text)
    assert name
    assert name == Path(name).name
    assert not name.startswith((".", "-"))
    assert name.isascii()
    assert len(name) <= 107


def test_names_that_lose_characters_stay_apart() -> None:
    assert slug("a b") != slug("a-b")
    assert slug("x" * 500) != slug("x" * 501)
