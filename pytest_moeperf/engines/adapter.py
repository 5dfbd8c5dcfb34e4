"""What every engine answers. Engines only build and explain commands; servers are launched elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import LaunchPlan
from pytest_moeperf.model.spec import ServerSpec


@dataclass(eq=False, repr=False)
class EngineMissing(UsageProblem):
    """The engine is not installed here, so it can't be asked what it takes. A plan can still be printed."""


class Engine(Protocol):
    """A kind of server."""

    name: str
    protocol: str
    """What the load client speaks to it: ``sglang``, ``openai-completions`` or ``openai-chat``."""

    def check(self, spec: ServerSpec) -> None:
        """Refuse what can be known to be impossible, before anything is launched.

        :raises UsageProblem: an unknown backend without a table, a missing model, an unknown flag.
        :raises EngineMissing: no such interpreter, or no engine in it.
        """
        ...

    def version(self, spec: ServerSpec) -> str | None:
        """Of the engine that would serve, as ``check`` found it; None: not known before a launch."""
        ...

    def notes(self, spec: ServerSpec) -> tuple[str, ...]:
        """What the user should know of this spec though nothing is wrong with it, such as a flag without effect."""
        ...

    def launch_plan(self, spec: ServerSpec, *, devices: Sequence[str], session: str, launch: str) -> LaunchPlan:
        """The command. ``session`` and ``launch`` name this life; only ``simulated`` draws its noise from them."""
        ...
