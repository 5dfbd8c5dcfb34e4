"""The tables of docs/configuration.md, made from what the code declares. ``python tests/docs/configuration_table.py`` writes
them into the page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from pytest_moeperf.options import values
from pytest_moeperf.options.declared import ALIASES, OPTIONS, Option
from pytest_moeperf.options.resolve import default_of
from pytest_moeperf.units import format_duration, format_percent

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
_BEGIN, _END = "<!-- made by tests/docs/configuration_table.py -->", "<!-- end -->"

_KINDS = {
    values.as_text: "text",
    values.as_names: "a name, or a list of names",
    values.as_hosts: "a list of host names",
    values.as_flag: "true or false",
    values.as_duration: 'a duration, `"30min"`',
    values.as_time_limit: 'a duration above 0, `"10min"`',
    values.as_percent: 'a share, `"5%"` or `0.05`',
    values.as_url: "http(s)://HOST:PORT",
}


def tables() -> str:
    """Those of the settings, and of the acts that no file may ask for."""
    settings = [option for option in OPTIONS if option.key]
    acts = [option for option in OPTIONS if not option.key]
    lines = ["| key | what | type | default | flag | variable |", "|---|---|---|---|---|---|"]
    for option in settings:
        cells = (f"`{option.key}`", option.help, _kind(option), _default(option), _flag(option), f"`{option.env}`")
        lines.append(_row(*cells))
    lines += ["", "On the command line and in the environment alone, because each is an act and not a setting:", ""]
    lines += ["| flag | what | variable |", "|---|---|---|"]
    lines += [_row(_flag(option), option.help, f"`{option.env}`") for option in acts]
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """The page with today's tables in it."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{tables()}\n{_END}{after}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _kind(option: Option) -> str:
    if option.parse in _KINDS:
        return _KINDS[option.parse]
    given: dict[str, Any] = dict(inspect.getclosurevars(option.parse).nonlocals)
    if "allowed" in given:
        return " or ".join(f"`{value}`" for value in given["allowed"])
    if "least" in given:
        return f"a whole number of at least {given['least']}"
    # The engines are read where they are used.
    return re.sub(r"^.*?: ", "", option.help).replace(", ", " or ")


def _default(option: Option) -> str:
    value = default_of(option)
    if value is None or value in ("", ()):
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if option.parse is values.as_percent:
        return format_percent(value)
    if option.target.endswith("_s"):
        return format_duration(value) if value else "0"
    return f"`{value}`"


def _flag(option: Option) -> str:
    if not option.flag:
        return "-"
    value = f"={option.metavar}" if option.metavar and not option.switch else ""
    short = f", `{ALIASES[option.flag]}`" if option.flag in ALIASES else ""
    return f"`{option.flag}{value}`{short}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
