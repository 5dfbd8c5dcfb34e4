"""A simulated backend: how long its steps take, how much they vary, and which kernels it claims to run.

Profiles are TOML files (or JSON with the same keys). Every key but ``runner`` has a default; unknown keys are errors.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_moeperf.errors import UsageProblem

_SHIPPED = Path(__file__).with_name("profiles")


def _running(point: tuple[float, float]) -> float:
    return point[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """How long one decode step lasts, before noise."""

    a_ms: float = 5.0
    """Milliseconds of a step that do not depend on the batch."""
    b_ms: float = 0.02
    """Milliseconds that each running request adds."""
    points: tuple[tuple[float, float], ...] = ()
    """Pairs (running requests, step milliseconds), interpolated; they replace ``a_ms + b_ms * n`` where given."""
    prefill_ms_per_token: float = 0.005
    """Milliseconds that each new, uncached prompt token adds to the step that admits its request."""
    max_running_requests: int = 1024
    """Requests that share a step at most; the rest wait in the queue."""

    def decode_ms(self, running: float) -> float:
        """Milliseconds of a step with ``running`` requests. Beyond the last point the last slope goes on."""
        if not self.points:
            return self.a_ms + self.b_ms * running
        if len(self.points) == 1 or running <= self.points[0][0]:
            return self.points[0][1]
        at = min(bisect_left(self.points, running, key=_running), len(self.points) - 1)
        left, right = self.points[at - 1], self.points[at]
        slope = (right[1] - left[1]) / (right[0] - left[0])
        return left[1] + slope * (running - left[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseLevels:
    """Standard deviations of ln(step time), by source, as in the model of measuring: session, launch, run and step."""

    session_sd: float = 0.004
    launch_sd: float = 0.003
    run_sd: float = 0.003
    step_sd: float = 0.01
    step_ar1: float = 0.5
    """Correlation of one step's noise with the next one's."""
    run_gap_s: float = 0.5
    """Idle seconds after which the next request starts a new run (a flush of the cache always does)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmup:
    """What a young server does worse, at each batch size (rounded up to a power of two) on its own."""

    runs: int = 0
    """How many runs at a new batch size are slow."""
    factor: float = 1.0
    """By how much the steps of those runs are longer."""
    compile_stall_ms: float = 0.0
    """Milliseconds that the very first step at a new batch size takes on top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """What the executed runner leaves behind for those who look for evidence."""

    log: tuple[str, ...] = ()
    """Lines of the server's log."""
    kernels: tuple[str, ...] = ()
    """Kernel names in a profile's trace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One simulated backend."""

    name: str
    runner: str
    """The MoE runner that is executed, whatever the flag says."""
    description: str = ""
    hardware: str = "simulated"
    """Which imagined machine this is: profiles of one machine share the name, and may be compared."""
    step: StepTimes = field(default_factory=StepTimes)
    noise: NoiseLevels = field(default_factory=NoiseLevels)
    warmup: Warmup = field(default_factory=Warmup)
    traces: Traces = field(default_factory=Traces)

    def to_dict(self) -> dict[str, Any]:
        """JSON-plain values, tuples as lists."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def digest(self) -> str:
        """sha256 over the canonical JSON of all fields: equal exactly where two profiles are equal."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


@cache
def profile_names() -> tuple[str, ...]:
    """The shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def load_profile(name_or_path: str | Path) -> Profile:
    """A shipped profile by its name, or the user's own by a path that ends in ``.toml`` or ``.json``.

    :raises UsageProblem: names the file, the key, the value and what is allowed.
    """
    text = str(name_or_path)
    if text in profile_names():
        path = _SHIPPED / f"{text}.toml"
    elif text.endswith((".toml", ".json")):
        path = Path(text)
    else:
        raise UsageProblem(
            where="simulated profile",
            problem=f"no profile is named {text!r}",
            allowed=f"{', '.join(profile_names())}, or the path of a .toml or .json file",
        )
    return _parse(_read(path), where=str(path), default_name=path.stem)


def _read(path: Path) -> Mapping[str, Any]:
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageProblem(where=where, problem=f"the profile can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(where=where, problem=f"the profile is not UTF-8 text: {error.reason}") from error
    try:
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise UsageProblem(
            where=where, problem=f"the profile is not valid {path.suffix[1:].upper()}: {error}"
        ) from error
    if not isinstance(table, dict):
        raise UsageProblem(where=where, problem="the profile is not a table of keys and values")
    return table


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """What a key takes: words for the message, and a converter that raises ValueError."""

    allowed: str
    convert: Callable[[Any], Any]


def _number(*, at_least: float = 0.0, below: float = math.inf, positive: bool = False) -> _Rule:
    words = "a number above 0" if positive else f"a number of at least {at_least:g}"
    words += f" and below {below:g}" if math.isfinite(below) else ""

    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not at_least <= value < below:
            raise ValueError(value)
        if positive and value == 0:
            raise ValueError(value)
        return float(value)

    return _Rule(allowed=words, convert=convert)


def _whole(*, at_least: int) -> _Rule:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise ValueError(value)
        return value

    return _Rule(allowed=f"a whole number of at least {at_least}", convert=convert)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(value)
    return tuple(_text(entry) for entry in value)


def _points(value: Any) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError(value)
    running, step_ms = _number(), _number(positive=True)
    pairs = tuple((float(running.convert(n)), float(step_ms.convert(ms))) for n, ms in value)
    if any(left[0] >= right[0] for left, right in pairwise(pairs)):
        raise ValueError(value)
    return pairs


_TEXT = _Rule(allowed="a text", convert=_text)
_TEXTS = _Rule(allowed="a list of texts", convert=_texts)
_SD = _number(below=1.0)
_KEYS: dict[str, _Rule] = {"name": _TEXT, "runner": _TEXT, "description": _TEXT, "hardware": _TEXT}
_TABLES: dict[str, tuple[type[Any], dict[str, _Rule]]] = {
    "step": (
        StepTimes,
        {
            "a_ms": _number(positive=True),
            "b_ms": _number(),
            "points": _Rule(
                allowed="a list of [running requests, step ms] pairs, the requests rising", convert=_points
            ),
            "prefill_ms_per_token": _number(),
            "max_running_requests": _whole(at_least=1),
        },
    ),
    "noise": (
        NoiseLevels,
        {
            "session_sd": _SD,
            "launch_sd": _SD,
            "run_sd": _SD,
            "step_sd": _SD,
            "step_ar1": _SD,
            "run_gap_s": _number(),
        },
    ),
    "warmup": (
        Warmup,
        {"runs": _whole(at_least=0), "factor": _number(positive=True), "compile_stall_ms": _number()},
    ),
    "traces": (Traces, {"log": _TEXTS, "kernels": _TEXTS}),
}


def _parse(table: Mapping[str, Any], *, where: str, default_name: str) -> Profile:
    values = _convert({k: v for k, v in table.items() if k not in _TABLES}, _KEYS, where=where, more=tuple(_TABLES))
    for name, (kind, rules) in _TABLES.items():
        section = table.get(name, {})
        if not isinstance(section, dict):
            raise UsageProblem(where=f"{where}: {name}", problem=f"{section!r} is not a table", allowed=f"[{name}]")
        values[name] = kind(**_convert(section, rules, where=f"{where}: [{name}]"))
    if "runner" not in values:
        raise UsageProblem(
            where=where, problem="the key runner is missing", allowed="runner = the MoE runner that is executed"
        )
    return Profile(**{"name": default_name, **values})


def _convert(
    table: Mapping[str, Any], rules: Mapping[str, _Rule], *, where: str, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in table.items():
        rule = rules.get(key)
        if rule is None:
            raise UsageProblem(where=where, problem=f"unknown key {key!r}", allowed=", ".join((*rules, *more)))
        try:
            values[key] = rule.convert(value)
        except ValueError as error:
            raise UsageProblem(
                where=f"{where} {key}", problem=f"{value!r} is not right", allowed=rule.allowed
            ) from error
    return values
