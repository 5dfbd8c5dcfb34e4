"""The command that starts a simulated server, for whoever launches one. Pure: nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.engines.simulated.profile import profile_names


def known_backends() -> tuple[str, ...]:
    """Backends that need no profile of the user's own."""
    return profile_names()


def build_command(
    *,
    python: str,
    host: str,
    port: int,
    backend: str,
    model: str | None,
    tensor_parallel: int,
    args: Sequence[str],
    session_key: str,
    launch_key: str,
    seed: int,
) -> list[str]:
    """The argument list of one launch.

    :param backend: a name of `known_backends`, or any where ``args`` hold ``--profile`` or ``--moe-runner-backend``.
    :param args: the user's own arguments; they come last, so that they win.
    :param session_key: launches with the same key share the session's noise; likewise ``launch_key``.
    """
    named = any(arg.partition("=")[0] in ("--moe-runner-backend", "--profile") for arg in args)
    runner = [] if named else ["--moe-runner-backend", backend]
    return [
        *(python, "-m", "pytest_moeperf.engines.simulated"),
        *("--host", host, "--port", str(port)),
        *("--backend", backend, *runner),
        *(("--model-path", model) if model is not None else ()),
        *("--tp-size", str(tensor_parallel)),
        *("--session-key", session_key, "--launch-key", launch_key, "--seed", str(seed)),
        *args,
    ]
