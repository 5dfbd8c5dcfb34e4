"""Whose layers left a line where a draft model runs beside the target: both may have experts, and they share one log.

The two may run different MoE runners (a bf16 draft layer runs Triton whatever the target runs), so a draft layer's line
is evidence of its own and says nothing about the target. A line is the target's where it stands before the draft
model's weights are loaded, or while the target's CUDA graphs are captured (SGLang 0.5.14: scheduler.py:784-865 loads
both models, then captures the target's graphs, then the draft's). Any other line may be either's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ALGORITHM = re.compile(r"\bspeculative_algorithm='(\w+)'")
_NEXTN = re.compile(r"bf16 nextn layer|Overriding \S*NextN quant config")
_WITHOUT_DRAFT_MODEL = frozenset({"", "NONE", "NGRAM", "LOOKAHEAD"})
"""Speculation that asks no second model."""

_EVENT = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>[^\]\n]*)\] "
    r"(?P<event>Load weight begin|Capture target [^\n]*? (?P<edge>begin|end)\b)"
)
_RANK = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>[^\]\n]*)\]")


def has_draft_model(info: Mapping[str, Any], log: str) -> bool:
    """Whether a second model drafts tokens, as the resolved arguments in /server_info or in the log say."""
    algorithm = info.get("speculative_algorithm")
    if isinstance(algorithm, str):
        return algorithm.upper() not in _WITHOUT_DRAFT_MODEL
    in_log = _ALGORITHM.search(log)
    if in_log and in_log[1].upper() not in _WITHOUT_DRAFT_MODEL:
        return True
    return _NEXTN.search(log) is not None


class SharedLog:
    """A log that a target and its draft model write to."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._draft_loads: dict[str, int] = {}
        self._target_spans: list[tuple[str, int, int]] = []
        loaded: set[str] = set()
        begun: dict[str, int] = {}
        for match in _EVENT.finditer(log):
            rank = match["rank"]
            if match["edge"] == "begin":
                begun[rank] = match.start()
            elif match["edge"] == "end":
                self._target_spans.append((rank, begun.pop(rank, match.start()), match.end()))
            elif rank in loaded:
                self._draft_loads.setdefault(rank, match.start())
            else:
                loaded.add(rank)

    def is_of_target(self, position: int) -> bool:
        """Whether what stands there can only be of the target."""
        rank = self._rank_at(position)
        draft_load = self._draft_loads.get(rank)
        if draft_load is not None and position < draft_load:
            return True
        return any(whose == rank and start < position < end for whose, start, end in self._target_spans)

    def _rank_at(self, position: int) -> str:
        """Of the last stamp before it on its line: a progress bar may stand before that."""
        start = self._log.rfind("\n", 0, position) + 1
        rank = ""
        for match in _RANK.finditer(self._log, start, position):
            rank = match["rank"]
        return rank
