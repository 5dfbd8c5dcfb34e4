"""What generates the tokens behind ``believed_server.py``: a fixed schedule, and a ledger of what really happened."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Traits:
    """How a server is, and how it tells of itself."""

    engine: str = "sglang"
    """``sglang``, ``vllm``, ``vllm-dev``, ``trtllm``, ``pd`` (SGLang's router of prefill and decode), ``openai``."""
    version: str = "0.5.14"
    model: str = "tiny-moe"
    runner: str = "triton"
    context: int = 4096
    step_ms: float = 4.0
    prefill_ms: float = 6.0
    cap: int | None = None
    """Requests that it runs at once; the others wait. None: as many as come."""
    told_cap: bool = True
    """/server_info names the cap."""
    info: dict[str, Any] = field(default_factory=dict)
    """Laid over /server_info."""
    info_status: int = 200
    metrics: str = "full"
    """``full``, ``none``, ``old`` (gauges and prompt tokens alone), ``front`` (HTTP metrics alone), ``underscore``."""
    foreign_tokens: int = 0
    """Generated for somebody else with each request."""
    preempts: bool = False
    usage: str = "continuous"
    """``continuous``, ``final``, ``last-choice``, ``null``, ``zero``, ``none``, ``bare`` (in chunks of their own,
    without choices)."""
    overcounts: int = 0
    """Tokens that its usage claims and nobody generated."""
    claims: int = 1
    """Tokens that its usage claims for each one that was generated."""
    delivery: str = "token"
    """``token``, ``halves``, ``whole``, ``late`` (everything after the last token), ``batched`` (every 40 ms)."""
    lump: int = 1
    """Tokens in one event."""
    speculative: bool = False
    """A lump comes out of one step; otherwise it is what the stream interval collected."""
    first_lump: int = 1
    """Tokens in the first event."""
    hidden: int = 0
    """So many leading tokens come in a field that no protocol has."""
    surrogates: bool = False
    trailer_ms: float | None = None
    """So long after the last event the body ends, with a trailer that nothing announced."""
    stop_after: int | None = None
    """Ends there with the finish reason stop."""
    extra: int = 0
    """Tokens beyond what was asked for."""
    fault: str = ""
    """``in-band``, ``truncated``, ``abort``: every fifth request."""
    cached: int = 0
    """Prompt tokens of each request after the first that come from the prefix cache."""
    reports_cached: bool = True
    api_key: str = ""
    flush_status: int = 200
    pid: int = 4242
    started: float = 1_700_000_000.0
    becomes: dict[str, Any] = field(default_factory=dict)
    """Another server after ``becomes_after`` requests, at the same address."""
    becomes_after: int = 0
    replica: dict[str, Any] = field(default_factory=dict)
    """A second server behind the same address: every other request goes there."""

    @property
    def speaks_sglang(self) -> bool:
        return self.engine in {"sglang", "pd"}

    @property
    def exporter(self) -> str:
        """Whose names its metrics have."""
        return "sglang" if self.speaks_sglang else self.engine.partition("-")[0]


@dataclass(kw_only=True)
class Ledger:
    """What one process has really done."""

    requests: int = 0
    generated: int = 0
    prompt: int = 0
    cached: int = 0
    running: int = 0
    waiting: int = 0
    preempted: int = 0
    first_ms: list[float] = field(default_factory=list)
    per_token_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    most_running: int = 0


class Server:
    """One process's worth of engine; several may stand behind one address."""

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.ledger = Ledger()
        self._slots = asyncio.Semaphore(traits.cap or 10_000)

    async def generate(self, asked: int, prompt_len: int, *, cached: int) -> AsyncIterator[int]:
        """Tokens as they are generated: how many more there are, step by step."""
        traits, ledger = self.traits, self.ledger
        arrived = time.perf_counter()
        ledger.waiting += 1
        async with self._slots:
            ledger.waiting -= 1
            ledger.running += 1
            ledger.most_running = max(ledger.most_running, ledger.running)
            try:
                due = time.perf_counter() + traits.prefill_ms / 1e3
                done, first = 0, 0.0
                sizes = itertools.chain([traits.first_lump], itertools.repeat(traits.lump if traits.speculative else 1))
                for size in sizes:
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    due += traits.step_ms / 1e3
                    now = time.perf_counter()
                    first = first or now
                    step = min(size, asked - done)
                    done += step
                    ledger.generated += step
                    yield step
                    if done >= asked:
                        break
                ledger.first_ms.append((first - arrived) * 1e3)
                if done > traits.first_lump:
                    ledger.per_token_ms.append((now - first) * 1e3 / (done - traits.first_lump))
                ledger.whole_ms.append((now - arrived) * 1e3)
            finally:
                ledger.running -= 1
        ledger.requests += 1
        ledger.prompt += prompt_len
        ledger.generated += traits.foreign_tokens
        ledger.preempted += traits.preempts
        ledger.cached += cached

    def truth(self) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "requests": ledger.requests,
            "ttft_ms": _mean(ledger.first_ms),
            "tpot_ms": _mean(ledger.per_token_ms),
            "e2el_ms": _mean(ledger.whole_ms),
            "most_running": ledger.most_running,
        }


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values[len(values) // 2 :]) if values else None
