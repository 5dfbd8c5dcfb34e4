"""Prints pip constraints for the lowest version of each dependency that pyproject.toml allows, so that CI can try them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
NOT_TRIED = frozenset({"dev", "sglang"})
"""Extras: tools that check the project, and the engine, which has an environment of its own."""


def constraints(requirements: Iterable[str]) -> Iterator[str]:
    """``numpy>=1.26`` -> ``numpy==1.26.*``, ``pytest>=9`` -> ``pytest==9.0.*``.

    :raises ValueError: for a requirement that names no lowest version.
    """
    for requirement in requirements:
        match = re.fullmatch(r"([\w-]+)>=(\d+(?:\.\d+)*)", requirement)
        if match is None:
            raise ValueError(f"{requirement}: names no lowest version; NAME>=VERSION does")
        name, version = match.groups()
        yield f"{name}=={version if '.' in version else f'{version}.0'}.*"


def main() -> None:
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    print(*constraints(project["dependencies"]), sep="\n")
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in NOT_TRIED:
            print(*constraints(requirements), sep="\n")


if __name__ == "__main__":
    main()
