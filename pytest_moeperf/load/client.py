"""The loop of one worker: a slot is a keep-alive connection that sends its own next request.

Reads are stored and parsed after the window. Inside it only four things look at the bytes: the head of each response,
the last bytes of each read, events that repeat a long answer, which are cut to their tails, and whatever is not a plain
chunked event stream, which is parsed at once.
"""

from __future__ import annotations

import errno
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.backlog import READ_OVERHEAD_BYTES, Backlog, Exchange, Read
from pytest_moeperf.load.clock import ANCILLARY_BYTES, KERNEL, USER, Ancillary, StampKeeper, realtime_offset_ns
from pytest_moeperf.load.connection import READ_BYTES, PlainConnection, TlsConnection, connect
from pytest_moeperf.load.events import SGLANG, cut_read
from pytest_moeperf.load.job import Job, Outcome, Planned, to_wire
from pytest_moeperf.load.poller import READABLE, Poller, allow_open_files
from pytest_moeperf.load.reply import Reply
from pytest_moeperf.load.request import request_bytes, sends_token_ids
from pytest_moeperf.load.tails import LONG_BYTES

_LAST_CHUNK = b"0\r\n\r\n"
_CRLF = b"\r\n"
_BLANK_LINE = b"\r\n\r\n"
"""Behind the last chunk and its trailer. Events that end in two of their own are followed by the chunk's: three."""
_DONE_CHUNK_END = b"data: [DONE]\n\n\r\n"
_CONNECT_TIMEOUT_S = 10.0
_BEAT_NS = 250_000_000
_PAUSE_NS = 5_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """So far."""

    sent: int
    finished: int
    failed: int
    reads: int


class OwnerGone(Exception):
    """Whoever started this worker has ended."""


class Slot:
    """A place in the concurrency: at most one request in flight."""

    __slots__ = ("connection", "exchange", "fast", "fd", "number", "reads", "recvmsg")

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection: PlainConnection | None = None
        self.fd = -1
        self.exchange: Exchange | None = None
        self.fast = False
        """The next read can be stored without a look at it."""
        self.reads: list[Read] = []
        """The exchange's own list."""
        self.recvmsg: Callable[[int, int], tuple[bytes, Ancillary, int, object]]


class LoadClient:
    """``connect``, ``run``, ``outcome``: each once, in this order."""

    def __init__(
        self,
        job: Job,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        stop_fd: int | None = None,
    ) -> None:
        self._job = job
        self._on_progress = on_progress
        self._stop_fd = stop_fd
        """Readable when the owner is gone: the run ends at once."""
        self._context = ssl.create_default_context() if job.target.tls else None
        self._slots = [Slot(job.first_slot + number) for number in range(job.slots)]
        self._by_fd: dict[int, Slot] = {}
        self._poller = Poller(job.slots + 1)
        self._stamps: StampKeeper | None = None
        self._backlog = Backlog(limit_bytes=job.held_bytes)
        self._waiting: deque[tuple[Planned, bytes]] = deque()
        self._idle: list[Slot] = []
        self._start_ns = self._end_ns = self._deadline_ns = self._next_beat_ns = 0
        self._in_flight = self._sent = self._finished = self._failed = self._reconnects = 0
        self._stall_ns = self._last_read_ns = self._window_cpu_ns = self._clock_step_ns = 0
        self._stopping = False
        self._cut_from = LONG_BYTES if job.protocol == SGLANG and not job.keep_output else sys.maxsize
        """Reads of so many bytes are cut before they are kept."""
        self._timed = any(planned.offset_ns is not None for planned in job.requests)
        """An open loop: sends are due at times of their own."""

    def connect(self) -> None:
        """Open every slot's connection and encode every request, so that neither is in the window.

        :raises LoadError: if a connection is refused.
        """
        allow_open_files(self._job.slots + 64)
        for planned in self._job.requests:
            self._waiting.append((planned, self._encode(planned)))
        self._stamps = StampKeeper()
        if self._stop_fd is not None:
            self._poller.register(self._stop_fd)
        for opened, slot in enumerate(self._slots):
            try:
                self._open(slot, min(_CONNECT_TIMEOUT_S, self._job.timeout_s))
            except OSError as error:
                self.close()
                raise self._no_connection(error, opened) from None
            self._beat(time.monotonic_ns())
        self._idle = list(reversed(self._slots))

    def run(self, start_ns: int) -> None:
        """Drive the load from ``start_ns`` (monotonic) until all requests have ended or the time is up."""
        self._backlog.offset_ns = realtime_offset_ns()
        while (left_ns := start_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        self._start_ns = self._last_read_ns = start_ns
        self._deadline_ns = start_ns + round(self._job.timeout_s * 1e9)
        cpu_before_ns = time.process_time_ns()
        self._loop()
        self._end_ns = time.monotonic_ns()
        self._window_cpu_ns = time.process_time_ns() - cpu_before_ns
        self._clock_step_ns = realtime_offset_ns() - self._backlog.offset_ns
        self.close()

    def close(self) -> None:
        """Close what is open. ``run`` does it; on its own where there is no run."""
        for slot in self._slots:
            self._close(slot)
        if self._stamps is not None:
            self._stamps.close()
        self._poller.close()

    def outcome(self) -> Outcome:
        """Parse what is left, and sum up."""
        cpu_before_ns = time.process_time_ns()
        backlog = self._backlog
        backlog.finish(lambda: self._beat(time.monotonic_ns()))
        stamped = backlog.reads > backlog.unstamped_reads
        return Outcome(
            records=[to_wire(record) for record in backlog.records],
            end_ns=self._end_ns,
            clock=KERNEL if stamped else USER,
            events=sum(len(record.event_ns) for record in backlog.records),
            reads=backlog.reads,
            coalesced_reads=backlog.coalesced_reads,
            unstamped_reads=backlog.unstamped_reads if stamped else 0,
            delay_counts=backlog.delays.counts,
            delay_max_ns=backlog.delays.maximum_ns,
            window_ns=self._end_ns - self._start_ns,
            window_cpu_ns=self._window_cpu_ns,
            parse_cpu_ns=time.process_time_ns() - cpu_before_ns,
            loop_stall_ns=self._stall_ns,
            clock_step_ns=self._clock_step_ns,
            reconnects=self._reconnects,
            parsed_in_window=backlog.parsed_in_window,
            stopped_early=bool(self._waiting),
            cpu=self._job.cpu,
        )

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        poll, by_fd, backlog, monotonic_ns = self._poller.poll, self._by_fd, self._backlog, time.monotonic_ns
        cut_from = self._cut_from
        self._send_due(monotonic_ns())
        wait_s, busy_until_ns, stall_ns = self._wait_s(), 0, 0
        while self._in_flight or (self._waiting and not self._stopping):
            ready = poll(wait_s)
            woke_ns = monotonic_ns()
            for fd, mask in ready:
                slot = by_fd.get(fd)
                if slot is None or not slot.fast or mask != READABLE:
                    self._on_ready(fd, slot)
                    continue
                try:
                    data, ancillary, _, _ = slot.recvmsg(READ_BYTES, ANCILLARY_BYTES)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._lost(slot, error)
                    continue
                user_ns = monotonic_ns()
                if len(data) >= cut_from:
                    data = cut_read(data)
                slot.reads.append((user_ns, data, ancillary[0][2] if ancillary else b""))
                backlog.held_bytes += len(data) + READ_OVERHEAD_BYTES
                if len(data) < 5 or (data[-4:] == _BLANK_LINE and data[-6:-4] != _CRLF):
                    self._perhaps_ended(slot, data)
            now = monotonic_ns()
            stall_ns = max(stall_ns, now - woke_ns)
            if ready:
                self._last_read_ns = woke_ns
                if now < busy_until_ns and not backlog.wants_room:
                    continue
            self._between(now, idle=not ready)
            wait_s = self._wait_s()
            # In a closed loop nothing but reads is due before the next beat: its sends follow from reads.
            busy_until_ns = 0 if self._timed else min(self._deadline_ns, self._next_beat_ns)
            stall_ns = max(stall_ns, monotonic_ns() - woke_ns) if ready else stall_ns
        self._stall_ns = stall_ns

    def _between(self, now: int, *, idle: bool) -> None:
        """Everything that is not reading: memory, sends that are due, the time-out, progress."""
        if self._backlog.wants_room:
            self._backlog.make_room(self._live, idle=idle)
        if self._waiting and self._idle:
            self._send_due(now)
        if now >= self._deadline_ns:
            self._time_out()
        elif idle and now - self._last_read_ns >= _BEAT_NS:
            self._look_around(now)
        self._beat(now)

    def _wait_s(self) -> float:
        if self._backlog.wants_room:
            return 0.0
        now = time.monotonic_ns()
        until = min(self._deadline_ns, now + _BEAT_NS)
        if self._waiting and self._idle and not self._stopping:
            offset_ns = self._waiting[0][0].offset_ns or 0
            # poll rounds up to whole ms: wake up early, and spin for the rest.
            until = min(until, self._start_ns + offset_ns - 1_000_000)
        return max(0.0, (until - now) / 1e9)

    def _beat(self, now: int) -> None:
        if now < self._next_beat_ns:
            return
        self._next_beat_ns = now + _BEAT_NS
        if self._on_progress is not None:
            reads = (
                self._backlog.reads
                + self._backlog.waiting_reads
                + sum(len(exchange.reads) for exchange in self._live())
            )
            self._on_progress(
                Progress(sent=self._sent, finished=self._finished, failed=self._failed, reads=reads),
            )

    def _live(self) -> Iterator[Exchange]:
        return (slot.exchange for slot in self._slots if slot.exchange is not None)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _encode(self, planned: Planned) -> bytes:
        job = self._job
        return request_bytes(
            target=job.target,
            protocol=job.protocol,
            prompt=planned.prompt_ids(),
            output_len=job.output_len,
            model=job.model,
            api_key=job.api_key,
        )

    def _send_due(self, now: int) -> None:
        while self._idle and self._waiting and not self._stopping:
            offset_ns = self._waiting[0][0].offset_ns
            if offset_ns is not None and self._start_ns + offset_ns > now:
                return
            self._send(self._idle.pop())

    def _send(self, slot: Slot) -> None:
        planned, data = self._waiting.popleft()
        exchange = Exchange(
            index=planned.index,
            slot=slot.number,
            scheduled_ns=None if planned.offset_ns is None else self._start_ns + planned.offset_ns,
            requested_tokens=self._job.output_len,
            prompt_len=len(planned.prompt) // 4 if sends_token_ids(self._job.protocol) else 0,
            reply=Reply(self._job.protocol, keep_output=self._job.keep_output),
        )
        slot.exchange, slot.reads, slot.fast = exchange, exchange.reads, False
        self._in_flight += 1
        self._sent += 1
        try:
            connection = slot.connection or self._reopen(slot)
            exchange.send_ns = time.monotonic_ns()
            connection.write(data)
        except OSError as error:
            exchange.send_ns = exchange.send_ns or time.monotonic_ns()
            self._lost(slot, error)
            return
        if connection.pending:
            self._poller.modify(slot.fd, writing=True)

    def _reopen(self, slot: Slot) -> PlainConnection:
        left_s = max(1e-3, (self._deadline_ns - time.monotonic_ns()) / 1e9)
        self._reconnects += 1
        return self._open(slot, min(_CONNECT_TIMEOUT_S, left_s))

    def _open(self, slot: Slot, timeout_s: float) -> PlainConnection:
        connection = connect(self._job.target, context=self._context, timeout_s=timeout_s)
        slot.connection, slot.fd = connection, connection.fileno()
        slot.recvmsg = connection.sock.recvmsg
        self._by_fd[slot.fd] = slot
        self._poller.register(slot.fd)
        return connection

    def _close(self, slot: Slot) -> None:
        if slot.connection is not None:
            self._poller.unregister(slot.fd)
            del self._by_fd[slot.fd]
            slot.connection.close()
            slot.connection, slot.fd, slot.fast = None, -1, False

    # --- receiving, where it is not the hot path ----------------------------------------------------------------------

    def _on_ready(self, fd: int, slot: Slot | None) -> None:
        if fd == self._stop_fd:
            raise OwnerGone
        if slot is None or slot.connection is None:
            return  # closed earlier in this round
        try:
            self._push(slot, slot.connection)
            data, raw = slot.connection.recv()
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(slot, error)
            return
        exchange = slot.exchange
        if exchange is None:
            self._unexpected(slot, data)
            return
        user_ns = time.monotonic_ns()
        if len(data) >= self._cut_from and not exchange.careful:
            data = cut_read(data)
        exchange.reads.append((user_ns, data, raw))
        self._backlog.held_bytes += len(data) + READ_OVERHEAD_BYTES
        if exchange.careful:
            self._look(slot, exchange)
            if slot.exchange is exchange and exchange.reply.streams_in_chunks:
                exchange.careful = False
                slot.fast = not isinstance(slot.connection, TlsConnection)
        elif len(data) < 5 or (data[-4:] == _BLANK_LINE and data[-6:-4] != _CRLF):
            self._perhaps_ended(slot, data)

    def _push(self, slot: Slot, connection: PlainConnection) -> None:
        """Write on, where a request didn't fit into the socket's buffer at once."""
        if connection.pending and connection.flush():
            self._poller.modify(slot.fd, writing=False)

    def _perhaps_ended(self, slot: Slot, data: bytes) -> None:
        """A read that may be the last: it ends like a body, or is so short that it may be half of an end. It is the
        last for certain if [DONE] stands before: JSON holds no bare newline, so no payload has those bytes."""
        exchange = slot.exchange
        if exchange is None:
            return
        before = data[: -len(_LAST_CHUNK)] or (exchange.reads[-2][1] if len(exchange.reads) > 1 else b"")
        if data[-5:] == _LAST_CHUNK and before.endswith(_DONE_CHUNK_END):
            self._end(slot, exchange)
        else:
            self._look(slot, exchange)

    def _look(self, slot: Slot, exchange: Exchange) -> None:
        """Parse what has come, and see whether that was all."""
        self._backlog.parse(exchange)
        reply = exchange.reply
        if reply.broken or reply.closed:
            self._close(slot)
        if reply.broken or reply.closed or reply.complete:
            self._end(slot, exchange)

    def _look_around(self, now: int) -> None:
        """All streams are silent: use the pause to find those that will never go on, as far as a few ms allow."""
        for slot in self._slots:
            exchange = slot.exchange
            if exchange is not None and exchange.reads:
                self._look(slot, exchange)
                if time.monotonic_ns() - now > _PAUSE_NS:
                    return

    def _unexpected(self, slot: Slot, data: bytes) -> None:
        """Something on an idle connection: its end, which is the server's right, or bytes nobody asked for."""
        self._close(slot)
        last = self._backlog.last_of(slot.number)
        if data and last is not None:
            last.reply.fail("protocol", f"{len(data)} bytes follow the end of the response")

    def _lost(self, slot: Slot, error: OSError) -> None:
        self._close(slot)
        if slot.exchange is not None:
            self._backlog.parse(slot.exchange)
            slot.exchange.reply.fail("connection", error.strerror or str(error))
            self._end(slot, slot.exchange)

    def _end(self, slot: Slot, exchange: Exchange) -> None:
        """The exchange is over: put it aside, and let the slot go on."""
        slot.exchange, slot.fast = None, False
        self._in_flight -= 1
        self._finished += 1
        self._backlog.ended(exchange)
        if not exchange.reply.http.keep_alive:
            self._close(slot)
        if exchange.reply.error is not None:
            self._failed += 1
            self._stopping = True
        self._idle.append(slot)
        self._send_due(time.monotonic_ns())

    def _time_out(self) -> None:
        self._stopping = True
        for slot in self._slots:
            exchange = slot.exchange
            if exchange is not None:
                self._close(slot)
                self._backlog.parse(exchange)
                heard = ", no answer" if exchange.reply.http.status is None else ""
                exchange.reply.fail("timeout", f"not finished {self._job.timeout_s:g} s after the run began{heard}")
                self._end(slot, exchange)

    def _no_connection(self, error: OSError, opened: int) -> LoadError:
        target, total = self._job.target, self._job.slots
        what = f"{target.url} took {opened} of {total} connections; the next one failed: {error.strerror or error}"
        if isinstance(error, ssl.SSLError):
            return LoadError(what=what, next_step="check the certificate (SSL_CERT_FILE names the trusted ones)")
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            return LoadError(what=what, next_step=f"raise the limit of open files (ulimit -n) above {total + 64}")
        if opened:
            return LoadError(what=what, next_step="raise the server's limit of connections, or lower the concurrency")
        return LoadError(what=what, next_step="check that the server is up and listens on that address")
