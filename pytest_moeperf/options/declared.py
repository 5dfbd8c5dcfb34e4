"""Every option, declared once: flag, environment variable, TOML key, default, parser, help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_moeperf.options.values import (
    as_duration,
    as_engine,
    as_flag,
    as_hosts,
    as_names,
    as_percent,
    as_text,
    as_time_limit,
    as_url,
    one_of,
    whole_number,
)

ENV_PREFIX = "MOEPERF_"
_TO_NAME = str.maketrans("-.", "__")


class Option:
    """One setting. Its default is that of the field which ``target`` names.

    A plain class: pytest pays for it at every start, and a dataclass takes a millisecond to make.
    """

    def __init__(
        self,
        *,
        target: str,
        parse: Callable[[object], Any],
        help: str,  # noqa: A002 - argparse's name for it
        flag: str = "",
        key: str = "",
        switch: bool = False,
        metavar: str = "",
        repeatable: bool = False,
    ) -> None:
        self.target = target
        """Field of ``Settings``, or ``gate.NAME`` for one of ``GateSettings``."""
        self.parse = parse
        self.help = help
        self.flag = flag
        """Empty: in the file and the environment only."""
        self.key = key
        """In ``[tool.moeperf]``; empty: an act, not a setting, so never in a file."""
        self.switch = switch
        self.metavar = metavar
        self.repeatable = repeatable

    @property
    def dest(self) -> str:
        return "moeperf_" + self.target.replace(".", "_")

    @property
    def env(self) -> str:
        """Its variable: named after the flag, without one after the key."""
        return ENV_PREFIX + (self.flag.removeprefix("--perf-") or self.key).translate(_TO_NAME).upper()

    @property
    def name(self) -> str:
        """As the user knows it."""
        return self.flag or f"[tool.moeperf] {self.key}"


OPTIONS: tuple[Option, ...] = (
    Option(
        target="backends",
        flag="--perf-backend",
        key="backends",
        parse=as_names,
        metavar="NAME",
        repeatable=True,
        help="backend to test; repeatable, or a comma list (short: --backend)",
    ),
    Option(
        target="update_baselines",
        flag="--perf-update-baselines",
        parse=as_flag,
        switch=True,
        help="record what is measured as the accepted baseline (short: --update-baselines)",
    ),
    Option(
        target="engine",
        flag="--perf-engine",
        key="engine",
        parse=as_engine,
        metavar="ENGINE",
        help="kind of server: simulated, sglang, attached",
    ),
    Option(
        target="attach_url",
        flag="--perf-attach",
        key="attach",
        parse=as_url,
        metavar="URL",
        help="measure a running OpenAI-compatible server; nothing is launched or stopped",
    ),
    Option(
        target="attach_hardware",
        key="attach.hardware",
        parse=as_text,
        help="what the attached server runs on, such as '8x H200': servers do not say it",
    ),
    Option(
        target="attach_model",
        key="attach.model",
        parse=as_text,
        help="what the attached server serves, where its own name for it says something else",
    ),
    Option(target="attach_engine", key="attach.engine", parse=as_text, help="of the attached server, if it names none"),
    Option(target="attach_version", key="attach.version", parse=as_text, help="of that engine, if it tells none"),
    Option(
        target="attach_args",
        key="attach.args",
        parse=as_text,
        help="how the attached server was started, if it doesn't say",
    ),
    Option(
        target="attach_log",
        key="attach.log",
        parse=as_text,
        help="the attached server's log, where this machine can read it: evidence of the MoE runner that ran",
    ),
    Option(
        target="reference",
        flag="--perf-reference",
        key="reference",
        parse=as_text,
        metavar="BACKEND",
        help="backend that each backend is held against, its baseline and head to head",
    ),
    Option(
        target="gate.verify_wins",
        flag="--perf-verify-wins",
        key="verify_wins",
        parse=as_flag,
        switch=True,
        help="verify a proven win with fresh launches, so that it may pass and be recorded",
    ),
    Option(
        target="gate.mode",
        flag="--perf-mode",
        key="mode",
        parse=one_of("screen", "confirm"),
        metavar="MODE",
        help="screen: one launch, proves what it can; confirm: go on until the numbers decide",
    ),
    Option(
        target="plan_only",
        flag="--perf-plan",
        parse=as_flag,
        switch=True,
        help="print launches, minutes and commands, then stop",
    ),
    Option(
        target="gate.budget_s",
        flag="--perf-budget",
        key="budget",
        parse=as_duration,
        metavar="TIME",
        help="longest time to spend on launching and measuring, such as 30min",
    ),
    Option(
        target="gate.record_launches",
        flag="--perf-launches",
        key="launches",
        parse=whole_number(1),
        metavar="N",
        help="fresh launches that --update-baselines records",
    ),
    Option(
        target="gate.inconclusive",
        flag="--perf-inconclusive",
        key="inconclusive",
        parse=one_of("fail", "warn"),
        metavar="WHAT",
        help="what an INCONCLUSIVE cell does: fail or warn",
    ),
    Option(
        target="gate.seed",
        flag="--perf-seed",
        key="seed",
        parse=whole_number(0),
        metavar="N",
        help="seed of the order of launches",
    ),
    Option(
        target="keep_server_s",
        flag="--perf-keep-server",
        key="keep_server",
        parse=as_duration,
        metavar="TIME",
        help="leave the server warm for the next invocation, such as 30min",
    ),
    Option(
        target="report_dir",
        flag="--perf-report",
        key="report",
        parse=as_text,
        metavar="DIR",
        help="write all raw runs (JSON), the HTML page and the pull-request comment there",
    ),
    Option(
        target="reason",
        flag="--perf-reason",
        parse=as_text,
        metavar="TEXT",
        help="why a worse baseline is accepted, kept in its history; or why a win stands in one cell alone",
    ),
    Option(
        target="resume",
        flag="--perf-continue",
        parse=as_flag,
        switch=True,
        help="go on from the runs that an interrupted or undecided invocation of the same servers finished",
    ),
    Option(
        target="profile_kernels",
        flag="--perf-profile",
        key="profile",
        parse=as_flag,
        switch=True,
        help="profile a few steps of each launch, as evidence of which kernels ran",
    ),
    Option(
        target="strict_evidence",
        flag="--perf-strict-evidence",
        key="strict_evidence",
        parse=as_flag,
        switch=True,
        help="a run whose backend can't be confirmed is INVALID",
    ),
    Option(target="model", key="model", parse=as_text, help="model folder or hub name"),
    Option(
        target="tensor_parallel",
        key="tensor_parallel",
        parse=whole_number(1),
        help="GPUs that one server spans",
    ),
    Option(
        target="nnodes",
        key="nnodes",
        parse=whole_number(1),
        help="machines that one server spans, this one included",
    ),
    Option(
        target="launcher",
        key="launcher",
        parse=one_of("local", "ssh", "slurm", "ray"),
        help="how the further nodes of a server are started: local, ssh, slurm, ray",
    ),
    Option(
        target="devices",
        flag="--perf-devices",
        key="devices",
        parse=one_of("first", "auto"),
        metavar="HOW",
        help="first: one server after the other; auto: with -n, backends side by side on disjoint GPUs",
    ),
    Option(target="hosts", key="hosts", parse=as_hosts, help="of the further nodes, for ssh"),
    Option(
        target="rendezvous",
        key="rendezvous",
        parse=as_text,
        help="this machine's address as the further nodes see it; default: its host name",
    ),
    Option(
        target="baselines_dir",
        key="baselines",
        parse=as_text,
        help="folder of stored baselines",
    ),
    Option(
        target="gate.regression",
        key="regression",
        parse=as_percent,
        help="largest loss that may pass, of a bound without its own",
    ),
    Option(target="gate.win", key="win", parse=as_percent, help="smallest gain that counts as a claim"),
    Option(
        target="gate.proven",
        key="proven",
        parse=as_percent,
        help="a loss or gain is proven where the whole interval of the change lies beyond this",
    ),
    Option(
        target="gate.runs_per_launch",
        key="runs",
        parse=whole_number(3),
        help="valid runs of a cell in each launch",
    ),
    Option(
        target="gate.assumed_session_sd",
        key="assumed_session_sd",
        parse=as_percent,
        help="standard deviation between sessions, while a baseline is provisional",
    ),
    Option(
        target="gate.assumed_launch_sd",
        key="assumed_launch_sd",
        parse=as_percent,
        help="standard deviation between launches, while a baseline is provisional",
    ),
    Option(
        target="gate.max_drift",
        key="max_drift",
        parse=as_percent,
        help="cumulative drift from the frozen anchor that an update may reach",
    ),
    Option(
        target="min_window_s",
        key="min_window",
        parse=as_duration,
        help="shortest steady window of a run that is believed",
    ),
    Option(
        target="request_timeout_s",
        key="request_timeout",
        parse=as_time_limit,
        help="longest silence inside a run, and longest time of one request, before the server is said to hang",
    ),
)

ALIASES = {"--perf-backend": "--backend", "--perf-update-baselines": "--update-baselines"}
