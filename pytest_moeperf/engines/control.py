"""A server's control endpoints: everything that is asked of it outside the measured load."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.asking import Answer, ask
from pytest_moeperf.outgoing.key import ApiKey

DEFAULT_TIMEOUT_S = 10.0
"""Of a whole exchange."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Small requests. Nothing here raises for a server's failure: the answer says what is wrong with it."""

    url: str
    api_key: ApiKey | None = field(default=None, repr=False)

    def get_text(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Answer:
        return ask(self.url, path, api_key=self.api_key, timeout_s=timeout_s)

    def get_json(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Answer:
        """``data`` is the JSON object at ``path``; anything else than an object is a problem."""
        return self.get_text(path, timeout_s=timeout_s).as_object()

    def first_json(self, *paths: str) -> Answer:
        """The first of ``paths`` that the server has: names of endpoints change between versions. One that is there and
        can't be read is the answer, too."""
        answers = (self.get_json(path) for path in paths)
        first = next(answers)
        while first.absent and (other := next(answers, None)) is not None:
            first = other
        return first

    def server_info(self) -> Answer:
        return self.first_json("/server_info", "/get_server_info")

    def post(self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Answer:
        data = json.dumps(body or {}).encode()
        return ask(self.url, path, body=data, api_key=self.api_key, timeout_s=timeout_s)
