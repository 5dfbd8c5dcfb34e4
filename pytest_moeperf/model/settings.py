"""Everything that options, environment and files decide, frozen. Built once, at pytest's start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """How the servers of one backend are launched."""

    python: str = ""
    """The engine's own interpreter; empty: the one that runs pytest."""
    args: tuple[str, ...] = ()
    own_args: tuple[str, ...] = ()
    """Those of ``args`` that are this backend's own: what a comparison of backends varies."""
    env: dict[str, str] = field(default_factory=dict, repr=False)
    start_timeout_s: float = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSettings:
    """Margins and rules of the decision. Fractions, not percent."""

    mode: str = "confirm"
    """``screen`` or ``confirm``."""
    regression: float = 0.05
    """Default ``d`` of a bound without its own."""
    win: float = 0.03
    """Default ``dw``."""
    proven: float = 0.015
    """``d0``: a regression or a win is proven when the whole interval is beyond it."""
    inconclusive: str = "fail"
    """``fail`` or ``warn``."""
    verify_wins: bool = False
    looks: tuple[int, ...] = (4, 6, 8)
    """Pairs at which a confirmation looks."""
    runs_per_launch: int = 3
    record_launches: int = 2
    """``--perf-launches``: fresh launches for recording."""
    assumed_session_sd: float = 0.01
    """Of ln(metric) between sessions, while a baseline is provisional and it can't be estimated."""
    assumed_launch_sd: float = 0.01
    max_drift: float = 0.1
    """Cumulative drift of a baseline from its frozen anchor that an update may reach."""
    budget_s: float | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One invocation."""

    active: bool = False
    """Perf tests run: ``-m perf`` or ``--backend`` was given."""
    engine: str = "simulated"
    model: str = ""
    tensor_parallel: int = 1
    nnodes: int = 1
    launcher: str = "local"
    """How the further nodes of a server are started: ``local``, ``ssh``, ``slurm`` or ``ray``."""
    hosts: tuple[str, ...] = ()
    rendezvous: str = ""
    backends: tuple[str, ...] = ()
    devices: str = "first"
    """``first``: every server on the first GPUs, one after the other. ``auto``: xdist workers get disjoint sets of GPUs
    and measure side by side."""
    attach_url: str = ""
    attach_hardware: str = ""
    """What serves at ``attach_url``, in the user's words, where the server itself does not say it."""
    attach_model: str = ""
    attach_engine: str = ""
    attach_version: str = ""
    attach_args: str = ""
    attach_log: str = ""
    reference: str = ""
    """Backend whose baseline a candidate is held against; empty: its own."""
    reference_servers: dict[str, ServerSettings] = field(default_factory=dict)
    """``[tool.moeperf.reference]``: how each backend's reference arm is launched, if not as ``reference`` (or the
    backend itself) is."""
    server: ServerSettings = ServerSettings()
    backend_servers: dict[str, ServerSettings] = field(default_factory=dict)
    """``[tool.moeperf.backends.NAME]``, each already merged over ``server``."""
    gate: GateSettings = GateSettings()
    update_baselines: bool = False
    reason: str = ""
    plan_only: bool = False
    resume: bool = False
    """Go on from the runs of an interrupted invocation."""
    keep_server_s: float = 0.0
    strict_evidence: bool = False
    profile_kernels: bool = False
    """Profile a few steps of each launch, as evidence of which kernels ran."""
    min_window_s: float = 1.0
    """Shortest steady window of a run that is believed."""
    request_timeout_s: float = 600.0
    """Longest silence of a server with requests in flight, and longest time of one request; then it is said to hang."""
    report_dir: str = ""
    baselines_dir: str = "baselines"
    root: str = "."
    """Folder of the configuration file; relative paths start here."""
    config_file: str = ""
    provenance: dict[str, str] = field(default_factory=dict)
    """Field (``report_dir``, ``gate.mode``) -> where its value came from: ``default``, a file, an environment variable,
    a flag."""

    @property
    def engine_is_assumed(self) -> bool:
        """Nobody said which: no file was found, or none that names one."""
        return self.provenance.get("engine") == "default"

    @property
    def baselines(self) -> Path:
        """The folder of the stored baselines."""
        return Path(self.root) / self.baselines_dir

    def server_for(self, backend: str) -> ServerSettings:
        return self.backend_servers.get(backend, self.server)
