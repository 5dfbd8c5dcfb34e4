"""The other clients of client_accuracy.py, each in its own process and interpreter.

Reads one JSON line a run from stdin, ``{"url": ..., "concurrency": ..., "output_len": ..., "prompts": [[...], ...]}``,
and writes one to stdout, ``{"stamps_ns": [[...], ...], "cpu_ns": ..., "wall_ns": ...}``: the stamps of each request on
CLOCK_MONOTONIC. Needs the standard library and the client's own packages only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

Run = Callable[[dict[str, Any]], Coroutine[Any, Any, list[list[int]]]]


async def run_sglang(job: dict[str, Any]) -> list[list[int]]:
    """sglang.bench_serving's own request function, under a semaphore as its benchmark() does it."""
    from sglang import bench_serving

    bench_serving.set_global_args(
        SimpleNamespace(
            temperature=0.0,
            top_p=1.0,
            disable_ignore_eos=False,
            disable_stream=False,
            return_logprob=False,
            return_routed_experts=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            token_ids_logprob=None,
            cache_report=False,
            header=None,
        )
    )
    semaphore = asyncio.Semaphore(job["concurrency"])

    async def one(prompt: list[int]) -> list[int]:
        request = bench_serving.RequestFuncInput(
            prompt=prompt,
            api_url=job["url"] + "/generate",
            prompt_len=len(prompt),
            output_len=job["output_len"],
            model="",
            lora_name=None,
            image_data=None,
            extra_request_body={},
        )
        async with semaphore:
            output = await bench_serving.async_request_sglang_generate(request_func_input=request)
        if not output.success:
            raise RuntimeError(output.error)
        gaps = itertools.accumulate([output.start_time + output.ttft, *output.itl])
        return [round(at * 1e9) for at in gaps]

    return list(await asyncio.gather(*(one(prompt) for prompt in job["prompts"])))


async def run_aiohttp(job: dict[str, Any]) -> list[list[int]]:
    """The loop that most clients have: one shared session, split lines, decode, stamp."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=job["concurrency"])
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def one(prompt: list[int]) -> list[int]:
            sampling = {"temperature": 0.0, "max_new_tokens": job["output_len"], "ignore_eos": True}
            body = {"input_ids": prompt, "sampling_params": sampling, "stream": True}
            stamps: list[int] = []
            async with session.post(job["url"] + "/generate", json=body) as response:
                async for raw in response.content:
                    line = raw.strip()
                    if line.startswith(b"data: ") and line != b"data: [DONE]":
                        event = json.loads(line[6:])
                        if event["meta_info"]["completion_tokens"] > len(stamps):
                            stamps.append(time.monotonic_ns())
            return stamps

        return list(await asyncio.gather(*(one(prompt) for prompt in job["prompts"])))


async def run_bare_reader(job: dict[str, Any]) -> list[list[int]]:
    """The floor: epoll and recvmsg on raw sockets, nothing parsed and nothing kept, so no stamps to give either. No
    Python client that reads each event on its own can cost less."""
    import select
    import socket
    from urllib.parse import urlsplit

    address = urlsplit(job["url"])
    socks: dict[int, socket.socket] = {}
    epoll = select.epoll()
    for prompt in job["prompts"]:
        sock = socket.create_connection((address.hostname, address.port))
        sampling = {"max_new_tokens": job["output_len"]}
        body = json.dumps({"input_ids": prompt, "sampling_params": sampling}).encode()
        sock.sendall(b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        socks[sock.fileno()] = sock
        epoll.register(sock.fileno(), select.EPOLLIN)
    left = len(socks)
    while left:
        for fd, _ in epoll.poll(-1, len(socks)):
            data, _, _, _ = socks[fd].recvmsg(65536, 64)
            left -= data.endswith(b"0\r\n\r\n")
    for sock in socks.values():
        sock.close()
    return []


CLIENTS: dict[str, Run] = {
    "sglang_bench_serving": run_sglang,
    "aiohttp": run_aiohttp,
    "bare_reader": run_bare_reader,
}


def versions(client: str) -> dict[str, str]:
    from importlib import metadata

    names = {"sglang_bench_serving": ("sglang", "aiohttp"), "aiohttp": ("aiohttp",)}.get(client, ())
    return {name: metadata.version(name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--cpu", type=int)
    arguments = parser.parse_args()
    # Libraries print; the answers must have stdout to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = CLIENTS[arguments.client]
    if arguments.client == "sglang_bench_serving":
        import sglang.bench_serving  # noqa: F401 (its import must not count as CPU of the first run)
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    print(json.dumps(versions(arguments.client)), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        cpu_before, wall_before = time.process_time_ns(), time.monotonic_ns()
        stamps = asyncio.run(run(job))
        answer = {
            "stamps_ns": stamps,
            "cpu_ns": time.process_time_ns() - cpu_before,
            "wall_ns": time.monotonic_ns() - wall_before,
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
