"""What is refused before anything is started."""

from __future__ import annotations

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.session.specs import reference_spec, server_spec


def check_before_start(settings: Settings) -> None:
    """:raises UsageProblem: no backend, an unknown one, a missing model or interpreter, a flag the engine lacks."""
    from pytest_moeperf.engines.catalog import engine_named

    if not settings.backends:
        raise UsageProblem(
            where="--backend",
            problem="no backend is named, so there is nothing to measure",
            allowed="names such as triton, flashinfer_cutlass, flashinfer_cutedsl",
            next_step='pytest -m perf --backend=NAME, or backends = ["NAME"] in [tool.moeperf]',
        )
    engine = engine_named(settings.engine)
    for backend in settings.backends:
        spec = server_spec(settings, backend)
        engine.check(spec)
        reference = reference_spec(settings, spec)
        if reference is not None:
            engine.check(reference)
