"""The rules files are sound, and the simulated engine's traces say what it plays."""

from __future__ import annotations

import pytest

from pytest_moeperf.engines.simulated.profile import load_profile, profile_names
from pytest_moeperf.evidence import collect
from pytest_moeperf.evidence.rules import load_rules, parse_rules, parse_version

HEAD = 'engine = "x"\nread_in = ["1.0"]\nrunners = ["a"]\n'


@pytest.mark.parametrize("engine", ["sglang", "simulated"])
def test_the_shipped_rules_are_sound(engine: str) -> None:
    book = load_rules(engine)
    assert book is not None
    assert book.engine == engine
    for rule in book.rules:
        assert not rule.since or not rule.until or rule.since <= rule.until, rule.id
        assert bool(rule.note) == (rule.strength == "note"), rule.id
        assert (rule.field != "") == (rule.source == "server_info"), rule.id
        shows = [rule.shows, *rule.same_as] if rule.shows else []
        assert {book.canonical(runner) for runner in shows} <= book.runners, rule.id
        if rule.strength == "proof":
            assert shows or "runner" in rule.pattern.groupindex, rule.id
    assert set(book.aliases.values()) <= book.runners


def test_there_are_no_rules_for_an_engine_that_nobody_read() -> None:
    assert load_rules("attached") is None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('id = "r"\nsource = "log"\npattern = "("\nstrength = "proof"\nwhy = "w"', "r: "),
        ('id = "r"\nsource = "tea leaves"\npattern = "a"\nstrength = "proof"\nwhy = "w"', "needs a source"),
        ('id = "r"\nsource = "log"\npattern = "a"\nstrength = "proof"', "and a why"),
        ('id = "r"\nsource = "log"\npattern = "a"\nstrength = "proof"\nwhy = "w"\ntypo = 1', "typo"),
    ],
)
def test_a_wrong_rule_is_named(rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_rules(HEAD + "[[rule]]\n" + rule)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.5.14", (0, 5, 14)),
        ("0.5.14.post1", (0, 5, 14)),
        ("v0.5.23rc1+cu130", (0, 5, 23)),
        ("simulated-0.1.0", (0, 1, 0)),
        ("0.0.0.dev1+gabc", None),
        ("main", None),
        ("", None),
        (None, None),
    ],
)
def test_versions(text: str | None, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("name", profile_names())
def test_a_simulated_profiles_kernels_confirm_its_runner_and_contradict_others(name: str) -> None:
    profile = load_profile(name)
    for requested in sorted({load_profile(other).runner for other in profile_names()}):
        evidence = collect(
            engine="simulated",
            engine_version="simulated-0.1.0",
            requested=requested,
            device="cuda",
            log_text="\n".join(profile.traces.log),
            server_info={"moe_runner_backend": requested},
            metrics_text=None,
            kernels=profile.traces.kernels,
        )
        assert evidence.status == ("confirmed" if requested == profile.runner else "contradicted")
        assert evidence.runner == profile.runner


def test_a_simulated_silent_fallback_is_contradicted_by_what_the_server_says() -> None:
    info = {"moe_runner_backend": "flashinfer_cutedsl", "simulated": {"executed_runner": "triton"}}
    evidence = collect(
        engine="simulated",
        engine_version=None,
        requested="flashinfer_cutedsl",
        device="cpu",
        log_text="",
        server_info=info,
        metrics_text=None,
    )
    assert (evidence.status, evidence.runner) == ("contradicted", "triton")
    assert evidence.items[0].source == "/server_info simulated.executed_runner"
