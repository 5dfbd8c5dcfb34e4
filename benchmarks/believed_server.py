"""A server that knows its own truth and can be told to misreport it: ``believed_server.py PORT TRAITS_AS_JSON``.

It generates tokens on a fixed schedule, speaks as SGLang, vLLM or a plain OpenAI-compatible server would, and answers
GET /truth with what really happened: when each token was generated, by which process, for whom. Everything that its
traits change lies between that truth and the client: what a proxy, a router, an old version or a careless front end
does. Loopback only.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from believed_engine import Ledger, Server, Traits
from believed_stream import Stream


class Front:
    """What answers at the address."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._servers = [Server(traits)]
        if traits.replica:
            self._servers.append(Server(replace(traits, **traits.replica)))
        self._turn = itertools.cycle(self._servers)
        self._requests = 0
        self._since_flush = 0

    def server(self) -> Server:
        traits = self._traits
        if traits.becomes and self._requests >= traits.becomes_after and len(self._servers) == 1:
            self._servers = [Server(replace(traits, **traits.becomes))]
            self._traits = replace(traits, becomes={})
            self._turn = itertools.cycle(self._servers)
        return next(self._turn)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._route(method, target.split("?")[0], headers, body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _route(
        self, method: str, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        traits = self._traits
        if path == "/truth":
            _send(writer, {"servers": [server.truth() for server in self._servers]})
        elif traits.api_key and headers.get("authorization") != f"Bearer {traits.api_key}":
            _send(writer, {"error": {"message": "Unauthorized"}}, status=401)
        elif method == "POST" and path in _GENERATING and (path != "/generate" or traits.speaks_sglang):
            self._requests += 1
            self._since_flush += 1
            stream = Stream(self.server(), path, json.loads(body), writer, number=self._requests)
            await stream.run(is_cached=self._since_flush > 1)
        else:
            if path == "/flush_cache" and traits.flush_status == OK:
                self._since_flush = 0
            status, answer = _told(path, self.server())
            _send(writer, answer, status=status)


_GENERATING = frozenset({"/v1/completions", "/generate"})
OK = 200
_NOT_THERE = (404, {"detail": "Not Found"})


def _told(path: str, server: Server) -> tuple[int, Any]:
    """What the server says of itself there."""
    traits = server.traits
    told: tuple[int, Any] | None = None
    if path == "/health":
        told = 200, ""
    elif path == "/v1/models":
        told = 200, {"object": "list", "data": [_model(traits)]}
    elif path == "/version" and traits.engine in {"vllm", "vllm-dev", "trtllm"}:
        told = 200, {"version": traits.version}
    elif path in {"/server_info", "/get_server_info"} and traits.engine not in {"openai", "vllm"}:
        told = traits.info_status, _server_info(server)
    elif path in {"/get_model_info", "/model_info"} and traits.speaks_sglang:
        told = 200, {"model_path": traits.model, "tokenizer_path": traits.model, "is_generation": True}
    elif path == "/metrics" and traits.metrics != "none" and (text := _METRICS[traits.exporter](server)):
        told = 200, text
    elif path == "/flush_cache" and traits.speaks_sglang:
        told = traits.flush_status, "Cache flushed.\n"
    return told or _NOT_THERE


def _model(traits: Traits) -> dict[str, Any]:
    owner = {"sglang": "sglang", "pd": "sglang", "vllm": "vllm", "vllm-dev": "vllm"}.get(traits.engine, "somebody")
    known = {"root": traits.model, "max_model_len": traits.context} if owner != "somebody" else {}
    return {"id": traits.model, "object": "model", "owned_by": owner, **known}


def _server_info(server: Server) -> dict[str, Any]:
    traits = server.traits
    if traits.engine == "vllm-dev":
        return {"vllm_config": f"model='{traits.model}', tensor_parallel_size=8", "vllm_env": {}}
    if traits.engine == "trtllm":
        return {"disaggregated_params": None, "disaggregation_mode": "none"}
    state = {
        "last_gen_throughput": 100.0 + server.ledger.generated,
        "effective_max_running_requests_per_dp": traits.cap or 2048,
    }
    info = {
        "model_path": traits.model,
        "served_model_name": traits.model,
        "tokenizer_path": traits.model,
        "version": traits.version,
        "moe_runner_backend": traits.runner,
        "device": "cuda",
        "tp_size": 8,
        "dp_size": 1,
        "disable_radix_cache": not traits.cached,
        "max_running_requests": traits.cap if traits.told_cap else None,
        "stream_interval": traits.lump if not traits.speculative else 1,
        "internal_states": [state] if traits.told_cap else [{"last_gen_throughput": state["last_gen_throughput"]}],
        **traits.info,
    }
    if traits.engine == "pd":
        return {"model_path": traits.model, "version": traits.version, "prefill": [info], "decode": [info]}
    return info


def _sglang_metrics(server: Server) -> str:
    ledger, traits = server.ledger, server.traits
    labels = f'{{engine_type="unified",model_name="{traits.model}",pid="{traits.pid}"}}'
    lines = [f"sglang:num_running_reqs{labels} {ledger.running}", f"sglang:num_queue_reqs{labels} {ledger.waiting}"]
    if traits.metrics == "front":
        return "sglang:http_requests_total 7.0\n"
    if traits.metrics == "old":
        return "\n".join([*lines, f"sglang:prompt_tokens_total{labels} {ledger.prompt}"]) + "\n"
    counters = {
        "num_requests_total": ledger.requests,
        "generation_tokens_total": ledger.generated,
        "prompt_tokens_total": ledger.prompt,
        "cached_tokens_total": ledger.cached,
        "num_retracted_requests_total": ledger.preempted,
    }
    lines += [f"sglang:{name}{labels} {float(value)}" for name, value in counters.items() if value]
    lines += _histograms(
        ledger,
        labels,
        first="sglang:time_to_first_token_seconds",
        gap="sglang:inter_token_latency_seconds",
        whole="sglang:e2e_request_latency_seconds",
    )
    text = "\n".join(lines) + "\n"
    return text.replace("sglang:", "sglang_") if traits.metrics == "underscore" else text


def _vllm_metrics(server: Server) -> str:
    ledger, traits = server.ledger, server.traits
    labels = f'{{engine="0",model_name="{traits.model}"}}'
    finished = labels.replace("}", ',finished_reason="length"}')
    lines = [
        f"process_start_time_seconds {traits.started}",
        f"vllm:num_requests_running{labels} {ledger.running}",
        f"vllm:num_requests_waiting{labels} {ledger.waiting}",
        f"vllm:request_success_total{finished} {float(ledger.requests)}",
        f"vllm:request_success_created{finished} {traits.started}",
        f"vllm:prompt_tokens_total{labels} {float(ledger.prompt)}",
        f"vllm:generation_tokens_total{labels} {float(ledger.generated)}",
        f"vllm:generation_tokens_created{labels} {traits.started}",
        f"vllm:num_preemptions_total{labels} {float(ledger.preempted)}",
        f"vllm:prefix_cache_queries_total{labels} {float(ledger.prompt)}",
        f"vllm:prefix_cache_hits_total{labels} {float(ledger.cached)}",
    ]
    lines += _histograms(
        ledger,
        labels,
        first="vllm:time_to_first_token_seconds",
        gap="vllm:inter_token_latency_seconds",
        whole="vllm:e2e_request_latency_seconds",
    )
    return "\n".join(lines) + "\n"


def _histograms(ledger: Ledger, labels: str, *, first: str, gap: str, whole: str) -> list[str]:
    gaps = [value for value in ledger.per_token_ms for _ in range(ledger.generated // max(1, ledger.requests) - 1)]
    return [
        line
        for name, values in ((first, ledger.first_ms), (gap, gaps), (whole, ledger.whole_ms))
        if values
        for line in (f"{name}_sum{labels} {sum(values) / 1e3}", f"{name}_count{labels} {float(len(values))}")
    ]


_METRICS: dict[str, Callable[[Server], str]] = {
    "sglang": _sglang_metrics,
    "vllm": _vllm_metrics,
    "trtllm": lambda _: "",
    "openai": lambda _: "",
}


def _send(writer: asyncio.StreamWriter, answer: Any, *, status: int = 200) -> None:
    is_text = isinstance(answer, str)
    body = answer.encode() if is_text else json.dumps(answer).encode()
    kind = "text/plain" if is_text else "application/json"
    head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def serve(port: int, traits: Traits, *, ready: Callable[[int], None]) -> None:
    """Until it is killed; ``ready`` is told the port."""
    front = Front(traits)
    server = await asyncio.start_server(front.answer, "127.0.0.1", port, limit=1 << 24)
    ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(
        serve(int(sys.argv[1]), Traits(**json.loads(sys.argv[2])), ready=lambda port: print("ready", port, flush=True))
    )
