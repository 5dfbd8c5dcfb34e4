"""A GPU's bandwidth as it really is: a copy through torch, which is imported only here."""

from __future__ import annotations

import importlib

SIZE_BYTES = 2 << 30
REPEATS = 20


def measure_bandwidth_bytes_s(*, device: int = 0, size_bytes: int = SIZE_BYTES, repeats: int = REPEATS) -> float | None:
    """Bytes read and written a second by device-to-device copies; None without torch, a CUDA device or the memory.

    A copy mixes reads and writes: pure reading is some per cent faster, so a ceiling from it can be touched.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available() or device >= torch.cuda.device_count():
        return None
    try:
        source = torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{device}")
        target = torch.empty_like(source)
    except torch.cuda.OutOfMemoryError:
        return None
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    target.copy_(source)
    torch.cuda.synchronize(device)
    start.record()
    for _ in range(repeats):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize(device)
    return float(2 * size_bytes * repeats / (start.elapsed_time(end) * 1e-3))
