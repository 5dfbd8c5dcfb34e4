"""SGLang repeats the whole answer in each event unless it was told otherwise: of those only the tail is kept, and read.

Stored and decoded whole, long answers would cost their length squared, and a client that is late voids its run.
"""

from __future__ import annotations

from collections.abc import Callable

LONG_BYTES = 1024
"""Of an event, or of a read: what is shorter is not worth the look."""

_BEGINNINGS = (b'{"text":', b'{"output_ids":')
_META_INFO = b'"meta_info":'
_BACKSLASH = ord("\\")
_DATA = b"data: "
_EVENT_END = b"\n\n\r\n"
_MOST_SIZE_DIGITS = 8


def tail_of(data: bytes, start: int, end: int) -> bytes | None:
    """An object that says of the counts what the payload in ``data[start:end]`` says, and has nothing of the answer.
    It is valid JSON only if the answer ends where it seemed to; None: all has to be read.

    In a text a quotation mark has a backslash before it, so what is found here is a name, and the rest is one whole
    object only if the name is the event's own: after one of something inside of it a bracket is left over. An error may
    stand before, but not among numbers, and not before the first quotation mark.
    """
    if not data.startswith(_BEGINNINGS, start, end):
        return None
    at = data.rfind(_META_INFO, start, end)
    if at < 0 or data[at - 1] == _BACKSLASH:
        return None
    first_quote = data.find(b'"', start + len(b'{"text":"'), at)
    last_quote = data.rfind(b'"', start, at)
    if first_quote >= 0 and data.find(b'"error"', first_quote, last_quote + 1) >= 0:
        return None
    return b"{" + data[at:end]


def cut(data: bytes, *, is_whole: Callable[[bytes], bool]) -> bytes:
    """The same read with the tails alone: a chunk that is one long event becomes a shorter chunk, all else stays.

    Whatever the server sends, and however it comes in reads, the reply that is fed with cut reads counts the same.

    :param is_whole: whether a tail is an object that can be decoded.
    """
    if data.find(b"\r\n", 0, _MOST_SIZE_DIGITS + 2) > 0:
        begin = 0
    else:
        # The read goes on inside a chunk. JSON holds no bare newline, so those bytes are the end of an event.
        begin = data.find(_EVENT_END) + len(_EVENT_END)
        if begin < len(_EVENT_END):
            return data
    parts: list[bytes] = []
    kept = 0
    while (found := _event_in(data, begin)) is not None:
        start, end = found
        if end - start >= LONG_BYTES and data.find(b"\n", start, end) < 0 and data.find(b"\r", start, end) < 0:
            tail = tail_of(data, start, end)
            if tail is not None and is_whole(tail):
                parts += (data[kept:begin], b"%x\r\n%b%b%b" % (len(tail) + 8, _DATA, tail, _EVENT_END))
                kept = end + len(_EVENT_END)
        begin = end + len(_EVENT_END)
    return b"".join((*parts, data[kept:])) if parts else data


def _event_in(data: bytes, begin: int) -> tuple[int, int] | None:
    """Where the payload stands if a whole chunk begins at ``begin`` and is one event of one line."""
    size_end = data.find(b"\r\n", begin, begin + _MOST_SIZE_DIGITS + 2)
    digits = data[begin:size_end]
    if size_end <= begin or not digits.isalnum():
        return None
    try:
        size = int(digits, 16)
    except ValueError:
        return None
    start = size_end + 2 + len(_DATA)
    end = size_end + size  # of the payload: two newlines follow it inside the chunk
    if end < start or data[size_end + 2 : start] != _DATA or data[end : end + len(_EVENT_END)] != _EVENT_END:
        return None
    return start, end
