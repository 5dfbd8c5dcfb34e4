"""The command that was given, to be repeated with something added."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_WITH_VALUE = frozenset({"-m", "-n", "-p", "-c", "-o", "--backend", "--perf-backend", "--rootdir", "--dist"})


def command_of(config: pytest.Config) -> str:
    """``pytest -m perf --backend=triton examples``: without node ids and ``-k``, which next steps bring themselves."""
    worker: Any = getattr(config, "workerinput", None)
    arguments = worker["mainargv"][1:] if worker is not None else config.invocation_params.args
    return shlex.join(["pytest", *repeatable([str(argument) for argument in arguments])])


def command_in(config: pytest.Config, folder: str) -> str:
    """The command that was given, for one folder of tests alone."""
    start = config.invocation_params.dir
    given = [str(argument) for argument in config.invocation_params.args]
    kept = [
        argument
        for argument in given
        if not argument.startswith("--basetemp") and not (start / argument.partition("::")[0]).exists()
    ]
    return shlex.join(["pytest", *kept, folder])


def shown_path(path: str | Path) -> str:
    """As short as it can be pasted: relative to where pytest runs, if it lies below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def repeatable(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    expects = ""
    for argument in arguments:
        if expects:
            if expects != "-k":
                kept.append(argument)
            expects = ""
        elif argument == "-k" or argument in _WITH_VALUE:
            expects = argument
            if argument != "-k":
                kept.append(argument)
        elif not argument.startswith(("-k", "--basetemp")) and "::" not in argument:
            kept.append(argument)
    return kept
