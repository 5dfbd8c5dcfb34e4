"""Profiles: what is shipped, how step times are read, and the whole text of every error."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pytest_moeperf.engines.simulated.profile import Profile, StepTimes, load_profile, profile_names
from pytest_moeperf.errors import UsageProblem


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_profiles_load_under_their_own_names() -> None:
    assert profile_names() == ("auto", "flashinfer_cutedsl", "flashinfer_cutlass", "triton", "triton_kernel")
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.runner == ("triton" if name == "auto" else name)
        assert profile.traces.kernels
        assert profile.hardware == "simulated"
        assert 4.0 <= profile.step.decode_ms(1) <= 8.0
        assert max(profile.noise.session_sd, profile.noise.launch_sd, profile.noise.run_sd) <= 0.005


def test_step_time_is_linear_without_points() -> None:
    times = StepTimes(a_ms=5.0, b_ms=0.5)
    assert times.decode_ms(1) == 5.5
    assert times.decode_ms(10) == 10.0


@pytest.mark.parametrize(
    ("running", "expected_ms"), [(1, 4.0), (2, 4.0), (3, 5.0), (4, 6.0), (5, 6.5), (8, 8.0), (12, 10.0)]
)
def test_points_are_interpolated_and_the_last_slope_goes_on(running: int, expected_ms: float) -> None:
    times = StepTimes(points=((2.0, 4.0), (4.0, 6.0), (8.0, 8.0)))
    assert times.decode_ms(running) == pytest.approx(expected_ms)


def test_one_point_is_a_constant() -> None:
    assert StepTimes(points=((8.0, 3.0),)).decode_ms(100) == 3.0


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = write(tmp_path, 'runner = "triton"\n[step]\na_ms = 2\npoints = [[1, 2.0], [64, 9]]\n[warmup]\nruns = 2\n')
    profile = load_profile(path)
    assert (profile.name, profile.runner) == ("mine", "triton")
    assert profile.step == StepTimes(a_ms=2.0, points=((1.0, 2.0), (64.0, 9.0)))
    assert profile.warmup.runs == 2


def test_toml_and_json_of_the_same_values_are_the_same_profile(tmp_path: Path) -> None:
    shipped = load_profile("triton")
    again = load_profile(write(tmp_path, json.dumps(shipped.to_dict()), "copy.json"))
    assert again == shipped
    assert again.digest() == shipped.digest()


def test_the_digest_depends_on_every_part() -> None:
    base = Profile(name="x", runner="triton")
    variants = [
        base,
        dataclasses.replace(base, name="y"),
        dataclasses.replace(base, hardware="other"),
        dataclasses.replace(base, step=StepTimes(b_ms=0.021)),
        dataclasses.replace(base, noise=dataclasses.replace(base.noise, run_sd=0.1)),
        dataclasses.replace(base, traces=dataclasses.replace(base.traces, kernels=("k",))),
    ]
    assert len({variant.digest() for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "{path}: the key runner is missing\n  allowed: runner = the MoE runner that is executed"),
        (
            'runner = "t"\n[step]\na_ms = "fast"\n',
            "{path}: [step] a_ms: 'fast' is not right\n  allowed: a number above 0",
        ),
        ('runner = "t"\n[step]\na_ms = 0\n', "{path}: [step] a_ms: 0 is not right\n  allowed: a number above 0"),
        (
            'runner = "t"\n[step]\nb_ms = true\n',
            "{path}: [step] b_ms: True is not right\n  allowed: a number of at least 0",
        ),
        (
            'runner = "t"\n[step]\npoints = [[4, 1.0], [2, 1.0]]\n',
            (
                "{path}: [step] points: [[4, 1.0], [2, 1.0]] is not right\n"
                "  allowed: a list of [running requests, step ms] pairs, the requests rising"
            ),
        ),
        (
            'runner = "t"\n[noise]\nrun_sd = 1.0\n',
            "{path}: [noise] run_sd: 1.0 is not right\n  allowed: a number of at least 0 and below 1",
        ),
        (
            'runner = "t"\n[warmup]\nruns = 1.5\n',
            "{path}: [warmup] runs: 1.5 is not right\n  allowed: a whole number of at least 0",
        ),
        (
            'runner = "t"\n[warmup]\nslow = 1\n',
            "{path}: [warmup]: unknown key 'slow'\n  allowed: runs, factor, compile_stall_ms",
        ),
        (
            'runner = "t"\nspeed = 1\n',
            "{path}: unknown key 'speed'\n  allowed: name, runner, description, hardware, step, noise, warmup, traces",
        ),
        ('runner = "t"\nstep = 1\n', "{path}: step: 1 is not a table\n  allowed: [step]"),
        ('runner = ""\n', "{path} runner: '' is not right\n  allowed: a text"),
        ('runner = "t"\n[traces]\nlog = "x"\n', "{path}: [traces] log: 'x' is not right\n  allowed: a list of texts"),
        ("runner = \n", "{path}: the profile is not valid TOML: Invalid value (at line 1, column 10)"),
    ],
)
def test_a_bad_file_is_named_with_key_value_and_what_is_allowed(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageProblem) as caught:
        load_profile(path)
    assert str(caught.value) == expected.format(path=path)


def test_a_missing_file_and_an_unknown_name(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(UsageProblem) as caught:
        load_profile(missing)
    assert str(caught.value) == f"{missing}: the profile can't be read: No such file or directory"
    with pytest.raises(UsageProblem) as caught:
        load_profile("tritom")
    assert str(caught.value) == (
        "simulated profile: no profile is named 'tritom'\n"
        "  allowed: auto, flashinfer_cutedsl, flashinfer_cutlass, triton, triton_kernel, "
        "or the path of a .toml or .json file"
    )


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageProblem) as caught:
        load_profile(path)
    assert str(caught.value) == f"{path}: the profile is not UTF-8 text: invalid start byte"
