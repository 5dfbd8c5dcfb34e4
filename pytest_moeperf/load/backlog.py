"""Reads that wait to be parsed: stored in the window, parsed after it, and never more of them than memory allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from pytest_moeperf.load.clock import DelayHistogram, kernel_stamp_ns
from pytest_moeperf.load.reply import Reply
from pytest_moeperf.model.records import RequestRecord

READ_OVERHEAD_BYTES = 200
"""Of the Python objects around one stored read."""
MAX_DISORDER_NS = 1_000_000
"""Packets that two cores take in at once are stamped in another order than that of their bytes, and no byte was there
before those it follows. What goes back further is a clock that was set."""
_SLICE = 16
"""Reads parsed in one idle moment: about 0.1 ms, so that no other stream's reads pile up meanwhile."""

Read = tuple[int, bytes, bytes]
"""User time on the monotonic clock (ns), the bytes (empty: the connection ended), and the kernel's raw stamp."""


class Exchange:
    """One request and its response."""

    __slots__ = (
        "careful",
        "index",
        "latest_ns",
        "prompt_len",
        "reads",
        "reply",
        "requested_tokens",
        "scheduled_ns",
        "send_ns",
        "slot",
    )

    def __init__(
        self,
        *,
        index: int,
        slot: int,
        scheduled_ns: int | None,
        requested_tokens: int,
        prompt_len: int,
        reply: Reply,
    ) -> None:
        self.index = index
        self.slot = slot
        self.scheduled_ns = scheduled_ns
        self.requested_tokens = requested_tokens
        self.prompt_len = prompt_len
        self.reply = reply
        self.send_ns = 0
        self.latest_ns = 0
        """Of the stamps so far."""
        self.reads: list[Read] = []
        """Not parsed yet."""
        self.careful = True
        """Parse each read at once: until the head has been seen, and for anything but a chunked event stream."""

    def record(self) -> RequestRecord:
        return self.reply.record(
            index=self.index,
            slot=self.slot,
            send_ns=self.send_ns,
            scheduled_ns=self.scheduled_ns,
            requested_tokens=self.requested_tokens,
            prompt_len=self.prompt_len,
        )


class Backlog:
    """From half of ``limit_bytes`` on idle moments parse, from all of it on the loop does, whatever the load."""

    def __init__(self, *, limit_bytes: int) -> None:
        self.held_bytes = 0
        """Whoever stores a read adds its bytes and READ_OVERHEAD_BYTES."""
        self.offset_ns = 0
        """CLOCK_REALTIME - CLOCK_MONOTONIC."""
        self.records: list[RequestRecord] = []
        self.delays = DelayHistogram()
        self.reads = self.unstamped_reads = self.coalesced_reads = self.parsed_in_window = 0
        self.waiting_reads = 0
        """Of exchanges that are over."""
        self._limit_bytes = limit_bytes
        self._ended: deque[Exchange] = deque()

    @property
    def wants_room(self) -> bool:
        return self.held_bytes > self._limit_bytes // 2

    def parse(self, exchange: Exchange, limit: int | None = None) -> None:
        """Feed the stored reads to the reply, each with its stamp, and forget them."""
        reads = exchange.reads if limit is None else exchange.reads[:limit]
        if self._ended and exchange is self._ended[0]:
            self.waiting_reads -= len(reads)
        offset_ns, latest_ns = self.offset_ns, exchange.latest_ns
        stamps_ns: list[int] = []
        delays_ns: list[int] = []
        for user_ns, data, raw in reads:
            wall_ns = kernel_stamp_ns(raw)
            if wall_ns is None:
                stamp_ns = user_ns
                self.unstamped_reads += bool(data)
            else:
                stamp_ns = min(wall_ns - offset_ns, user_ns)
                if latest_ns - MAX_DISORDER_NS <= stamp_ns < latest_ns:
                    stamp_ns = latest_ns
                delays_ns.append(user_ns - stamp_ns)
            stamps_ns.append(stamp_ns)
            latest_ns = stamp_ns
        exchange.latest_ns = latest_ns
        datas = [data for _, data, _ in reads]
        exchange.reply.feed_all(stamps_ns, datas)
        self.delays.add(delays_ns)
        self.reads += len(datas) - datas.count(b"")
        self.held_bytes -= sum(map(len, datas)) + len(datas) * READ_OVERHEAD_BYTES
        del exchange.reads[: len(reads)]

    def ended(self, exchange: Exchange) -> None:
        """The exchange is over; its reads may still wait."""
        self._ended.append(exchange)
        self.waiting_reads += len(exchange.reads)

    def last_of(self, slot: int) -> Exchange | None:
        """The slot's last exchange, if it still waits."""
        return next((exchange for exchange in reversed(self._ended) if exchange.slot == slot), None)

    def make_room(self, live: Callable[[], Iterable[Exchange]], *, idle: bool) -> None:
        """Parse one slice in an idle moment, or down to the bound in a busy one: ended exchanges first."""
        while idle or self.held_bytes > self._limit_bytes:
            exchange = self._ended[0] if self._ended else max(live(), key=lambda one: len(one.reads), default=None)
            if exchange is None or not (self._ended or exchange.reads):
                return
            self.parsed_in_window += min(_SLICE, len(exchange.reads))
            self.parse(exchange, _SLICE)
            if self._ended and not exchange.reads:
                self._settle(self._ended.popleft())
            if idle:
                return

    def finish(self, between: Callable[[], None]) -> None:
        """Parse all that is left; ``between`` is called after each exchange."""
        while self._ended:
            exchange = self._ended[0]
            self.parse(exchange)
            self._settle(self._ended.popleft())
            between()

    def _settle(self, exchange: Exchange) -> None:
        if not exchange.reply.complete:
            exchange.reply.fail("protocol", "[DONE] came before the end of the body")
        self.coalesced_reads += exchange.reply.coalesced_reads
        self.records.append(exchange.record())
