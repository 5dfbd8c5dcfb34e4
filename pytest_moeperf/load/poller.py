"""Which of many sockets have something to read: epoll, or poll where there is none."""

from __future__ import annotations

import resource
import select
import sys

READABLE = select.POLLIN


class Poller:
    """``poll`` takes seconds and returns (fd, mask) pairs."""

    def __init__(self, size: int) -> None:
        self._size = size + 8
        if sys.platform == "linux":
            self._backend = select.epoll()
        else:
            self._backend = select.poll()

    def register(self, fd: int) -> None:
        self._backend.register(fd, select.POLLIN)

    def modify(self, fd: int, *, writing: bool) -> None:
        self._backend.modify(fd, select.POLLIN | (select.POLLOUT if writing else 0))

    def unregister(self, fd: int) -> None:
        self._backend.unregister(fd)

    if sys.platform == "linux":

        def poll(self, timeout_s: float) -> list[tuple[int, int]]:
            return self._backend.poll(timeout_s, self._size)

        def close(self) -> None:
            self._backend.close()
    else:

        def poll(self, timeout_s: float) -> list[tuple[int, int]]:
            return self._backend.poll(timeout_s * 1000)

        def close(self) -> None:
            """A poll object holds nothing."""


def allow_open_files(count: int) -> None:
    """Raise the soft limit of this process as far as the hard one lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
