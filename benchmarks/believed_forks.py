"""Whole pytest invocations and servers as forks of one process that has everything imported: half of the time of a
short invocation would go into importing the same again."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
HUNG = 124


def preload() -> None:
    """Start the process that all others are forks of. First of all: while it has only one thread."""
    before = dict(os.environ)
    # The forks' own environment is another one. Threads of a numerical library would be lost in them.
    os.environ.update(PYTHONPATH=str(Path(__file__).parent), OPENBLAS_NUM_THREADS="1")
    _CONTEXT.set_forkserver_preload(["believed_preloaded"])
    forkserver.ensure_running()
    os.environ.clear()
    os.environ.update(before)


def pytest_in(folder: Path, arguments: Sequence[str], env: Mapping[str, str], *, timeout_s: float) -> tuple[int, str]:
    """The exit status of ``python -m pytest ARGUMENTS`` there, and all that it and its children printed."""
    printed = folder / "printed.txt"
    process = _CONTEXT.Process(target=_pytest, args=(folder, list(arguments), dict(env), printed))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        return HUNG, f"{printed.read_text()}\nnot finished within {timeout_s:g} s"
    return process.exitcode, printed.read_text()


def _pytest(folder: Path, arguments: list[str], env: dict[str, str], printed: Path) -> None:
    import pytest

    os.setsid()
    out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["pytest", *arguments]
    sys.path.insert(0, str(folder))
    status = int(pytest.main(arguments))
    atexit._run_exitfuncs()  # noqa: SLF001 (a fork ends without them)
    sys.stdout.flush()
    os._exit(status)


@contextmanager
def serving(traits: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a server of these traits."""
    here, there = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_serve, args=(dict(traits), there))
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()


def _serve(traits: dict[str, Any], told: Connection) -> None:
    from believed_engine import Traits
    from believed_server import serve

    asyncio.run(serve(0, Traits(**traits), ready=told.send))
