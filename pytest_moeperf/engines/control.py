"""A server's control endpoints: everything that is asked of it outside the measured load."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Small requests, each with a time-out. What can't be had is None; nothing here raises for a server's failure."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    def get_json(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any] | None:
        """The JSON object at ``path``; None for no answer, an error status or something else than an object."""
        body = self._ask(path, None, timeout_s)
        try:
            data = json.loads(body) if body is not None else None
        except ValueError:
            return None
        return data if isinstance(data, dict) else None

    def first_json(self, *paths: str) -> dict[str, Any] | None:
        """The first of ``paths`` that answers: names of endpoints change between versions."""
        return next((data for path in paths if (data := self.get_json(path)) is not None), None)

    def post(
        self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> str | None:
        """The answer's text; None for no answer or an error status."""
        return self._ask(path, json.dumps(body or {}).encode(), timeout_s)

    def _ask(self, path: str, data: bytes | None, timeout_s: float) -> str | None:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        # The options and the launcher let http(s) alone through.
        request = urllib.request.Request(self.url + path, data=data, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
                return str(answer.read().decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException):
            return None
