"""Log lines that say how far a starting server is. A table, not code: add a line for a new one."""

from __future__ import annotations

import re
from typing import Final

PHASES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        # SGLang. It begins by repeating all of its arguments, disable_flashinfer_autotune=False among them.
        (r"server_args=", ""),
        (r"Init torch distributed begin", "joining the devices"),
        (r"Init torch distributed ends", "devices joined"),
        (r"Load weight begin|Loading safetensors|Loading .*checkpoint shards", "loading weights"),
        (r"Load weight end", "weights loaded"),
        (r"KV Cache is allocated|Memory pool end", "cache allocated"),
        (r"(?i)autotun", "tuning kernels"),
        (r"(?i:deep_?gemm.*(?:warm|compil|jit)|\bjit\b.*compil)|Compiling ", "compiling kernels"),
        (r"Capture .*graph.* begin|Capturing batches|Capturing num tokens", "capturing graphs"),
        (r"Capture .*graph.* end", "graphs captured"),
        (r"The server is fired up and ready to roll", "ready"),
        # vLLM
        (r"Loading model weights took|Model loading took", "weights loaded"),
        (r"Capturing CUDA graphs", "capturing graphs"),
        (r"Graph capturing finished", "graphs captured"),
        # Anything on uvicorn
        (r"Waiting for application startup", "HTTP server starting"),
        (r"Application startup complete|Uvicorn running on", "HTTP server up"),
    )
)


def phase_of(line: str) -> str | None:
    """The phase that this log line announces."""
    for pattern, phase in PHASES:
        if pattern.search(line):
            return phase or None
    return None
