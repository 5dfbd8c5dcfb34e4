"""A load worker: ``python -m pytest_moeperf.load.worker``. Reads its job from stdin, writes messages to stdout.

It imports neither pytest nor numpy, and ends when its stdin does: a killed owner leaves no load behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import IO

import msgspec

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.client import LoadClient, OwnerGone, Progress
from pytest_moeperf.load.job import Beat, Failed, Finished, Job, Ready, Start, decode_job, read_frame, write_frame


def main() -> int:
    # Unbuffered: the loop polls this descriptor, and a buffer would hide bytes from it.
    commands = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115 (open until the end)
    out = sys.stdout.buffer
    job_bytes = read_frame(commands)
    if job_bytes is None:
        return 0
    job = decode_job(job_bytes)
    _pin(job.cpu)
    try:
        return _work(job, commands, out)
    except LoadError as error:
        write_frame(out, Failed(what=error.what, next_step=error.next_step))
        return 1
    except (OwnerGone, BrokenPipeError):
        # Flushing at exit would complain about the pipe once more.
        os._exit(0)


def _work(job: Job, commands: IO[bytes], out: IO[bytes]) -> int:
    def beat(progress: Progress) -> None:
        write_frame(
            out,
            Beat(sent=progress.sent, finished=progress.finished, failed=progress.failed, reads=progress.reads),
        )

    client = LoadClient(job, on_progress=beat, stop_fd=commands.fileno())
    client.connect()
    write_frame(out, Ready())
    start_bytes = read_frame(commands)
    if start_bytes is None:
        return 0
    start = msgspec.msgpack.decode(start_bytes, type=Start)
    gc.collect()
    gc.freeze()
    gc.disable()
    client.run(start.at_ns)
    write_frame(out, Finished(outcome=client.outcome()))
    return 0


def _pin(cpu: int | None) -> None:
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # a container may have lost the core meanwhile; then run anywhere
            os.sched_setaffinity(0, {cpu})


if __name__ == "__main__":
    sys.exit(main())
