"""Every error a user can meet. Each carries its facts as fields, composes its message from them and survives pickling
(xdist workers send them to the controller)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_moeperf.outgoing import told


@dataclass(eq=False, repr=False)
class MoeperfError(Exception):
    """Base of all errors raised on purpose. Subclasses are dataclasses whose fields compose ``str(error)``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.__dict__.copy()))

    def __str__(self) -> str:
        return told(self.message())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"  # what tracebacks show of a local

    def message(self) -> str:
        """The whole text for the user: what happened, the value, what is allowed, the next step."""
        raise NotImplementedError


def _rebuild(kind: type[MoeperfError], fields: dict[str, Any]) -> MoeperfError:
    return kind(**fields)


@dataclass(eq=False, repr=False)
class UsageProblem(MoeperfError):
    """A flag, a setting, a marker or a file that says something impossible. Found before anything is launched."""

    where: str
    """What holds the value: ``--perf-budget``, ``pyproject.toml [tool.moeperf] model``, a node id."""
    problem: str
    """What is wrong with which value."""
    allowed: str = ""
    """What would be right."""
    next_step: str = ""

    def message(self) -> str:
        lines = [f"{self.where}: {self.problem}"]
        if self.allowed:
            lines.append(f"  allowed: {self.allowed}")
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


@dataclass(eq=False, repr=False)
class ServerError(MoeperfError):
    """A server that did not start, did not answer or died. Says what was awaited and shows the log's tail."""

    what: str
    """One line: which server, what happened (``exited with code 1 after 3.2 s``, ``not ready after 60 s``)."""
    hint: str = ""
    log_path: str = ""
    log_tail: tuple[str, ...] = ()

    def message(self) -> str:
        lines = [self.what]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        if self.log_tail:
            lines.append(f"  last lines of {self.log_path}:")
            lines.extend(f"    | {line}" for line in self.log_tail)
        elif self.log_path:
            lines.append(f"  its log, {self.log_path}, is empty")
        return "\n".join(lines)


@dataclass(eq=False, repr=False)
class LoadError(MoeperfError):
    """The load could not be driven at all (not: some request failed, which is a failed validity check)."""

    what: str
    next_step: str = ""

    def message(self) -> str:
        return f"{self.what}\n  next: {self.next_step}" if self.next_step else self.what


@dataclass(eq=False, repr=False)
class BaselineError(MoeperfError):
    """A baseline file that can't be read or written. The file is left as it is."""

    path: str
    problem: str
    next_step: str = ""

    def message(self) -> str:
        return f"{self.path}: {self.problem}" + (f"\n  next: {self.next_step}" if self.next_step else "")
