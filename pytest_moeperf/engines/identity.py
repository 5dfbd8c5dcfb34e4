"""Who answers at an address, by the server's own marks. Pure: answers in, what they show out.

Nothing is assumed. An engine is named where the server says so; what it does not say is None, and equal to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.model.run import Plain
from pytest_moeperf.model.server_info import digest, steady, workers

SGLANG, OPENAI = "sglang", "openai-completions"
"""What the load client speaks to it."""

_SGLANG_MARKS = frozenset({"moe_runner_backend", "schedule_policy", "mem_fraction_static", "internal_states"})
"""Any of these beside ``model_path`` in /server_info: other engines have an endpoint of that name too."""
_OWNERS = {"tensorrt_llm": "trtllm", "llamacpp": "llama.cpp", "library": "ollama"}
_NOBODY = frozenset({"", "openai", "organization-owner", "organization_owner", "system", "user", "me", "none"})
"""What engines write into ``owned_by`` that names none."""
_STARTED = re.compile(r"^process_start_time_seconds(?:\{[^}]*\})? (\d+(?:\.\d+)?(?:e\+?\d+)?)\s*$", re.MULTILINE)
_COUNTING = re.compile(r"^(vllm|sglang):", re.MULTILINE)
"""Names of their metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What the identity endpoints said. None: nothing that could be read."""

    server_info: Mapping[str, Any] | None = None
    models: Mapping[str, Any] | None = None
    version: Mapping[str, Any] | None = None
    completion: Mapping[str, Any] | None = None
    """Of one token, for its ``system_fingerprint``."""
    metrics: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What a server says of itself."""

    engine: str | None
    """``sglang``, ``simulated``, ``vllm``, ``trtllm``, ...; None: it doesn't say."""
    protocol: str = OPENAI
    version: str | None = None
    served: tuple[str, ...] = ()
    """Names that a request may ask for."""
    model: str | None = None
    """The model behind the first of those names: a folder or a hub name."""
    context_len: int | None = None
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)
    """/server_info of an SGLang, a simulated one included."""
    engine_config: str | None = None
    """Digest of what vLLM's development mode tells of its configuration."""
    build: str | None = None
    """``system_fingerprint`` of an answer."""
    pid: int | None = None
    started: float | None = None
    """``process_start_time_seconds``."""

    @property
    def marks(self) -> dict[str, Plain]:
        """What two readings of one server have in common, and two servers mostly not."""
        return {
            "pid": self.pid,
            "start time": self.started,
            "engine": self.engine,
            "version": self.version,
            "model": self.model,
            "models": ", ".join(sorted(self.served)) or None,
            "context length": self.context_len,
            "arguments": digest(steady(self.arguments)) if self.arguments is not None else self.engine_config,
            "system_fingerprint": self.build,
        }

    @property
    def text(self) -> str:
        """``sglang 0.5.14 (pid 12) serving GLM-5``."""
        engine = " ".join(filter(None, (self.engine or "an unnamed engine", self.version)))
        pid = f" (pid {self.pid})" if self.pid is not None else ""
        return f"{engine}{pid} serving {self.model or 'an unnamed model'}"


def read_identity(answers: Answers) -> Identity:
    info = answers.server_info or {}
    cards = _cards(answers.models)
    first = cards[0] if cards else {}
    served = tuple(str(card["id"]) for card in cards if card.get("id"))
    engine = _engine(info, cards, answers.metrics)
    root = _text(first.get("root")) or _text(first.get("id"))
    started = _STARTED.search(answers.metrics)
    if _is_sglang(info):
        simulated = info.get("simulated")
        pid = info.get("pid", simulated.get("pid") if isinstance(simulated, Mapping) else None)
        inner = [worker for each in workers(info).values() for worker in each]
        return Identity(
            engine=engine,
            protocol=SGLANG,
            version=_text(info.get("version")) or next((_text(each.get("version")) for each in inner), None),
            served=served or tuple(filter(None, (_text(info.get("served_model_name")),))),
            model=_text(info.get("model_path")) or next((_text(each.get("model_path")) for each in inner), root),
            context_len=_number(first.get("max_model_len")),
            arguments=info,
            pid=_number(pid),
            started=float(started[1]) if started else None,
        )
    config = info.get("vllm_config") if engine == "vllm" else info or None
    return Identity(
        engine=engine,
        version=_text((answers.version or {}).get("version")),
        served=served,
        model=root,
        context_len=_number(first.get("max_model_len")),
        engine_config=digest(config) if config is not None else None,
        build=_text((answers.completion or {}).get("system_fingerprint")),
        started=float(started[1]) if started else None,
    )


def _is_sglang(info: Mapping[str, Any]) -> bool:
    return ("model_path" in info and bool(_SGLANG_MARKS & info.keys())) or any(
        _is_sglang(worker) for each in workers(info).values() for worker in each
    )


def _engine(info: Mapping[str, Any], cards: list[Mapping[str, Any]], metrics: str) -> str | None:
    if _is_sglang(info):
        return "simulated" if "simulated" in info else "sglang"
    if "vllm_config" in info:
        return "vllm"
    owner = (_text(cards[0].get("owned_by")) or "").lower() if cards else ""
    if owner not in _NOBODY:
        return _OWNERS.get(owner, owner)
    counting = _COUNTING.search(metrics)
    return counting[1] if counting else None


def _cards(models: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Of /v1/models, without adapters: those have a parent."""
    data = (models or {}).get("data")
    listed = [card for card in data if isinstance(card, Mapping)] if isinstance(data, list) else []
    return [card for card in listed if not card.get("parent")]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
