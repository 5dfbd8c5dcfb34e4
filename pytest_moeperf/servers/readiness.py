"""Waiting for a server to be ready: "ended" is told apart from "not yet"."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from pytest_moeperf.asking import ask
from pytest_moeperf.model.server import LaunchPlan, ServerProgress, ServerRecord
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers.hints import hint_for_exit, hint_for_silence
from pytest_moeperf.servers.link import GuardianLink
from pytest_moeperf.servers.logfile import TAIL_LINES, ServerLog
from pytest_moeperf.servers.phases import phase_of
from pytest_moeperf.servers.ports import stranger_on
from pytest_moeperf.servers.problems import ServerExited, ServerNotReady
from pytest_moeperf.servers.wire import LineClosedError
from pytest_moeperf.units import format_duration

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.25
_PAUSE_GROWTH = 1.3
_ANSWER_S = 2.0
_HINT_LINES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """The answer to one health question."""

    good: bool
    text: str
    """``200``, ``503``, ``connection refused``."""


def ask_health(host: str, port: int, path: str, *, api_key: ApiKey | None, timeout_s: float = _ANSWER_S) -> Health:
    """One GET. Never raises: a server that is starting answers in every possible way."""
    answer = ask(f"http://{host}:{port}", path, api_key=api_key, timeout_s=timeout_s)
    text = str(answer.status) if answer.status is not None else answer.problem.removeprefix(f"{path}: ")
    return Health(good=answer.status == 200, text=text)


def wait_ready(
    plan: LaunchPlan,
    link: GuardianLink,
    *,
    on_progress: Callable[[ServerProgress], None] = lambda _progress: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Until the health answer is 200 and the log has the marker, if there is one. Asks no more after that.

    :returns: seconds from now to ready.
    :raises ServerExited: its process ended.
    :raises ServerNotReady: it lives, and is not ready after ``plan.start_timeout_s``.
    """
    record = link.record
    log = ServerLog(record.log_path)
    began = clock()
    phase, detail = "launched", ""
    marked = plan.ready_log_marker is None
    pause_s = _FIRST_PAUSE_S
    while True:
        # Whether it lives is asked first: what the log and the port say after that can only be newer.
        ended, exit_code = _end_of(link)
        for line in log.new_lines():
            marked = marked or (plan.ready_log_marker is not None and plan.ready_log_marker in line)
            if (announced := phase_of(line)) is not None:
                phase, detail = announced, line.strip()
        elapsed_s = clock() - began
        if ended:
            raise exited_error(
                plan.name, exit_code, log, when=f"after {format_duration(elapsed_s)}, before it was ready"
            )
        health = ask_health(plan.host, record.port, plan.health_path, api_key=plan.api_key)
        if health.good and (stranger := stranger_on(record)) is not None:
            health = Health(good=False, text=f"answered by pid {stranger}, which is not this server")
        if health.good and marked:
            return clock() - began
        on_progress(ServerProgress(elapsed_s=elapsed_s, phase=phase, detail=detail))
        if elapsed_s >= plan.start_timeout_s:
            raise _not_ready(plan, record, log, health, marked=marked)
        sleep(min(pause_s, max(0.0, plan.start_timeout_s - elapsed_s)))
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _PAUSE_GROWTH)


def exited_error(name: str, exit_code: int | None, log: ServerLog, *, when: str) -> ServerExited:
    """The error for a server that ended by itself."""
    hint, port_taken = hint_for_exit(log.tail(_HINT_LINES), exit_code)
    return ServerExited(
        what=f"{name} {exit_text(exit_code)} {when}",
        hint=hint,
        log_path=str(log.path),
        log_tail=log.tail(TAIL_LINES),
        exit_code=exit_code,
        port_taken=port_taken,
    )


def exit_text(exit_code: int | None) -> str:
    """``exited with code 1``, ``was ended by SIGKILL``."""
    if exit_code is None:
        return "ended (nobody saw its exit code)"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"


def _end_of(link: GuardianLink) -> tuple[bool, int | None]:
    try:
        code = link.exit_code()
    except LineClosedError:  # the guardian was killed, and the server with it
        return True, None
    return code is not None, code


def _not_ready(
    plan: LaunchPlan, record: ServerRecord, log: ServerLog, health: Health, *, marked: bool
) -> ServerNotReady:
    awaited = f"GET {record.url}{plan.health_path} = 200 (last answer: {health.text})"
    if plan.ready_log_marker is not None:
        seen = "seen" if marked else "not seen"
        awaited += f' and the log line "{plan.ready_log_marker}" ({seen})'
    return ServerNotReady(
        what=f"{plan.name} lives (pid {record.pid}) but is not ready after {format_duration(plan.start_timeout_s)}: "
        f"awaited {awaited}",
        hint=hint_for_silence(log.tail(_HINT_LINES))
        or "raise start_timeout in [tool.moeperf.server] if it needs longer",
        log_path=str(log.path),
        log_tail=log.tail(TAIL_LINES),
    )
