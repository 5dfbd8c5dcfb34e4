"""From settings to what a server must be."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_moeperf.model.settings import ServerSettings, Settings
from pytest_moeperf.model.spec import ServerSpec


def server_spec(settings: Settings, backend: str, server: ServerSettings | None = None) -> ServerSpec:
    """The spec of a backend as the configuration has it."""
    server = server or settings.server_for(backend)
    return ServerSpec(
        engine=settings.engine,
        backend=backend,
        model=_resolved(settings.model, settings.root),
        tensor_parallel=settings.tensor_parallel,
        nnodes=settings.nnodes,
        launcher=settings.launcher,
        hosts=settings.hosts,
        rendezvous=settings.rendezvous,
        python=_resolved(server.python, settings.root),
        args=server.args,
        own_args=server.own_args,
        env=server.env,
        cwd=settings.root,
        start_timeout_s=server.start_timeout_s,
        attach_url=settings.attach_url,
    )


def reference_spec(settings: Settings, candidate: ServerSpec) -> ServerSpec | None:
    """What ``candidate`` is held against, if that can be launched: another backend, or the reference table's server.

    None for a backend that is held against its own stored runs.
    """
    if settings.engine == "attached":
        return None
    if settings.reference_server is None and settings.reference in ("", candidate.backend):
        return None
    return server_spec(settings, settings.reference or candidate.backend, settings.reference_server)


def _resolved(path: str, root: str) -> str:
    """Relative paths start at the configuration file; what is no path there (a hub name) stays as it is."""
    candidate = Path(root) / path
    # Not resolve(): the interpreter of a virtual environment is a link, and means another thing than its target.
    return os.path.abspath(candidate) if path and candidate.exists() else path
