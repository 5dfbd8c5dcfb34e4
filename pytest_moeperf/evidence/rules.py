"""The evidence rules: data in ``rules/*.toml``, one file an engine, read and checked here."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Version = tuple[int, ...]

SOURCES = ("log", "server_info", "metrics", "kernels", "device")
STRENGTHS = ("proof", "claim", "override", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One thing to look for, and what it means. The fields are explained at the top of ``rules/sglang.toml``."""

    id: str
    source: str
    pattern: re.Pattern[str]
    strength: str
    why: str
    field: str = ""
    shows: str = ""
    same_as: tuple[str, ...] = ()
    since: Version = ()
    until: Version = ()
    any_version: bool = False
    of_target: bool = False
    device: str = ""
    unless: re.Pattern[str] | None = None
    note: str = ""
    look: str = ""

    def applies_to(self, version: Version) -> bool:
        return self.since <= version and (not self.until or version <= self.until)

    def runner_in(self, match: re.Match[str]) -> str:
        """The runner that a match names; empty for a note."""
        named = [value for name, value in match.groupdict().items() if name.startswith("runner") and value]
        return named[0] if named else self.shows


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleBook:
    """All rules for one engine."""

    engine: str
    read_in: tuple[Version, ...]
    """Versions whose source the rules were read in, ascending."""
    runners: frozenset[str]
    aliases: dict[str, str]
    rules: tuple[Rule, ...]

    def covers(self, version: Version | None) -> bool:
        return version is not None and self.read_in[0] <= version <= self.read_in[-1]

    def nearest(self, version: Version | None) -> Version:
        """The version whose rules are used: itself, the nearest end of what was read, or the newest where unknown."""
        if version is None:
            return self.read_in[-1]
        return min(max(version, self.read_in[0]), self.read_in[-1])

    def canonical(self, runner: str) -> str:
        """One spelling for a runner's name."""
        name = runner.strip().lower().replace("-", "_")
        return self.aliases.get(name, name)


def parse_version(text: str | None) -> Version | None:
    """``0.5.14.post1`` -> (0, 5, 14); None where there is no number to go by (``main``, a development version)."""
    match = re.search(r"\d+(?:\.\d+)*", text or "")
    version = tuple(int(part) for part in match[0].split(".")) if match else ()
    # setuptools-scm writes 0.0.0 or 0.1.dev... where it can't see a tag.
    return version[:3] if any(version) else None


def show_version(version: Version) -> str:
    return ".".join(map(str, version))


@cache
def load_rules(engine: str) -> RuleBook | None:
    """The rules for an engine; None: there are none."""
    resource = files("pytest_moeperf.evidence") / "rules" / f"{engine}.toml"
    if not resource.is_file():
        return None
    return parse_rules(resource.read_text("utf-8"))


def parse_rules(text: str) -> RuleBook:
    """A rules file's text -> RuleBook.

    :raises ValueError: names the rule and what is wrong with it.
    """
    data = tomllib.loads(text)
    rules = tuple(_parse_rule(entry) for entry in data["rule"])
    if len({rule.id for rule in rules}) != len(rules):
        raise ValueError(f"{data['engine']}: two rules have the same id")
    return RuleBook(
        engine=data["engine"],
        read_in=tuple(sorted(parse_version(version) or () for version in data["read_in"])),
        runners=frozenset(data["runners"]),
        aliases=data.get("aliases", {}),
        rules=rules,
    )


def _parse_rule(entry: dict[str, Any]) -> Rule:
    name = entry.get("id", "a rule without an id")
    if entry.get("source") not in SOURCES or entry.get("strength") not in STRENGTHS or not entry.get("why"):
        raise ValueError(f"{name}: needs a source of {SOURCES}, a strength of {STRENGTHS} and a why")
    values = dict(entry)
    try:
        values["pattern"] = re.compile(entry["pattern"], re.MULTILINE)
        if "unless" in entry:
            values["unless"] = re.compile(entry["unless"])
        for bound in ("since", "until"):
            values[bound] = (parse_version(entry[bound]) or ()) if bound in entry else ()
        values["same_as"] = tuple(entry.get("same_as", ()))
        return Rule(**values)
    except (KeyError, TypeError, re.error) as error:
        raise ValueError(f"{name}: {error}") from None
