"""Which GPUs a server gets."""

from __future__ import annotations

import pytest

from pytest_moeperf.bench import place as place_module
from pytest_moeperf.bench.devices import Gpu, device_sets, visible
from pytest_moeperf.bench.place import place_of
from pytest_moeperf.model.environment import EnvironmentFacts
from pytest_moeperf.model.spec import ServerSpec

GPUS = tuple(Gpu(index=index, uuid=f"GPU-{letter}", name="H200") for index, letter in enumerate("abcdefgh"))


def uuids(gpus: tuple[Gpu, ...]) -> str:
    return "".join(gpu.uuid.removeprefix("GPU-") for gpu in gpus)


@pytest.mark.parametrize(
    ("size", "sets"),
    [(1, [*"abcdefgh"]), (2, ["ab", "cd", "ef", "gh"]), (3, ["abc", "def"]), (8, ["abcdefgh"]), (9, [])],
)
def test_sets_are_disjoint_and_of_one_size(size: int, sets: list[str]) -> None:
    assert [uuids(each) for each in device_sets(GPUS, size=size)] == sets


def test_only_visible_gpus_are_shared_out() -> None:
    seen = visible(GPUS, {"CUDA_VISIBLE_DEVICES": "6,GPU-b,3,nonsense,0"})
    assert uuids(seen) == "gbd"
    assert [uuids(each) for each in device_sets(seen, size=1)] == ["g", "b", "d"]


@pytest.fixture(autouse=True)
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "gpus_of_this_host", lambda: GPUS)
    monkeypatch.setattr(
        place_module,
        "read_environment",
        lambda **_: EnvironmentFacts(hardware={}, software={}, environment={}),
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def place_text(*, turn: int | None, tensor_parallel: int = 2, **fields: object) -> str:
    spec = ServerSpec(engine="sglang", backend="triton", tensor_parallel=tensor_parallel, **fields)  # type: ignore[arg-type]
    place = place_of(spec, turn=turn)
    return f"{uuids(place.gpus)} {place.chosen} {place.device_sets}"


def test_without_being_asked_every_server_uses_the_first_gpus() -> None:
    assert place_text(turn=None) == "ab False 1"


def test_each_process_has_its_own_set_as_long_as_there_are_some() -> None:
    assert [place_text(turn=turn) for turn in range(5)] == [
        "ab True 4",
        "cd True 4",
        "ef True 4",
        "gh True 4",
        "ab True 4",
    ]


def test_too_few_gpus_for_two_servers_are_one_set() -> None:
    assert [place_text(turn=turn, tensor_parallel=8) for turn in (0, 1)] == ["abcdefgh False 1"] * 2
    assert place_text(turn=1, tensor_parallel=16) == "abcdefgh False 1"


def test_a_node_takes_the_gpus_of_its_share() -> None:
    assert place_text(turn=None, tensor_parallel=4, nnodes=2, launcher="ssh", hosts=("node1",)) == "ab False 1"
    assert place_text(turn=None, tensor_parallel=4, nnodes=2) == "abcd False 1"


def test_engines_without_a_gpu_get_none() -> None:
    assert place_of(ServerSpec(engine="simulated", backend="triton"), turn=1).gpus == ()
