"""What a log's last lines mean, and what to do. A table, not code: add a line for a new case.

The word "sigquit" and tracebacks stand in every healthy SGLang log, so neither means anything here. The cause is the
last thing that is known: a server says many things that look like errors, and goes on.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pytest_moeperf.servers.phases import phase_of


class Hint(NamedTuple):
    """One known cause."""

    pattern: re.Pattern[str]
    text: str
    """What to do. Groups of the pattern may stand in it: ``{0}``."""
    port_taken: bool = False


def _hint(pattern: str, text: str, *, port_taken: bool = False) -> Hint:
    return Hint(re.compile(pattern, re.IGNORECASE), text, port_taken)


HINTS: Final[tuple[Hint, ...]] = (
    # The most particular come first: a missing kernel ends in an ImportError too.
    _hint(
        r"address already in use|errno 98\b|port .{0,20}(?:is|was) (?:already )?(?:in use|occupied)|EADDRINUSE",
        "another process took its port; it is launched again on another one where that is possible",
        port_taken=True,
    ),
    _hint(
        r"CUDA out of memory|OutOfMemoryError|Not enough memory|out of memory\. (?:please )?try|"
        r"cudaErrorMemoryAllocation|CUDA error: out of memory",
        "out of GPU memory: lower --mem-fraction-static, raise the tensor parallel size, or end what else is on the "
        "GPU (nvidia-smi; moeperf servers)",
    ),
    _hint(
        r"\bMemoryError\b|Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough)",
        "out of main memory: free some, or use a smaller model",
    ),
    _hint(
        r"unrecognized arguments: (.+)",
        "this engine version does not know {0}: see its --help, and args in [tool.moeperf.server] and "
        "[tool.moeperf.backends]",
    ),
    _hint(
        r"argument (\S+): invalid choice: (\S+)",
        "this engine version has no {1} for {0}: see its --help for the choices",
    ),
    _hint(
        r"error: (?:the following arguments are required: (.+))",
        "an argument is missing: {0}",
    ),
    _hint(
        r"no kernel image is available|unsupported (?:gpu|arch|compute capability)|"
        r"requires (?:SM|compute capability)[ _]?\d+|sm_?\d+ (?:is|are) not supported",
        "this kernel does not run on this GPU's architecture: choose another backend or another build",
    ),
    _hint(
        r"libcuda\.so\S*: cannot open|CUDA driver (?:version is insufficient|initialization failed)|"
        r"no CUDA-capable device|Torch not compiled with CUDA|Found no NVIDIA driver|"
        r"No CUDA GPUs are available|No accelerator",
        "CUDA is not available to the server: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPU flags "
        "(--device cpu runs without)",
    ),
    _hint(
        r"(?:ModuleNotFoundError: )?No module named '?([\w.]+)",
        "the engine's interpreter has no module {0}: install it there, or name another interpreter in "
        "[tool.moeperf.server] python",
    ),
    _hint(
        r"ImportError: (.+)",
        "a library of the engine could not be imported ({0}): its versions do not fit together",
    ),
    _hint(
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|NCCL (?:error|timeout)|"
        r"watchdog caught collective operation timeout|(?:rendezvous|DistStoreError).{0,60}time",
        "the devices could not talk to each other: see NCCL_DEBUG=INFO, and NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 "
        "as a trial",
    ),
    _hint(
        r"Repo id must be|not a valid model identifier|is not a local folder|HFValidationError|"
        r"does not appear to have a file named|(?:No such file or directory|Can't load).{0,80}config\.json",
        "the model is not where the configuration says: check model in [tool.moeperf]; offline machines need a folder",
    ),
    _hint(
        r"Cannot find any model weights with",
        "the model's folder holds no weights: check model in [tool.moeperf], or measure without them "
        "(args = ['--load-format=dummy'])",
    ),
    _hint(
        r"'\w*MoEMethod' object has no attribute 'runner'",
        "this engine version has no kernel of that MoE backend for a checkpoint quantized like this one: choose "
        "another backend, or another model",
    ),
    _hint(
        r"(\S[^.:]*) currently supports only: (.+)",
        "{0} wants a checkpoint quantized as {1}: choose another backend, or another model",
    ),
    _hint(
        r"context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        "--context-length={0} is more than the model has ({1}): lower it",
    ),
    _hint(
        r"401 Client Error|403 Client Error|gated repo|GatedRepoError",
        "the model needs a login: set HF_TOKEN, or use a folder",
    ),
    _hint(
        r"No space left on device",
        "the disk is full: see df -h",
    ),
)

_WENT_ON: Final = re.compile(
    r"Ignore import error when loading|Failed to load generation config|\bfall(?:s|ing)? back\b|server_args=",
    re.IGNORECASE,
)
"""SGLang says these in a healthy start too."""
_ENDED_ITSELF: Final = re.compile(r"kill_process_tree called: parent_pid=\d+, include_parent=True")
"""SGLang's front end, when a process of it has died."""

_SLOW_KERNELS: Final = (
    "it was still making kernels or graphs: raise start_timeout in [tool.moeperf.server]; "
    "the next start finds its caches"
)
_SILENT_PHASES: Final[Mapping[str, str]] = {
    "joining the devices": (
        "it hung while the devices joined (NCCL): see NCCL_DEBUG=INFO, and NCCL_P2P_DISABLE=1 as a trial"
    ),
    "loading weights": "it was still loading weights: raise start_timeout in [tool.moeperf.server]",
    "compiling kernels": _SLOW_KERNELS,
    "tuning kernels": _SLOW_KERNELS,
    "capturing graphs": _SLOW_KERNELS,
}
"""For the phases of phases.py in which a server may stay."""


def hint_for_exit(lines: Sequence[str], exit_code: int | None) -> tuple[str, bool]:
    """What to do about a server that ended, and whether its port was taken.

    :param lines: the end of its log.
    """
    for line in reversed(lines):
        if _WENT_ON.search(line):
            continue
        for hint in HINTS:
            if match := hint.pattern.search(line):
                groups = [(group or "").strip().rstrip(".,:;") for group in match.groups()]
                return hint.text.format(*groups), hint.port_taken
    if exit_code == -signal.SIGKILL:
        if any(_ENDED_ITSELF.search(line) for line in lines):
            return "one of its processes died, so it ended itself: the last traceback in its log says why", False
        return "somebody sent it SIGKILL; the kernel does so when memory runs out: see dmesg", False
    return "", False


def hint_for_silence(lines: Sequence[str]) -> str:
    """What to do about a server that lives and does not get ready: what it did last."""
    for line in reversed(lines):
        if (phase := phase_of(line)) is not None:
            if phase in _SILENT_PHASES:
                return _SILENT_PHASES[phase]
            break
    hint, _ = hint_for_exit(lines, None)
    return hint
