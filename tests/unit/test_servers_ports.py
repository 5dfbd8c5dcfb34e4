"""Ports that any engine can use."""

from __future__ import annotations

import socket

import pytest

from pytest_moeperf.errors import ServerError
from pytest_moeperf.servers import ports


def test_a_port_leaves_room_for_the_ones_that_sglang_adds_to_it() -> None:
    assert all(port + 10_000 <= 65_535 for port in (ports.free_port() for _ in range(50)))


def test_a_taken_port_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(number, number + 1))
        with pytest.raises(ServerError) as caught:
            ports.free_port()
    assert str(caught.value) == (
        f"no free port found on 127.0.0.1 in {number} to {number}, 200 tries\n"
        "  hint: something on this machine holds thousands of ports: ss -ltn shows what"
    )
