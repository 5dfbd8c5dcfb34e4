"""What a server's /server_info says of its arguments, apart from its state of the moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MOMENTARY = frozenset(
    {"internal_states", "startup_time", "status", "simulated", "kv_events", "last_gen_throughput", "pid"}
)
"""State, not an argument: changes while the server's arguments stay the same."""
ROLES = ("prefill", "decode")
"""Under which a router of prefill and decode servers lists what its workers say."""


def steady(info: Mapping[str, Any]) -> dict[str, Any]:
    """Without what changes while the server stays the same, a router's workers included."""
    return {name: _steady(value) for name, value in info.items() if name not in MOMENTARY}


def _steady(value: Any) -> Any:
    if isinstance(value, Mapping):
        return steady(value)
    return [_steady(item) for item in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def workers(info: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Of a router: what each of its workers says, by role. Nothing for a server that answers for itself."""
    return {
        role: [worker for worker in info[role] if isinstance(worker, Mapping)]
        for role in ROLES
        if isinstance(info.get(role), list)
    }


def page_size(info: Mapping[str, Any]) -> int | None:
    """Tokens that the prefix cache keeps together: as the schedulers ended up with, else as the arguments say."""
    states = info.get("internal_states")
    of_schedulers = [one for one in states if isinstance(one, Mapping)] if isinstance(states, list) else []
    said = [one["page_size"] for one in (*of_schedulers, info) if type(one.get("page_size")) is int]
    return said[0] if said and said[0] > 0 else None
