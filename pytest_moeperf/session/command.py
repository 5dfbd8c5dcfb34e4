"""The command that was given, to be repeated with something added."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import pytest

_WITH_VALUE = frozenset({"-m", "-n", "-p", "-c", "-o", "--backend", "--perf-backend", "--rootdir", "--dist"})


def command_of(config: pytest.Config) -> str:
    """``pytest -m perf --backend=triton examples``: without node ids and ``-k``, which next steps bring themselves."""
    worker: Any = getattr(config, "workerinput", None)
    arguments = worker["mainargv"][1:] if worker is not None else config.invocation_params.args
    return shlex.join(["pytest", *repeatable([str(argument) for argument in arguments])])


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
