"""Why a control request had no answer: what an attached server's failure is told by."""

from __future__ import annotations

import socket
import ssl
import urllib.error

import pytest

from pytest_moeperf.engines.control import Answer, Control, _no_answer


@pytest.mark.parametrize(
    ("cause", "problem"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "refused"),
        (socket.gaierror(-2, "Name or service not known"), "name"),
        (TimeoutError("timed out"), "timeout"),
        (ConnectionResetError(104, "Connection reset by peer"), "network"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "network"),
    ],
)
def test_what_the_socket_said_is_told(cause: OSError, problem: str) -> None:
    for error in (cause, urllib.error.URLError(cause)):
        answer = _no_answer(error)
        assert (answer.status, answer.problem, answer.ok) == (None, problem, False)
        assert answer.detail == str(cause)


def test_an_untrusted_certificate() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    assert _no_answer(urllib.error.URLError(cause)) == Answer(problem="certificate", detail="self-signed certificate")


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    control = Control(url=f"http://127.0.0.1:{port}")
    assert control.ask("/v1/models").problem == "refused"
    assert control.get_json("/v1/models") is None
