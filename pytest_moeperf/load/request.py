"""The bytes of one request, ready to be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.events import OPENAI_CHAT, OPENAI_COMPLETIONS, SGLANG
from pytest_moeperf.outgoing.key import ApiKey


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go."""

    host: str
    port: int
    tls: bool
    path: str
    """Of the base URL, without a slash at its end."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"


_PATHS = {SGLANG: "/generate", OPENAI_COMPLETIONS: "/v1/completions", OPENAI_CHAT: "/v1/chat/completions"}


def parse_target(url: str) -> Target:
    """
    :raises LoadError: for anything but ``http(s)://host[:port][/path]``.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LoadError(what=f"not a server URL: {url!r} ({error})", next_step="http://127.0.0.1:30000") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise LoadError(what=f"not a server URL: {url!r}", next_step="give it as http://HOST:PORT or https://HOST:PORT")
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Target(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, path=path)


def request_bytes(
    *, target: Target, protocol: str, prompt: Sequence[int], output_len: int, model: str, api_key: ApiKey | None
) -> bytes:
    """Head and body of one streaming request for exactly ``output_len`` tokens, greedy."""
    body = msgspec.json.encode(_payload(protocol, prompt, output_len, model))
    head = [
        f"POST {target.path}{_PATHS[protocol]} HTTP/1.1",
        f"Host: {target.authority}",
        "User-Agent: pytest-moeperf",
        "Accept: text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if api_key:
        head.append(f"Authorization: Bearer {api_key.reveal()}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def sends_token_ids(protocol: str) -> bool:
    """Chat takes text only, so there the number of prompt tokens is up to the server's template and tokenizer."""
    return protocol != OPENAI_CHAT


def _payload(protocol: str, prompt: Sequence[int], output_len: int, model: str) -> dict[str, Any]:
    if protocol == SGLANG:
        sampling = {"temperature": 0.0, "max_new_tokens": output_len, "ignore_eos": True}
        return {"input_ids": prompt, "sampling_params": sampling, "stream": True}
    payload: dict[str, Any] = {
        "model": model,
        "max_tokens": output_len,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if protocol == OPENAI_COMPLETIONS:
        payload["prompt"] = prompt
    else:
        payload["messages"] = [{"role": "user", "content": " ".join(map(str, prompt))}]
    return payload
