"""GPU memory in use, from NVML. Standard library only until it is asked for: the guardian uses it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

_SLACK_BYTES = 256 * 2**20
"""Other processes' contexts come and go by about this much."""
_POLL_S = 0.2


def used_bytes(uuids: Sequence[str], *, module_folder: str | None) -> dict[str, int]:
    """Bytes in use of each GPU. Empty where NVML is not there or does not answer.

    :param module_folder: where ``pynvml.py`` lies; the guardian runs without site-packages.
    """
    if module_folder is None or not uuids:
        return {}
    if module_folder not in sys.path:
        sys.path.append(module_folder)
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return {
            uuid: int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).used) for uuid in uuids
        }
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def wait_until_free(
    before: dict[str, int], *, measure: Callable[[Sequence[str]], dict[str, int]], timeout_s: float
) -> dict[str, int]:
    """Wait until no GPU uses more than ``before`` the launch. The driver gives memory back only some time after the
    last process ended, and the next server would not fit.

    :returns: bytes that are still in use beyond that, for each GPU; empty is what one hopes for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        now = measure(tuple(before))
        over = {uuid: now[uuid] - used for uuid, used in before.items() if now.get(uuid, 0) > used + _SLACK_BYTES}
        if not over or time.monotonic() >= deadline:
            return over
        time.sleep(_POLL_S)
