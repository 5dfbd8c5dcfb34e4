"""A key gets nowhere by accident."""

from __future__ import annotations

import copy
import json
import pickle
import traceback

import msgspec
import pytest

from pytest_moeperf.load.job import Job, decode_job
from pytest_moeperf.load.request import Target
from pytest_moeperf.outgoing import told
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.outgoing.secrets import known_secrets

VALUE = "planted-key-1"


def test_no_text_shows_it() -> None:
    key = ApiKey(VALUE)
    assert {str(key), repr(key), f"{key}", f"{key!r:>3}", "%s" % key, f"{[key]}".strip("[]")} == {"***"}  # noqa: UP031
    assert told(f"the server said {VALUE}") == "the server said ***"


def test_it_is_revealed_to_those_who_send_it_and_even_then_has_no_repr() -> None:
    revealed = ApiKey(VALUE).reveal()
    assert f"Bearer {revealed}" == f"Bearer {VALUE}"
    assert repr([revealed]) == "['***']"
    shown = traceback.StackSummary.extract(traceback.walk_stack(None), limit=1, capture_locals=True)
    assert VALUE not in "".join(shown.format())


@pytest.mark.parametrize("write", [json.dumps, pickle.dumps, msgspec.json.encode, msgspec.msgpack.encode])
def test_it_is_written_by_nobody(write: object) -> None:
    with pytest.raises(TypeError):
        write({"key": ApiKey(VALUE)})  # type: ignore[operator]
    assert copy.deepcopy(ApiKey(VALUE)) == ApiKey(VALUE) != ApiKey("other") != VALUE


def test_a_worker_gets_it_and_shows_it_in_nothing() -> None:
    target = Target(host="h", port=1, tls=False, path="")
    job = Job(
        target=target, protocol="sglang", model="", api_key=ApiKey(VALUE), output_len=1, slots=1, first_slot=0,
        requests=[], timeout_s=1.0, keep_output=False,
    )  # fmt: skip
    assert VALUE not in repr(job)
    assert decode_job(msgspec.msgpack.encode(job, enc_hook=lambda key: str(key.reveal()))) == job


def test_drawn_ones_differ_and_are_words() -> None:
    drawn = {ApiKey.drawn().reveal() for _ in range(20)}
    assert len(drawn) == 20
    assert all(key.isalnum() and len(key) == 48 for key in drawn)
    assert not known_secrets({"KEY": "x"})
