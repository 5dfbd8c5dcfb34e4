"""A server's control endpoints: everything that is asked of it outside the measured load."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What became of one request."""

    status: int | None = None
    """Of HTTP; None: no answer came, ``problem`` says why."""
    text: str = ""
    problem: str = ""
    """``certificate`` (not trusted), ``name`` (of the host, not known), ``refused`` (nobody listens), ``timeout`` or
    ``network`` (anything else)."""
    detail: str = ""
    """Of the problem, as the system words it."""

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


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

    def ask(self, path: str, data: bytes | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Answer:
        """A GET, or with ``data`` a POST, and what became of it, for whoever has to tell why."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        # The options and the launcher let http(s) alone through.
        request = urllib.request.Request(self.url + path, data=data, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
                return Answer(status=answer.status, text=str(answer.read().decode("utf-8", "replace")))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(status=error.code)
        except (OSError, http.client.HTTPException) as error:
            return _no_answer(error)

    def _ask(self, path: str, data: bytes | None, timeout_s: float) -> str | None:
        answer = self.ask(path, data, timeout_s=timeout_s)
        return answer.text if answer.ok else None


def _no_answer(error: Exception) -> Answer:
    """urllib wraps what the socket said."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Answer(problem="certificate", detail=cause.verify_message)
    kinds: dict[str, type[Exception]] = {
        "name": socket.gaierror,
        "refused": ConnectionRefusedError,
        "timeout": TimeoutError,
    }
    problem = next((name for name, kind in kinds.items() if isinstance(cause, kind)), "network")
    return Answer(problem=problem, detail=str(cause) or type(cause).__name__)
