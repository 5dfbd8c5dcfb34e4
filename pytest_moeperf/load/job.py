"""What goes to a load worker and what comes back, and how: length-prefixed MessagePack over its pipes."""

from __future__ import annotations

from array import array
from typing import IO

import msgspec

from pytest_moeperf.load.request import Target
from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.outgoing.key import ApiKey

DEFAULT_HELD_BYTES = 256 * 1024 * 1024


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """One request of a worker's share."""

    index: int
    prompt: bytes
    """Token ids as native uint32."""
    offset_ns: int | None = None
    """Open loop: when to send it, from the start of the run."""

    def prompt_ids(self) -> list[int]:
        return array("I", self.prompt).tolist()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one worker: its slots and their requests."""

    target: Target
    protocol: str
    model: str
    api_key: ApiKey | None
    output_len: int
    slots: int
    first_slot: int
    requests: list[Planned]
    timeout_s: float
    keep_output: bool
    held_bytes: int = DEFAULT_HELD_BYTES
    """Unparsed bytes that may wait for the end of the run; beyond, they are parsed inside it."""
    cpu: int | None = None
    """Core to stay on."""


class WireRecord(msgspec.Struct, array_like=True):
    """A RequestRecord whose arrays are bytes."""

    index: int
    slot: int
    send_ns: int
    scheduled_ns: int | None
    event_ns: bytes
    event_tokens: bytes
    end_ns: int | None
    requested_tokens: int
    prompt_len: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    status: int | None
    done: bool
    error: str | None
    retractions: int | None
    verify_steps: int | None
    assumed_tokens: int
    output_ids: list[int] | None
    output_text: str | None


class Outcome(msgspec.Struct, kw_only=True):
    """What one worker saw."""

    records: list[WireRecord]
    end_ns: int
    clock: str
    events: int
    reads: int
    coalesced_reads: int
    unstamped_reads: int
    delay_counts: dict[int, int]
    delay_max_ns: int
    window_ns: int
    window_cpu_ns: int
    parse_cpu_ns: int
    """After the window."""
    loop_stall_ns: int
    clock_step_ns: int
    reconnects: int
    parsed_in_window: int
    """Reads that had to be parsed inside the window to keep memory bounded."""
    stopped_early: bool
    """A request failed, so no new one was sent."""
    cpu: int | None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """All connections are open."""


class Start(msgspec.Struct, frozen=True, tag=True):
    at_ns: int


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Still alive, and how far."""

    sent: int = 0
    finished: int = 0
    failed: int = 0
    reads: int = 0


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The load could not be driven at all."""

    what: str
    next_step: str = ""


class Finished(msgspec.Struct, frozen=True, tag=True):
    outcome: Outcome


FromWorker = Ready | Beat | Failed | Finished

_PREFIX_BYTES = 8


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    # A worker needs the key: only this pipe gets it.
    payload = msgspec.msgpack.encode(message, enc_hook=lambda key: str(key.reveal()))
    stream.write(len(payload).to_bytes(_PREFIX_BYTES, "big") + payload)
    stream.flush()


def decode_job(payload: bytes) -> Job:
    return msgspec.msgpack.decode(payload, type=Job, dec_hook=lambda _kind, value: ApiKey(value))


def read_exactly(stream: IO[bytes], size: int) -> bytes | None:
    """None if the stream ends before."""
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            return None
        data += part
    return data


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next message, still encoded; None: the other side is gone."""
    prefix = read_exactly(stream, _PREFIX_BYTES)
    return None if prefix is None else read_exactly(stream, int.from_bytes(prefix, "big"))


def to_wire(record: RequestRecord) -> WireRecord:
    ids = record.output_ids
    return WireRecord(
        index=record.index,
        slot=record.slot,
        send_ns=record.send_ns,
        scheduled_ns=record.scheduled_ns,
        event_ns=record.event_ns.tobytes(),
        event_tokens=record.event_tokens.tobytes(),
        end_ns=record.end_ns,
        requested_tokens=record.requested_tokens,
        prompt_len=record.prompt_len,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
        finish_reason=record.finish_reason,
        status=record.status,
        done=record.done,
        error=record.error,
        retractions=record.retractions,
        verify_steps=record.verify_steps,
        assumed_tokens=record.assumed_tokens,
        output_ids=None if ids is None else list(ids),
        output_text=record.output_text,
    )


def from_wire(wire: WireRecord) -> RequestRecord:
    fields = {name: getattr(wire, name) for name in wire.__struct_fields__}
    fields["event_ns"] = array("q", wire.event_ns)
    fields["event_tokens"] = array("i", wire.event_tokens)
    fields["output_ids"] = None if wire.output_ids is None else tuple(wire.output_ids)
    return RequestRecord(**fields)
