"""Under xdist a backend's tests stay on one worker: its launch serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import Scheduling


class SchedulingRole:
    """Registered on the controller alone, so only where xdist is installed and used."""

    def __init__(self, backends: Sequence[str]) -> None:
        self._backends = backends

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduling | None:
        """Replaces xdist's default ``load`` only; a distribution that the user chose is theirs to answer for (each
        worker then measures the whole group's cells itself, or waits for the one that does)."""
        if config.getvalue("dist") != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        backends = self._backends

        class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return scope_of(nodeid, backends)

        scheduler: Scheduling = GroupScheduling(config, log)
        return scheduler


def scope_of(node_id: str, backends: Sequence[str]) -> str:
    """``tests/test_x.py::test_decode[triton-64]`` -> ``triton``; a test without a backend is a scope of its own."""
    _, bracket, parameters = node_id.partition("[")
    if bracket:
        for backend in sorted(backends, key=len, reverse=True):
            if parameters.startswith((f"{backend}-", f"{backend}]")):
                return backend
    return node_id
