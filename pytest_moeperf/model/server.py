"""What to launch, what is known of a launched server, and what is told while waiting for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from pytest_moeperf.outgoing.key import ApiKey

PORT_PLACEHOLDER: Final = "{port}"
RENDEZVOUS_PLACEHOLDER: Final = "{rendezvous_port}"

RECORD_SCHEMA: Final = 3
"""Version of :class:`ServerRecord` on disk. A record lives as long as its server, so older ones are not read."""

ServerState = Literal["starting", "ready", "warm", "exited", "ending"]
"""``starting``: not answering yet. ``ready``: somebody holds it. ``warm``: nobody holds it, its keep time runs.
``exited``: its process ended by itself. ``ending``: it is being stopped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCommand:
    """What starts a further node of a server, from this machine."""

    command: tuple[str, ...]
    """Program and arguments. ``{port}`` is a port of its own, ``{rendezvous_port}`` that of all nodes."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the environment of the launching process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """Everything that is needed to launch one server. Made by an engine, carried out by the servers room."""

    command: tuple[str, ...]
    """Program and arguments. ``{port}`` stands wherever it goes, also inside an argument. So does ``{api_key}``, where
    the engine takes its key in no other way: every user of the machine can read a command."""
    name: str
    """For people: ``flashinfer_cutedsl (sglang, TP8)``."""
    spec_digest: str
    """Identity of what is launched. Two leases of one digest may share one server."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the environment of the launching process. Not in the repr: it may hold a token."""
    cwd: str | None = None
    host: str = "127.0.0.1"
    health_path: str = "/health"
    ready_log_marker: str | None = None
    """A text that must be in the log, besides a good health answer, before the server counts as ready."""
    start_timeout_s: float = 1800.0
    stop_timeout_s: float = 10.0
    """From SIGTERM to SIGKILL."""
    devices: tuple[str, ...] = ()
    """GPU UUIDs, or keys such as ``cpu:0-7``."""
    api_key: ApiKey | None = field(default=None, repr=False)
    """Never shown, logged or recorded."""
    key_file: str = ""
    """Text of a private file that gives the engine its key, with ``{api_key}`` in it; its path is ``{key_file}`` in the
    command. Empty: there is none."""
    followers: tuple[NodeCommand, ...] = ()
    """The further nodes of a server that spans several. They live and end with it, and write into its log."""

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError(f"{self.name}: the command is empty")
        if not any(PORT_PLACEHOLDER in part for part in (*self.command, *self.env.values())):
            raise ValueError(f"{self.name}: neither command nor env says where the port goes ({PORT_PLACEHOLDER})")

    @property
    def exclusive_devices(self) -> frozenset[str]:
        """The devices whose memory a second server would not fit into: all but CPUs."""
        return frozenset(device for device in self.devices if not device.startswith("cpu"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """One lease of a server: a process that uses it."""

    pid: int
    pid_start_time: int
    """Clock ticks after boot, as in ``/proc/<pid>/stat``. With the pid it names one process, pid reuse or not."""
    since: str
    """ISO 8601, UTC."""
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord:
    """One live server, as its guardian writes it down. The api key is not in it, but in a file beside it."""

    schema: int
    launch_id: str
    spec_digest: str
    name: str
    state: ServerState
    exclusive: bool
    """Launched for one lease alone, never shared."""
    url: str
    host: str
    port: int
    health_path: str
    devices: tuple[str, ...]
    pid: int
    """The server's root process."""
    pid_start_time: int
    guardian_pid: int
    guardian_start_time: int
    boot_id: str
    hostname: str
    pid_namespace: str
    cgroup: str
    """The launch's own control group; empty where none could be made."""
    folder: str
    log_path: str
    started_at: str
    """ISO 8601, UTC."""
    start_s: float | None
    """From launch to ready; None before that."""
    holders: tuple[Holder, ...]
    keep_until: str | None
    """ISO 8601, UTC: when a warm server ends."""
    kept_by: str
    """The invocation that keeps it warm, and may end it where it is in its own way; empty unless it is warm."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-plain."""
        plain: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["devices"] = list(self.devices)
        plain["holders"] = [
            {each.name: getattr(holder, each.name) for each in fields(Holder)} for holder in self.holders
        ]
        return plain

    @classmethod
    def from_dict(cls, plain: object) -> ServerRecord:
        """The reverse of :meth:`to_dict`.

        :raises ValueError: names the first field that is missing, unknown or of the wrong type.
        """
        values = _checked(plain, _RECORD_TYPES, where="server record")
        if values["schema"] != RECORD_SCHEMA:
            raise ValueError(f"server record: schema {values['schema']} is not {RECORD_SCHEMA}")
        if values["state"] not in get_args(ServerState):
            raise ValueError(f"server record: state {values['state']!r} is none of {', '.join(get_args(ServerState))}")
        if not all(isinstance(device, str) for device in values["devices"]):
            raise ValueError("server record: devices is not a list of texts")
        values["devices"] = tuple(values["devices"])
        values["holders"] = tuple(
            Holder(**_checked(holder, _HOLDER_TYPES, where="server record, holder")) for holder in values["holders"]
        )
        return cls(**values)


_INT: Final = (int,)
_TEXT: Final = (str,)
_HOLDER_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "pid": _INT,
    "pid_start_time": _INT,
    "since": _TEXT,
    "label": _TEXT,
}
_RECORD_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "schema": _INT,
    "launch_id": _TEXT,
    "spec_digest": _TEXT,
    "name": _TEXT,
    "state": _TEXT,
    "exclusive": (bool,),
    "url": _TEXT,
    "host": _TEXT,
    "port": _INT,
    "health_path": _TEXT,
    "devices": (list,),
    "pid": _INT,
    "pid_start_time": _INT,
    "guardian_pid": _INT,
    "guardian_start_time": _INT,
    "boot_id": _TEXT,
    "hostname": _TEXT,
    "pid_namespace": _TEXT,
    "cgroup": _TEXT,
    "folder": _TEXT,
    "log_path": _TEXT,
    "started_at": _TEXT,
    "start_s": (float, int, type(None)),
    "holders": (list,),
    "keep_until": (str, type(None)),
    "kept_by": _TEXT,
}


def _checked(plain: object, types: Mapping[str, tuple[type, ...]], *, where: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"{where}: not a table but {type(plain).__name__}")
    if missing := sorted(types.keys() - plain.keys()):
        raise ValueError(f"{where}: {missing[0]} is missing")
    if unknown := sorted(plain.keys() - types.keys()):
        raise ValueError(f"{where}: {unknown[0]} is unknown")
    for key, allowed in types.items():
        value = plain[key]
        # bool is an int to Python, and never one in a record.
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise ValueError(f"{where}: {key} is {value!r}, not {' or '.join(kind.__name__ for kind in allowed)}")
    return dict(plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerProgress:
    """Where a starting server is."""

    elapsed_s: float
    phase: str
    """``launched``, ``loading weights``, ``capturing graphs``...: see the table in servers/phases.py."""
    detail: str
    """The log line that says so, shortened; empty before the first one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitNotice:
    """Somebody else has what this process waits for."""

    what: str
    """``GPU-1234 to measure on``, ``triton (sglang, TP8) to start``."""
    holder: str
    """``pid 123 (pytest gw1), since 12:03:11 UTC``, or what else is known."""
    waited_s: float
    once: bool = False
    """Told this one time: it will not take long."""

    def text(self) -> str:
        """One line for a person."""
        so_far = "" if self.once else f" ({self.waited_s:.0f} s so far)"
        return f"waiting for {self.what}: {self.holder}{so_far}"
