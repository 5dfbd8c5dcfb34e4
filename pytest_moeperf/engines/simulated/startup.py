"""What a launch prints, in SGLang's style, and what may go wrong in it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

from pytest_moeperf.engines.simulated.arguments import CommandLine
from pytest_moeperf.engines.simulated.faults import Fault

logger = logging.getLogger("simulated")

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 139.81 GiB "
    "of which 3.21 GiB is free. Process 4242 has 136.58 GiB memory in use. Of the allocated memory 135.02 GiB is "
    "allocated by PyTorch, and 812.41 MiB is reserved by PyTorch but unallocated. (simulated)"
)
_MISSING_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device (simulated)"


def configure_logging(level: str) -> None:
    """SGLang's line format, on stderr."""
    date = "%Y-%m-%d %H:%M:%S"
    logging.basicConfig(level=level.upper(), format="[%(asctime)s] %(message)s", datefmt=date, stream=sys.stderr)
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s:     %(message)s", date))
    uvicorn.addHandler(handler)


def load(command: CommandLine) -> None:
    """Everything before the port opens. Start faults strike here, and may end the process."""
    faults = {fault.name: fault for fault in command.args.faults}
    logger.info("simulated: no GPU, no model; profile %s, pid %d", command.profile.name, os.getpid())
    logger.info("server_args=%r", command.args)
    _log_flag_effects(command.args.moe_runner_backend)
    if "detached_child" in faults:
        _start_detached_child()
    logger.info("Load weight begin. avail mem=139.00 GB")
    if "crash_at_start" in faults:
        _die("RuntimeError: simulated crash at start")
    if "oom_at_start" in faults:
        _die(_OOM)
    while "hang_at_start" in faults:
        time.sleep(60)
    if slow := faults.get("slow_start"):
        _load_slowly(slow)
    logger.info("Load weight end. elapsed=0.00 s, type=Simulated, avail mem=100.00 GB, mem usage=39.00 GB.")
    logger.info("Capture cuda graph begin. This can take up to several minutes. avail mem=60.00 GB")
    if "missing_kernel_at_start" in faults:
        _die(_MISSING_KERNEL)
    for line in command.executed.traces.log:
        logger.info("%s", line)
    logger.debug(
        "FlashInfer TRTLLM MoE deferred finalize is disabled (moe_runner_backend=MoeRunnerBackend.%s, "
        "quant_method=UnquantizedFusedMoEMethod).",
        command.executed.runner.upper(),
    )
    logger.info("Capture cuda graph end. Time elapsed: 0.00 s. mem usage=1.00 GB. avail mem=59.00 GB.")
    logger.info("max_total_num_tokens=1000000, context_len=%d", command.args.context_length)


def _log_flag_effects(flag: str) -> None:
    """Lines that SGLang prints for what was asked for, which proves nothing about what runs."""
    if flag == "flashinfer_cutedsl":
        logger.warning("FlashInfer CuteDSL MoE is enabled. --disable-shared-experts-fusion is automatically set.")
    if flag.startswith("flashinfer"):
        logger.info("Running FlashInfer autotune with cache: /simulated/cache")
        logger.info("FlashInfer autotune completed.")


def _load_slowly(fault: Fault) -> None:
    shards = 10
    for shard in range(1, shards + 1):
        time.sleep(fault.number() / shards)
        logger.info("Loading safetensors checkpoint shards: %d%% Completed | %d/%d", shard * 10, shard, shards)


def _start_detached_child() -> None:
    # Real schedulers outlive a launcher that only signals its own children: this one does so too.
    code = "import time; time.sleep(3600)"
    child = subprocess.Popen([sys.executable, "-c", code, "sglang::scheduler"], start_new_session=True)
    logger.info("simulated: detached scheduler process, pid %d", child.pid)


def _die(last_line: str) -> None:
    text = (
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/simulated/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
    )
    logger.error("%s%s", text, last_line)
    raise SystemExit(1)
