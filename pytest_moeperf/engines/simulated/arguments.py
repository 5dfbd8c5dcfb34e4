"""The command line: SGLang's names for what SGLang has too, and the simulation's own. An unknown flag is an error."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NoReturn

from pytest_moeperf.engines.simulated.faults import Fault, FaultError, parse_fault
from pytest_moeperf.engines.simulated.profile import NoiseLevels, Profile, load_profile, profile_names
from pytest_moeperf.errors import UsageProblem

API_KEY_VARIABLE = "MOEPERF_SIMULATED_API_KEY"
"""Instead of ``--api-key``, which every user of the machine can read."""
MOE_RUNNER_BACKENDS = (
    *("auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
    *("flashinfer_cutlass", "flashinfer_mxfp4", "flashinfer_cutedsl", "cutlass", "aiter", "marlin"),
)
"""Names that ``--moe-runner-backend`` takes. One without a shipped profile needs ``--profile`` as well."""


_OWN = ("backend", "profile", "session_key", "launch_key", "seed", "time_scale", "faults")


@dataclass(frozen=True, kw_only=True)
class ServerArgs:
    """Every setting, resolved. Those of SGLang stand at the top of ``/server_info``; most change nothing in a
    simulation, and are there to be seen."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    host: str
    port: int
    moe_runner_backend: str
    tp_size: int
    ep_size: int
    nnodes: int
    node_rank: int
    dist_init_addr: str | None
    random_seed: int
    quantization: str | None
    attention_backend: str | None
    load_format: str
    device: str
    dtype: str
    context_length: int
    max_running_requests: int
    disable_radix_cache: bool
    disable_cuda_graph: bool
    enable_metrics: bool
    enable_cache_report: bool
    stream_interval: int
    incremental_streaming_output: bool
    decode_log_interval: int
    skip_server_warmup: bool
    api_key: str | None
    log_level: str

    # The simulation's own.
    backend: str
    profile: str
    session_key: str
    launch_key: str
    seed: int
    time_scale: float
    faults: tuple[Fault, ...]

    def of_sglang(self) -> dict[str, Any]:
        """The settings that SGLang has too."""
        return {name: value for name, value in asdict(self).items() if name not in _OWN}

    def of_simulation(self) -> dict[str, Any]:
        """The others, JSON-plain; faults as they are written on the command line."""
        own = {name: getattr(self, name) for name in _OWN}
        return {**own, "faults": [str(fault) for fault in self.faults]}

    def __repr__(self) -> str:
        """SGLang's log line, with the key left out."""
        shown = {**self.of_sglang(), **self.of_simulation(), "api_key": "***" if self.api_key else None}
        return f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """What was asked for."""

    args: ServerArgs
    profile: Profile
    """With the command line's own noise levels in it, as in ``executed``."""
    executed: Profile
    """What really runs: another than ``profile`` after a silent fallback."""
    launch_command: str


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """The arguments after ``python -m pytest_moeperf.engines.simulated``.

    :raises SystemExit: argparse's, with code 2 and a message, for anything wrong.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        profile = load_profile(options.profile or options.moe_runner_backend or options.backend or "auto")
        fallbacks = [str(fault.arg) for fault in options.fault if fault.name == "silent_fallback"]
        executed = load_profile(fallbacks[-1]) if fallbacks else profile
    except UsageProblem as problem:
        parser.error(str(problem))
    levels = {
        name: value for name in (f.name for f in fields(NoiseLevels)) if (value := getattr(options, name)) is not None
    }
    profile, executed = (replace(known, noise=replace(known.noise, **levels)) for known in (profile, executed))
    if options.node_rank >= options.nnodes:
        parser.error(f"argument --node-rank: {options.node_rank} must be below --nnodes {options.nnodes}")
    if options.nnodes > 1 and not re.fullmatch(r".+:\d{1,5}", options.dist_init_addr or ""):
        parser.error(f"argument --dist-init-addr: needed with --nnodes {options.nnodes}, as HOST:PORT of node 0")
    named_runner = options.backend if options.backend in MOE_RUNNER_BACKENDS else profile.runner
    values = {f.name: getattr(options, f.name) for f in fields(ServerArgs) if hasattr(options, f.name)}
    values |= {
        "tokenizer_path": options.tokenizer_path or options.model_path,
        "served_model_name": options.served_model_name or options.model_path,
        "moe_runner_backend": options.moe_runner_backend or named_runner,
        "max_running_requests": options.max_running_requests or profile.step.max_running_requests,
        "backend": options.backend or options.moe_runner_backend or profile.name,
        "profile": profile.name,
        "faults": tuple(options.fault),
    }
    command = shlex.join([sys.executable, "-m", "pytest_moeperf.engines.simulated", *argv])
    return CommandLine(args=ServerArgs(**values), profile=profile, executed=executed, launch_command=command)


class _RaisingParser(argparse.ArgumentParser):
    """Never ends the process: nor does it know ``--help``, which would end it as a success."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, add_help=False)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def refuse_bad_arguments(argv: Sequence[str]) -> None:
    """The part of ``parse_command_line`` that needs no profile.

    :raises ValueError: argparse's text for the first argument that is wrong.
    """
    _parser(_RaisingParser).parse_args(argv)


def _parser(kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = kind(
        prog="python -m pytest_moeperf.engines.simulated",
        description="A simulated SGLang server: no GPU, no model, honest about both.",
        allow_abbrev=False,
    )
    _add_sglang_flags(parser.add_argument_group("as SGLang has them"))
    own = parser.add_argument_group("the simulation's own")
    own.add_argument("--backend", help="the name the launcher uses; default of --moe-runner-backend and --profile")
    own.add_argument(
        "--profile",
        metavar="FILE_OR_NAME",
        help=f"step times, noise, traces; default: that of --moe-runner-backend. Shipped: {', '.join(profile_names())}",
    )
    own.add_argument("--seed", type=int, default=0, help="of all noise")
    own.add_argument("--session-key", default="", help="launches with the same key share the session's noise")
    own.add_argument("--launch-key", default="", help="launches with the same key share the launch's noise")
    for name in ("session_sd", "launch_sd", "run_sd", "step_sd", "step_ar1"):
        own.add_argument(
            f"--{name.replace('_', '-')}",
            type=_bounded(float, 0.0, 1.0, "a number of at least 0 and below 1"),
            help="instead of the profile's",
        )
    own.add_argument("--run-gap-s", type=_bounded(float, 0.0, 1e9, "seconds"), help="instead of the profile's")
    own.add_argument(
        "--time-scale", type=_bounded(float, 1e-6, 1e6, "a positive number"), default=1.0, help="factor on every step"
    )
    own.add_argument(
        "--fault",
        action="append",
        type=_fault,
        default=[],
        metavar="NAME[=ARG][@WHICH]",
        help="see faults.py; repeatable",
    )
    return parser


def _add_sglang_flags(group: argparse._ArgumentGroup) -> None:
    count = _bounded(int, 1, 10**9, "a whole number of at least 1")
    group.add_argument("--model-path", "--model", default="simulated")
    group.add_argument("--tokenizer-path")
    group.add_argument("--served-model-name")
    group.add_argument("--host", default="127.0.0.1")
    group.add_argument("--port", type=_bounded(int, 0, 65536, "a port, or 0 for any free one"), default=30000)
    group.add_argument("--moe-runner-backend", choices=MOE_RUNNER_BACKENDS)
    group.add_argument("--tp-size", "--tp", "--tensor-parallel-size", type=count, default=1)
    group.add_argument("--ep-size", "--ep", "--expert-parallel-size", type=count, default=1)
    group.add_argument("--nnodes", type=count, default=1)
    group.add_argument("--node-rank", type=_bounded(int, 0, 10**6, "a whole number of at least 0"), default=0)
    group.add_argument("--dist-init-addr")
    group.add_argument("--random-seed", type=int, default=1)
    group.add_argument("--quantization")
    group.add_argument("--attention-backend")
    group.add_argument("--load-format", default="auto")
    group.add_argument("--device", default="simulated")
    group.add_argument("--dtype", default="auto")
    group.add_argument("--context-length", type=_bounded(int, 1, 32769, "1 to 32768 tokens"), default=32768)
    group.add_argument("--max-running-requests", type=count, help="default: the profile's")
    group.add_argument("--disable-radix-cache", action="store_true")
    group.add_argument("--disable-cuda-graph", action="store_true")
    group.add_argument("--enable-metrics", action=argparse.BooleanOptionalAction, default=True)
    group.add_argument("--enable-cache-report", action="store_true")
    group.add_argument("--stream-interval", type=count, default=1)
    group.add_argument("--incremental-streaming-output", action="store_true")
    group.add_argument("--decode-log-interval", type=count, default=40)
    group.add_argument("--skip-server-warmup", action="store_true")
    group.add_argument("--api-key", default=os.environ.get(API_KEY_VARIABLE), help=f"default: {API_KEY_VARIABLE}")
    group.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def _bounded(convert: Callable[[str], float], at_least: float, below: float, allowed: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not at_least <= value < below:
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
        return value

    return parse


def _fault(text: str) -> Fault:
    try:
        return parse_fault(text)
    except FaultError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
