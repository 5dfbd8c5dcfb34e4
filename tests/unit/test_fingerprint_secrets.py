"""Secrets never pass, whatever they are wrapped in; counts and paths that only sound like them do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.outgoing import secrets
from pytest_moeperf.outgoing.secrets import REDACTED, is_secret_name, known_secrets, scrub_secrets

SECRET = "Zq7-planted-secret-9"

secret_names = st.sampled_from(
    [
        *("api_key", "admin_api_key", "HF_TOKEN", "Authorization", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "token"),
        *("DB_PASSWORD", "hf_token", "ssl_keyfile_password", "client-secret", "Proxy-Authorization", "Cookie"),
    ]
)
secret_values = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~+/\-]{7,30}", fullmatch=True).filter(
    lambda text: text != REDACTED
)

WRAPPERS = [
    lambda name, value: f"{name}={value}",
    lambda name, value: f"export {name}={value} && run",
    lambda name, value: f"ServerArgs(host='x', {name}='{value}', port=1)",
    lambda name, value: f'{{"{name}": "{value}", "port": 1}}',
    lambda name, value: f"{{'{name}': '{value}'}}",
    lambda name, value: f"{name}: {value}",
    lambda name, value: f"python -m server --{name.lower().replace('_', '-')} {value} --port 1",
    lambda name, value: f"python -m server --{name.lower().replace('_', '-')}={value} --port 1",
    lambda name, value: f"GET /v1?x=1&{name}={value}&y=2",
    lambda _name, value: f"Authorization: Bearer {value}",
    lambda name, value: {"deep": [{name: value}]},
    lambda name, value: {name: {"nested": {"password": value}}},
    lambda name, value: ["serve", f"--{name.lower().replace('_', '-')}", value, "--port", "1"],
    lambda name, value: ("serve", f"--{name.lower().replace('_', '-')}={value}"),
]


@given(name=secret_names, value=secret_values, wrap=st.sampled_from(WRAPPERS))
def test_no_planted_secret_survives(name: str, value: str, wrap: Any) -> None:
    # A secret that happens to be a piece of its wrapping would be found there.
    assume_not_in_frame = json.dumps(wrap(name, "\0"))
    scrubbed = scrub_secrets(wrap(name, value))
    if value not in assume_not_in_frame and not value.isdigit():
        assert value not in json.dumps(scrubbed)
        assert REDACTED in json.dumps(scrubbed)


@given(value=secret_values.filter(lambda text: "/" not in text))
def test_no_password_of_a_url_survives(value: str) -> None:
    assert scrub_secrets(f"pip -i https://me:{value}@host/x") == f"pip -i https://{REDACTED}@host/x"


@given(name=secret_names, value=secret_values, wrap=st.sampled_from(WRAPPERS))
def test_scrubbing_twice_changes_nothing_more(name: str, value: str, wrap: Any) -> None:
    once = scrub_secrets(wrap(name, value))
    assert scrub_secrets(once) == once


@pytest.mark.parametrize(
    "innocent",
    [
        {"max_total_tokens": 20000, "tokenizer_path": "/models/tiny", "speculative_num_draft_tokens": 4},
        {"eos_token": "<|end|>", "prompt_tokens_total": 12.0, "token_usage": 0.4},
        {"api_key": None, "admin_api_key": "", "enable_auth": False},
        "--max-total-tokens 20000 --tokenizer-path /models/tiny --speculative-token-map map.pt",
        "server_args=ServerArgs(api_key=None, max_prefill_tokens=16384, tokenizer_mode='auto')",
        ["--max-total-tokens", "20000", "--host", "127.0.0.1"],
        {"num_experts_per_token": 8, "token": 3, "s_per_token": 0.01},
        "http://127.0.0.1:30000/generate",
        "Decode batch, #running-req: 4, #token: 384, token usage: 0.02, gen throughput (token/s): 251.20",
    ],
)
def test_what_only_sounds_like_a_secret_stays(innocent: object) -> None:
    assert scrub_secrets(innocent) == innocent


@pytest.mark.parametrize(
    "token", ["hf_abcdefghijklmnopqrstuv", "sk-proj-abcdefghijklmnop1234", "ghp_abcdefghijklmnopqrstuvwxyz012345"]
)
def test_a_token_is_known_by_its_shape_alone(token: str) -> None:
    assert scrub_secrets(f"login with {token} worked") == f"login with {REDACTED} worked"


def test_a_known_value_goes_wherever_it_stands() -> None:
    known = known_secrets({"HF_TOKEN": SECRET, "HOME": "/root", "API_KEY": "abc"})
    assert known == (SECRET,)
    assert scrub_secrets({"text": f"said {SECRET}!", SECRET: 1}, known=known) == {
        "text": f"said {REDACTED}!",
        REDACTED: 1,
    }


def test_types_and_untouched_values_are_kept() -> None:
    value = {"a": (1, 2.5, None, True), "b": ["x"], "c": b"bytes"}
    scrubbed = scrub_secrets(value)
    assert scrubbed == value
    assert isinstance(scrubbed["a"], tuple)


@pytest.mark.parametrize(
    "name", ["tokens", "max_tokens", "tokenizer", "keyboard", "eos_token", "secretary", "author", "monkey"]
)
def test_names_that_hold_no_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["token", "--api-key", "hf-token", "adminApiKey", "X-Api-Key", "PGPASSWORD", "client_secret"]
)
def test_names_that_hold_one(name: str) -> None:
    assert is_secret_name(name)


def test_a_long_blob_takes_linear_time() -> None:
    blob = "A" * 200_000 + ".a" * 50_000
    assert scrub_secrets(blob) == blob


def test_a_command_that_is_still_to_be_filled_in_stays_as_it_is() -> None:
    command = ["serve", "--port", "{port}", "--api-key={api_key}", "--load-format=dummy"]
    assert scrub_secrets(command) == command
    assert scrub_secrets(" ".join(command)) == " ".join(command)
    assert scrub_secrets("--api-key={api_key}x") != "--api-key={api_key}x"


def test_what_a_process_was_given_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_remembered", set())
    args = (
        "--hf-token",
        "planted-one",
        "--x=1",
        "--ssl-keyfile-password=planted-two",
        "--api-key",
        "--y",
        "--api-key={api_key}",
    )
    assert secrets.given_secrets(()) == ()
    assert secrets.given_secrets(args) == ("planted-one", "planted-two")
    secrets.remember((*secrets.given_secrets(args), "short"))
    assert scrub_secrets("said planted-two, planted-one, short") == f"said {REDACTED}, {REDACTED}, short"


def test_the_environment_of_this_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_WEBHOOK", "planted/in/env")
    assert scrub_secrets({"log": "posting to planted/in/env"}) == {"log": f"posting to {REDACTED}"}
