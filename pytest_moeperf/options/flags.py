"""The options as pytest's command line shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_moeperf.options.declared import ALIASES, OPTIONS, Option


def _argparse_type(option: Option) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError as error:
            import argparse

            from pytest_moeperf.outgoing import told

            raise argparse.ArgumentTypeError(told(str(error))) from None

    return parse


def _arguments_of(option: Option) -> dict[str, Any]:
    twin = f"; [tool.moeperf] {option.key}" if option.key else ""
    attributes: dict[str, Any] = {"dest": option.dest, "default": None, "help": f"{option.help}{twin}; {option.env}"}
    if option.switch:
        return attributes | {"action": "store_const", "const": True}
    attributes |= {"metavar": option.metavar, "type": _argparse_type(option)}
    return attributes | ({"action": "extend"} if option.repeatable else {})


def add_options(parser: pytest.Parser) -> None:
    """The flags that always exist."""
    group = parser.getgroup("moeperf", "LLM serving performance")
    for option in OPTIONS:
        if option.flag:
            group.addoption(option.flag, **_arguments_of(option))


def any_given(config: pytest.Config) -> bool:
    return any(getattr(config.option, option.dest, None) is not None for option in OPTIONS if option.flag)


def add_aliases(parser: pytest.Parser) -> frozenset[str]:
    """``--backend`` and ``--update-baselines``, where no other plugin and no conftest.py owns the name; returns those
    that somebody owns.

    Called after the initial conftests: registering earlier would make *their* registration fail.
    """
    group = parser.getgroup("moeperf")
    taken = frozenset(alias for alias in ALIASES.values() if _taken(alias, parser))
    for option in OPTIONS:
        alias = ALIASES.get(option.flag)
        if alias is not None and alias not in taken:
            group.addoption(alias, **_arguments_of(option) | {"help": f"same as {option.flag}"})
    return taken


def _taken(flag: str, parser: pytest.Parser) -> bool:
    """Asked of the parser before anything is registered. When a conflict is found depends on pytest's version: in 8 as
    it parses, in 9.0 after the owner's option has been lost."""
    try:
        _, unknown = parser.parse_known_and_unknown_args([flag])
    except pytest.UsageError:  # it wants a value
        return True
    return flag not in unknown
