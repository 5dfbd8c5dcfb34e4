"""Every planted secret, in every field that holds text from elsewhere, is in no output."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from planted import PLANTED, leaks
from reporting_samples import (
    COMMAND,
    ENVIRONMENT,
    STARTED,
    contradicted,
    heading,
    incomparable,
    invalid,
    settings,
    verified_win,
)

from pytest_moeperf.baselines.codec import refuse_secrets
from pytest_moeperf.cli.output import print_json, print_lines
from pytest_moeperf.errors import BaselineError, LoadError, MoeperfError, ServerError, UsageProblem
from pytest_moeperf.evidence.matching import _quote
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.codec import from_plain, to_plain
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.settings import ServerSettings, Settings
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.outgoing import told
from pytest_moeperf.reporting.github import annotation_lines, pull_request_comment, step_summary
from pytest_moeperf.reporting.json import as_plain
from pytest_moeperf.reporting.junit import junit_properties
from pytest_moeperf.reporting.terminal import failure_text, heading_lines, table_lines
from pytest_moeperf.reporting.view import View, build_view
from pytest_moeperf.servers.logfile import ServerLog
from pytest_moeperf.session.journal import Journal

FREE_TEXT = frozenset(
    {
        *("text", "source", "rule", "runner", "requested", "command", "log_path", "baseline", "here", "reasons", "odd"),
        *("next_steps", "reason", "recorded", "refused", "session", "node_id", "name", "read", "advice", "problem"),
        *("backend", "model", "warnings", "error", "value", "server", "software", "hardware", "environment", "detail"),
    }
)
"""Fields of a run, a decision and an outcome that hold what others wrote."""

shapes = pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)


def poisoned(value: Any, text: str, *, field: str = "") -> Any:
    if isinstance(value, dict):
        plant = {f"planted {text}": text} if field in ("server", "software", "hardware", "environment") else {}
        return {
            key: poisoned(item, text, field=field if field == "session" else key) for key, item in value.items()
        } | plant
    if isinstance(value, list | tuple):
        return [poisoned(item, text, field=field) for item in value]
    return f"{value} {text}" if isinstance(value, str) and field in FREE_TEXT else value


def outcome_with(text: str, made: Outcome) -> Outcome:
    return from_plain(Outcome, poisoned(to_plain(made), text))


def settings_with(text: str) -> Settings:
    server = ServerSettings(args=(text, f"--note={text}"), env={"ANY_NAME": text, "NCCL_ALGO": text}, python=text)
    return replace(settings(), server=server, backend_servers={"x": server}, reason=text, attach_args=text, model=text)


def view_with(text: str) -> View:
    made = [outcome_with(text, sample()) for sample in (contradicted, incomparable, invalid, verified_win)]
    return build_view(
        made,
        heading=replace(heading(), model=text, hardware=text, beside=text, candidates=(text,)),
        settings=settings_with(text),
        started_at=STARTED,
        pytest_command=shlex.join([*COMMAND.split(), f"--perf-reason={text}", text]),
        environment={**ENVIRONMENT, "cmdline": text},
        orphans=(text,),
        notes=(text,),
    )


def test_there_are_enough_shapes_and_planting_them_plants_them() -> None:
    assert len(PLANTED) >= 40
    assert all(map(leaks, PLANTED.values()))
    made = outcome_with(PLANTED["jwt"], incomparable())
    assert json.dumps(to_plain(made)).count(PLANTED["jwt"]) > 15


@shapes
def test_no_report_holds_it(text: str) -> None:
    view = view_with(text)
    outputs = {
        "terminal": "\n".join([*table_lines(view, width=100), *heading_lines(view.heading)]),
        "json": json.dumps(as_plain(view), ensure_ascii=False),
        "summary": step_summary(view),
        "comment": pull_request_comment(view),
        "annotations": "\n".join(annotation_lines(view, locations={})),
        "junit": repr([junit_properties(outcome_with(text, contradicted()))]),
        "failure": failure_text(
            outcome_with(text, contradicted()), pytest_command=shlex.join([*COMMAND.split(), "-k", text])
        ),
    }
    assert [name for name, output in outputs.items() if leaks(output)] == []


def test_no_page_holds_one(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from pytest_moeperf.reporting.html import write_html

    made = [outcome_with(text, contradicted()) for text in PLANTED.values()]
    view = build_view(made, heading=heading(), settings=settings_with(PLANTED["url"]), started_at=STARTED)
    assert not leaks(write_html(view, tmp_path).read_text())


@shapes
def test_no_error_holds_it(text: str) -> None:
    errors: list[MoeperfError] = [
        UsageProblem(where=text, problem=text, allowed=text, next_step=text),
        ServerError(what=text, hint=text, log_path=text, log_tail=(text, text)),
        LoadError(what=text, next_step=text),
        BaselineError(path=text, problem=text, next_step=text),
    ]
    assert [type(error) for error in errors if leaks(f"{error} {error!r} {[error]}")] == []


@shapes
def test_no_log_tail_and_no_evidence_holds_it(tmp_path: Path, text: str) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"starting\n{text}\n{'x ' * 300}{text}\n")
    assert not leaks("\n".join(ServerLog(log).tail()))
    assert not leaks(told(_quote(f"{'y ' * 80}MoE runner {text}", re.compile("MoE runner"))))


@shapes
def test_no_command_prints_it(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([text, f"name  {text}"])
    print_lines([text], error=True)
    print_json({"a": [text], text: {"b": text}})
    out, err = capsys.readouterr()
    assert not leaks(out + err)


@shapes
def test_no_journal_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    journal = Journal(tmp_path, "one")
    journal.take()
    journal.start()
    now = datetime.now(UTC).isoformat()
    journal.add(replace(outcome_with(text, invalid()).runs[0], started_at=now))
    journal.release()
    assert not leaks(journal.path.read_text())
    assert len(journal.runs()) == 1


@shapes
@pytest.mark.parametrize("where", ["server", "provenance", "evidence"])
def test_no_baseline_is_written_with_it(text: str, where: str) -> None:
    made: Callable[[str], Baseline] = lambda planted: Baseline(  # noqa: E731 - three places for one text
        engine="sglang",
        model="m",
        cell=contradicted().decision.cell,
        fingerprint=Fingerprint(server={"args": planted if where == "server" else ""}),
        evidence=Evidence(runner=planted if where == "evidence" else ""),
        runs=(),
        provenance=planted if where == "provenance" else "",
    )
    refuse_secrets(made("harmless"), path="p")
    with pytest.raises(BaselineError) as caught:
        refuse_secrets(made(text), path="p")
    assert not leaks(str(caught.value))
