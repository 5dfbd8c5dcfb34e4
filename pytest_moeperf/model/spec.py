"""What one server must be: enough to launch it, and to know another one that is the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Final

NO_MODEL: Final = "none"
"""Names the model of a server for which none is configured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """``[attach]``: what the user says of an attached server where the server itself does not. Empty: nothing."""

    hardware: str = ""
    """``8x H200``."""
    model: str = ""
    engine: str = ""
    version: str = ""
    args: str = ""
    """How it was started."""
    log: str = ""
    """Path of what it writes, here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSpec:
    """One server profile of one backend. The ``moeperf_server_spec`` fixture returns it; a suite may override that."""

    engine: str
    backend: str
    model: str = ""
    tensor_parallel: int = 1
    """GPUs that the server spans, on all its nodes together."""
    nnodes: int = 1
    launcher: str = "local"
    """How the further nodes are started: ``local``, ``ssh``, ``slurm`` or ``ray``."""
    hosts: tuple[str, ...] = ()
    """Of the nodes 1, 2, ...; for ``ssh``."""
    rendezvous: str = ""
    """This machine's address as the other nodes see it; empty: its host name."""
    python: str = ""
    """The engine's interpreter; empty: the one that runs pytest."""
    args: tuple[str, ...] = ()
    """Appended to the engine's own arguments, in order."""
    own_args: tuple[str, ...] = ()
    """Those of ``args`` that make this backend what it is; a comparison with another backend may differ in them."""
    env: dict[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    start_timeout_s: float = 1800.0
    attach_url: str = ""
    """``attached`` only."""
    stated: Stated = Stated()
    """``attached`` only."""

    @property
    def digest(self) -> str:
        """Two specs of one digest are served by one launch."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        place = self.attach_url or (f"TP{self.tensor_parallel}" if self.tensor_parallel > 1 else "")
        nodes = f"{self.nnodes} nodes" if self.nnodes > 1 else ""
        return f"{self.backend} ({', '.join(filter(None, (self.engine, place, nodes)))})"
