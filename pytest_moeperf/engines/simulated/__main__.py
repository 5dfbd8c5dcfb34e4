"""The process of the simulated server: ``python -m pytest_moeperf.engines.simulated --help``."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from pytest_moeperf.engines.simulated.arguments import CommandLine, parse_command_line
from pytest_moeperf.engines.simulated.clock import EngineLoop
from pytest_moeperf.engines.simulated.counters import Counters
from pytest_moeperf.engines.simulated.engine import Disturbance, Scheduler, StepModel, finish_abort
from pytest_moeperf.engines.simulated.faults import FaultBoard
from pytest_moeperf.engines.simulated.noise import Noise, seeded
from pytest_moeperf.engines.simulated.prefix_cache import PrefixCache
from pytest_moeperf.engines.simulated.rendezvous import Group, follow, gather
from pytest_moeperf.engines.simulated.startup import configure_logging, load
from pytest_moeperf.engines.simulated.tokens import token_ring

logger = logging.getLogger("simulated")

DRAIN_S = 0.5
"""After SIGTERM, how long running requests may go on before they are aborted."""


def main(argv: Sequence[str] | None = None) -> None:
    """Load, serve until SIGTERM or SIGINT, exit with code 0."""
    started_s = time.monotonic()
    command = parse_command_line(sys.argv[1:] if argv is None else argv)
    configure_logging(command.args.log_level)
    signal.signal(signal.SIGTERM, _exit_at_once)
    if any(fault.name == "ignore_sigterm" for fault in command.args.faults):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    load(command)
    if command.args.node_rank > 0:
        follow(command.args)
    group = gather(command.args)
    token_ring()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(command, group, started_s))
    group.dismiss()


def _exit_at_once(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM while loading or following: nothing to drain."""
    raise SystemExit(0)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


async def _serve(command: CommandLine, group: Group, started_s: float) -> None:
    from pytest_moeperf.engines.simulated.app import Service
    from pytest_moeperf.engines.simulated.generation import Generator
    from pytest_moeperf.engines.simulated.server import HttpServer
    from pytest_moeperf.engines.simulated.tracing import Tracer

    args, executed = command.args, command.executed
    disturbance = Disturbance()
    board = FaultBoard(args.faults, disturbance=disturbance, draws=seeded("faults", args.seed))
    noise = Noise(
        executed.noise,
        seed=args.seed,
        session_key=args.session_key,
        launch_key=args.launch_key,
        profile_name=executed.name,
    )
    model = StepModel(
        times=executed.step,
        levels=executed.noise,
        warmup=executed.warmup,
        noise=noise,
        disturbance=disturbance,
        time_scale=args.time_scale,
    )
    engine = EngineLoop(
        Scheduler(model, max_running_requests=args.max_running_requests),
        Counters(),
        after_step=lambda tokens: _process_fault(board, tokens),
        log_interval=args.decode_log_interval,
    )
    cache = PrefixCache()
    generator = Generator(args=args, engine=engine, board=board, cache=cache, live={})
    service = Service(
        args=args,
        profile=command.profile,
        executed=executed,
        launch_command=command.launch_command,
        startup_s=time.monotonic() - started_s,
        engine=engine,
        board=board,
        cache=cache,
        disturbance=disturbance,
        tracer=Tracer(engine, executed.traces.kernels),
        generator=generator,
    )
    server = HttpServer(service.app(), host=args.host, port=args.port, board=board)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        service.exiting = True
        server.should_exit = True
        loop.call_later(DRAIN_S, engine.abort_all, finish_abort("the server is shutting down", status_code=503))

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    for member in group.members:
        loop.add_reader(member, _member_vanished)
    # What is loaded now stays: sweeping over it again and again would make steps late.
    gc.collect()
    gc.freeze()
    turning = asyncio.ensure_future(engine.run())
    turning.add_done_callback(_engine_ended)
    await server.serve()
    turning.cancel()
    for member in group.members:
        loop.remove_reader(member)


def _process_fault(board: FaultBoard, tokens: int) -> bool:
    """Count tokens towards a crash or a hang. Returns whether the engine hangs now."""
    due = board.spend_tokens(tokens)
    if due == "crash_mid_run":
        logger.error(
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            "RuntimeError: simulated crash in a forward pass"
        )
        sys.stderr.flush()
        os._exit(1)
    if due == "hang_mid_run":
        logger.warning("simulated: the engine hangs from here on")
    return due == "hang_mid_run"


def _member_vanished() -> None:
    logger.error("Scheduler hit an exception: another node has vanished (simulated)")
    sys.stderr.flush()
    os._exit(1)


def _engine_ended(turning: asyncio.Task[None]) -> None:
    # A bug in the engine must end the process, not leave a server that never answers.
    if not turning.cancelled() and (error := turning.exception()) is not None:
        logger.error("simulated: the engine failed", exc_info=error)
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
