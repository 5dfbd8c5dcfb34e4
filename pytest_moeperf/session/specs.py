"""From settings to what a server must be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import ServerSettings, Settings
from pytest_moeperf.model.spec import ServerSpec, Stated
from pytest_moeperf.outgoing.secrets import given_secrets, known_secrets, remember
from pytest_moeperf.session.hooks import asked


def server_spec(settings: Settings, backend: str, server: ServerSettings | None = None) -> ServerSpec:
    """The spec of a backend as the configuration has it."""
    if settings.engine == "attached":
        # What the file says of launching says nothing of a server that somebody else launched.
        return ServerSpec(
            engine=settings.engine,
            backend=backend,
            model=_resolved(settings.model, settings.root),
            attach_url=settings.attach_url,
            stated=Stated(
                hardware=settings.attach_hardware,
                model=settings.attach_model,
                engine=settings.attach_engine,
                version=settings.attach_version,
                args=settings.attach_args,
                log=os.path.join(settings.root, settings.attach_log) if settings.attach_log else "",
            ),
        )
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
    )


def reference_spec(settings: Settings, candidate: ServerSpec) -> ServerSpec | None:
    """What ``candidate`` is held against, if that can be launched: another backend, or the reference table's server.

    None for a backend that is held against its own stored runs.
    """
    if settings.engine == "attached":
        return None
    own = settings.reference_servers.get(candidate.backend)
    if own is None and settings.reference in ("", candidate.backend):
        return None
    return server_spec(settings, settings.reference or candidate.backend, own)


def launched_spec(config: pytest.Config, settings: Settings, backend: str) -> ServerSpec:
    """``server_spec``, as the site's hook leaves it.

    :raises UsageProblem: the hook returned something else.
    """
    return _through_hook(config, settings, server_spec(settings, backend))


def launched_reference(config: pytest.Config, settings: Settings, candidate: ServerSpec) -> ServerSpec | None:
    """``reference_spec``, as the site's hook leaves it: what it changes for one arm, it changes for the other."""
    spec = reference_spec(settings, candidate)
    return None if spec is None else _through_hook(config, settings, spec)


def _through_hook(config: pytest.Config, settings: Settings, spec: ServerSpec) -> ServerSpec:
    where = f"hook pytest_moeperf_server_spec, backend {spec.backend}"
    changed: object = asked(where, lambda: config.hook.pytest_moeperf_server_spec(spec=spec, settings=settings))
    if changed is None:
        changed = spec
    if not isinstance(changed, ServerSpec):
        raise UsageProblem(
            where=where,
            problem=f"returned {changed!r}",
            allowed="a ServerSpec, or None to leave it as it is",
            next_step="return dataclasses.replace(spec, ...)",
        )
    # Its log may repeat them.
    remember((*known_secrets(changed.env), *given_secrets(changed.args)))
    return changed


def _resolved(path: str, root: str) -> str:
    """Relative paths start at the configuration file; what is no path there (a hub name) stays as it is."""
    candidate = Path(root) / path
    # Not resolve(): the interpreter of a virtual environment is a link, and means another thing than its target.
    return os.path.abspath(candidate) if path and candidate.exists() else path
