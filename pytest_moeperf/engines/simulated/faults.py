"""Everything that can go wrong on purpose.

A fault is written ``NAME[=ARG][@WHICH]``, on the command line (``--fault early_eos=5@10%``, repeatable) or, while the
server runs, as ``POST /simulated/fault`` with ``{"fault": "early_eos=5@10%"}``, or apart:
``{"name": "early_eos", "arg": 5, "which": "10%"}``. ``{"name": null}`` clears all faults,
``{"name": "early_eos", "clear": true}`` one; ``GET /simulated/fault`` lists the active ones with how many requests
each has seen and hit.

WHICH picks among the generation requests that arrive after the fault was set, counted from 1:

    (nothing)   every request
    @3          the third
    @3-7        the third to the seventh
    @every4     the fourth, the eighth, ...
    @10%        about a tenth of them, drawn from the server's seed

Faults at the start take effect before the port is open; the others can be set at any time. `FAULTS` has them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from pytest_moeperf.engines.simulated.engine import Disturbance

_SYNTAX = re.compile(r"(?P<name>[a-z0-9_]+)(?:=(?P<arg>[^@]*))?(?:@(?P<which>.+))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultKind:
    """What a fault's name means."""

    scope: str
    """``start``, ``process`` (the engine as a whole), ``request``, or ``connection``."""
    text: str
    arg: str = ""
    """What the argument is; empty: it takes none."""
    default: str | None = None
    """The argument where none is given; None: it has to be given."""


FAULTS: Mapping[str, FaultKind] = {
    "crash_at_start": FaultKind(scope="start", text="exits with code 1 and a traceback"),
    "hang_at_start": FaultKind(scope="start", text="loads for ever; the port stays closed"),
    "oom_at_start": FaultKind(scope="start", text="prints torch's out of memory error and exits with code 1"),
    "missing_kernel_at_start": FaultKind(scope="start", text="prints a missing kernel's error and exits with code 1"),
    "slow_start": FaultKind(scope="start", arg="seconds", text="loads that long, with progress lines"),
    "silent_fallback": FaultKind(
        scope="start", arg="profile", text="runs this profile's kernels at its speed, whatever the flag says"
    ),
    "ignore_sigterm": FaultKind(scope="start", text="SIGTERM does nothing"),
    "detached_child": FaultKind(scope="start", text="starts a scheduler process in a session of its own"),
    "crash_mid_run": FaultKind(
        scope="process", arg="tokens", default="1", text="the process dies after that many more tokens"
    ),
    "hang_mid_run": FaultKind(
        scope="process", arg="tokens", default="1", text="the engine stops after that many more tokens; HTTP goes on"
    ),
    "compile_stall": FaultKind(scope="process", arg="ms", text="one stall of all streams, at step 30 of the next run"),
    "throttle": FaultKind(scope="process", arg="factor", text="steps last that many times longer"),
    "http_503": FaultKind(scope="request", arg="count or always", default="always", text="503 at once"),
    "html_body": FaultKind(scope="request", text="200 with a page of HTML, as a proxy sends"),
    "redirect": FaultKind(scope="request", text="307 to itself"),
    "wrong_content_length": FaultKind(scope="request", text="a body shorter than its Content-Length, then the end"),
    "never_headers": FaultKind(scope="request", text="no answer at all"),
    "in_band_error": FaultKind(scope="request", text="200, then an error event instead of the first token"),
    "in_band_error_mid": FaultKind(
        scope="request", arg="tokens", default="half", text="an error event after that many tokens"
    ),
    "abort_finish": FaultKind(
        scope="request", arg="tokens", default="half", text="finish reason abort (503) after that many tokens"
    ),
    "truncated_stream": FaultKind(
        scope="request", arg="tokens", default="half", text="the body ends without finish reason and [DONE]"
    ),
    "reset_mid_stream": FaultKind(
        scope="request", arg="tokens", default="half", text="the connection is reset after that many tokens"
    ),
    "early_eos": FaultKind(
        scope="request", arg="tokens", default="half", text="finish reason stop, in spite of ignore_eos"
    ),
    "nan_stop": FaultKind(
        scope="request", arg="tokens", default="half", text="finish reason stop, matched 'NaN happened'"
    ),
    "wrong_token_count": FaultKind(
        scope="request", arg="tokens", default="1", text="reports that many more tokens than it sends"
    ),
    "multi_token_chunks": FaultKind(scope="request", arg="tokens", default="4", text="that many tokens in an event"),
    "cache_hits": FaultKind(
        scope="request", arg="tokens", default="half", text="that many prompt tokens come from the cache"
    ),
    "retract": FaultKind(scope="request", text="reports a retraction (the cache of keys and values was full)"),
    "wrong_text": FaultKind(scope="request", text="answers with another text than this prompt should get"),
    "garbage_after": FaultKind(
        scope="request", arg="tokens", default="half", text="the answer is garbage after that many tokens"
    ),
    "drip": FaultKind(scope="request", arg="seconds", default="1", text="one byte each that many seconds"),
    "big_event": FaultKind(scope="request", arg="bytes", default="1000000", text="pads the first event by that much"),
    "refuse": FaultKind(
        scope="connection", arg="connections", default="64", text="closes every connection beyond that many"
    ),
    "slow_accept": FaultKind(scope="connection", arg="seconds", default="1", text="reads new connections that late"),
}
_NUMBER_ARGS = frozenset({"seconds", "tokens", "ms", "factor", "bytes", "connections"})
AT_START_ONLY = frozenset(name for name, kind in FAULTS.items() if kind.scope == "start")


class FaultError(ValueError):
    """A fault that can't be understood. The text says what is allowed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Which:
    """Which requests a fault hits."""

    text: str = ""
    first: int = 1
    last: int | None = None
    every: int = 1
    fraction: float = 1.0

    def hits(self, number: int, draws: Random) -> bool:
        """Does it hit request ``number``, counted from 1?"""
        if number < self.first or (self.last is not None and number > self.last) or number % self.every:
            return False
        return self.fraction >= 1.0 or draws.random() < self.fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault as asked for."""

    name: str
    arg: str | None = None
    which: Which = field(default_factory=Which)

    def number(self, *, half_of: int = 0) -> float:
        """The argument as a number; ``half`` is half of ``half_of``, at least 1."""
        return max(half_of // 2, 1) if self.arg == "half" else float(self.arg or 0)

    def __str__(self) -> str:
        return (
            self.name
            + (f"={self.arg}" if self.arg is not None else "")
            + (f"@{self.which.text}" if self.which.text else "")
        )


def parse_fault(text: str) -> Fault:
    """``NAME[=ARG][@WHICH]`` -> Fault, its argument checked and its default filled in.

    :raises FaultError: says what is wrong and what is allowed.
    """
    match = _SYNTAX.fullmatch(text.strip())
    if match is None:
        raise FaultError(f"{text!r} is not a fault; write NAME, NAME=ARG, NAME@WHICH or NAME=ARG@WHICH")
    return make_fault(name=match["name"], arg=match["arg"], which=match["which"])


def make_fault(*, name: str, arg: str | None, which: str | None) -> Fault:
    """The parts of a fault -> Fault.

    :raises FaultError: says what is wrong and what is allowed.
    """
    kind = FAULTS.get(name)
    if kind is None:
        raise FaultError(f"no fault is named {name!r}; there are {', '.join(FAULTS)}")
    if which and kind.scope != "request":
        raise FaultError(f"{name} concerns the whole server, so it takes no @{which}")
    return Fault(name=name, arg=_check_arg(name, kind, arg), which=_parse_which(which))


def _check_arg(name: str, kind: FaultKind, arg: str | None) -> str | None:
    if not kind.arg:
        if arg is not None:
            raise FaultError(f"{name} takes no argument, but {arg!r} was given")
        return None
    value = kind.default if arg is None else arg
    if not value:
        raise FaultError(f"{name} needs an argument: {name}={kind.arg.upper()}")
    if value == kind.default:
        return value
    if kind.arg in _NUMBER_ARGS or kind.arg.startswith("count"):
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e12:
            raise FaultError(f"{name}={value}: {kind.arg} must be a number of at least 0")
    return value


def _parse_which(text: str | None) -> Which:
    if not text:
        return Which()
    if match := re.fullmatch(r"every([1-9]\d*)", text):
        return Which(text=text, every=int(match[1]))
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)%", text)) and float(match[1]) <= 100:
        return Which(text=text, fraction=float(match[1]) / 100)
    if match := re.fullmatch(r"([1-9]\d*)(?:-([1-9]\d*))?", text):
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last:
            return Which(text=text, first=first, last=last)
    raise FaultError(f"@{text} picks no requests; write @3, @3-7, @every4 or @10%")


@dataclass(slots=True)
class _Armed:
    fault: Fault
    seen: int = 0
    hit: int = 0
    tokens_left: float = 0.0


class FaultBoard:
    """The faults that are active, and what they have done."""

    def __init__(self, faults: Iterable[Fault], *, disturbance: Disturbance, draws: Random) -> None:
        self._armed: dict[str, _Armed] = {}
        self._disturbance = disturbance
        self._draws = draws
        for fault in faults:
            self.arm(fault)

    def arm(self, fault: Fault) -> None:
        """Make a fault active; one of the same name is replaced and its counts start anew."""
        self._armed[fault.name] = _Armed(fault, tokens_left=fault.number() if fault.name.endswith("_mid_run") else 0.0)
        if fault.name == "throttle":
            self._disturbance.throttle = fault.number()
        elif fault.name == "compile_stall":
            self._disturbance.stall_s = fault.number() * 1e-3

    def clear(self, name: str | None = None) -> None:
        """End one fault, or all."""
        for cleared in (name,) if name is not None else tuple(self._armed):
            self._armed.pop(cleared, None)
            if cleared == "throttle":
                self._disturbance.throttle = 1.0
            elif cleared == "compile_stall":
                self._disturbance.stall_s = 0.0

    def get(self, name: str) -> Fault | None:
        """The active fault of this name."""
        armed = self._armed.get(name)
        return armed.fault if armed else None

    def strike(self) -> dict[str, Fault]:
        """The faults that hit the next generation request. Call it once a request."""
        struck = {}
        for name, armed in self._armed.items():
            if FAULTS[name].scope != "request":
                continue
            armed.seen += 1
            hit = armed.fault.which.hits(armed.seen, self._draws)
            if name == "http_503" and armed.fault.arg != "always":
                hit = hit and armed.hit < armed.fault.number()
            if hit:
                armed.hit += 1
                struck[name] = armed.fault
        return struck

    def spend_tokens(self, tokens: int) -> str | None:
        """Count generated tokens; the name of the process fault that is due now, if any."""
        for name in ("crash_mid_run", "hang_mid_run"):
            armed = self._armed.get(name)
            if armed is not None:
                armed.tokens_left -= tokens
                if armed.tokens_left <= 0:
                    return name
        return None

    def report(self) -> list[dict[str, object]]:
        """The active faults, for ``GET /simulated/fault`` and ``/server_info``."""
        return [{"fault": str(a.fault), "seen": a.seen, "hit": a.hit} for a in self._armed.values()]
