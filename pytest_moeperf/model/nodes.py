"""A further node of a server that spans several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """What a launcher has to start, and where. Node 0 is not among them: it is this machine."""

    rank: int
    """1 to ``count - 1``."""
    count: int
    host: str
    """From ``hosts`` in ``[tool.moeperf]``; empty where there is none."""
    command: tuple[str, ...]
    """The engine's own command, rank and rendezvous in it. ``{port}`` and ``{rendezvous_port}`` are filled in later."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the configuration adds."""
    cwd: str = ""
