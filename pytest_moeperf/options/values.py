"""Parsers of single values, for every source alike. Each raises ValueError that shows the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


_USERINFO = "a URL with a user or a password in it (user:password@) is not taken: {instead}"
"""It is not shown."""


def as_names(value: object) -> tuple[str, ...]:
    """``"a,b"``, ``["a", "b"]`` or, from repeated flags, ``["a,b", "c"]``."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{value!r} is not a name or a list of names")
    names = [name.strip() for part in parts for name in part.split(",")]
    if not names or not all(names):
        raise ValueError(f"{value!r} has an empty name in it")
    return tuple(dict.fromkeys(names))


def as_hosts(value: object) -> tuple[str, ...]:
    """``["node1", "user@node2"]``: nothing that ``ssh`` could take for an option."""
    names = as_names(value)
    for name in names:
        if name.startswith("-") or any(character.isspace() for character in name):
            raise ValueError(f"{name!r} is not a host name such as 'node1' or 'user@node1'")
    return names


def as_arguments(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{value!r} is not a list of strings, one an argument")
    from pytest_moeperf.outgoing.secrets import has_userinfo

    if any(map(has_userinfo, value)):
        raise ValueError(_USERINFO.format(instead="every user of this machine can read a command, not so [server.env]"))
    return tuple(value)


def as_environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table of strings")
    if others := [name for name, part in value.items() if not isinstance(part, str)]:
        raise ValueError(f"not a string: {', '.join(others)}")  # the values beside them are not shown
    return dict(value)


def as_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise ValueError(f"{value!r} is neither true nor false")


def whole_number(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or number < least:
            raise ValueError(f"{value!r} is not a whole number of at least {least}")
        return number

    return parse


def one_of(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is not one of {', '.join(allowed)}")
        return str(value)

    return parse


def as_duration(value: object) -> float:
    from pytest_moeperf.units import parse_duration_s

    return parse_duration_s(value)


def as_time_limit(value: object) -> float:
    seconds = as_duration(value)
    if seconds <= 0:
        raise ValueError(f"{value!r} leaves no time at all")
    return seconds


def as_percent(value: object) -> float:
    from pytest_moeperf.units import parse_percent

    return parse_percent(value)


def as_url(value: object) -> str:
    # A base URL as OpenAI's clients want it.
    text = as_text(value).rstrip("/").removesuffix("/v1").rstrip("/")
    # Without a scheme it is none to the scrubber.
    if "@" in text.partition("?")[0]:
        raise ValueError(_USERINFO.format(instead="the key of a server goes into MOEPERF_API_KEY"))
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{value!r} does not start with http:// or https://")
    return text


def as_engine(value: object) -> str:
    from pytest_moeperf.model.workload import ENGINES

    return one_of(*ENGINES)(value)
