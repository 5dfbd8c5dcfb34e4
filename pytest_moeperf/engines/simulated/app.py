"""The routes of the simulated server, and what they share."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pytest_moeperf import __version__
from pytest_moeperf.engines.simulated.arguments import ServerArgs
from pytest_moeperf.engines.simulated.clock import EngineLoop
from pytest_moeperf.engines.simulated.counters import Punctuality
from pytest_moeperf.engines.simulated.engine import Disturbance, finish_abort
from pytest_moeperf.engines.simulated.faults import AT_START_ONLY, FaultBoard, FaultError, make_fault, parse_fault
from pytest_moeperf.engines.simulated.generation import Generator, json_response
from pytest_moeperf.engines.simulated.prefix_cache import PAGE, PrefixCache
from pytest_moeperf.engines.simulated.profile import Profile
from pytest_moeperf.engines.simulated.tracing import Tracer

HEALTH_TIMEOUT_S = 5.0
"""How long a health check waits for the engine's next step."""


@dataclass(kw_only=True)
class Service:
    """Everything behind the routes but generation."""

    args: ServerArgs
    profile: Profile
    executed: Profile
    """The profile whose runner really runs: another than ``profile`` after a silent fallback."""
    launch_command: str
    startup_s: float
    engine: EngineLoop
    board: FaultBoard
    cache: PrefixCache
    disturbance: Disturbance
    tracer: Tracer
    generator: Generator
    exiting: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def app(self) -> ASGIApp:
        """The ASGI application, behind the key if there is one."""
        both = ["GET", "POST"]
        routes = [
            Route("/generate", self.generator.native, methods=["POST", "PUT"]),
            Route("/v1/completions", self.generator.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.generator.chat, methods=["POST"]),
            Route("/health", self.health),
            Route("/health_generate", self.health),
            Route("/ready", self.ready),
            Route("/server_info", self.server_info),
            Route("/get_server_info", self.server_info),
            Route("/model_info", self.model_info),
            Route("/get_model_info", self.model_info),
            Route("/v1/models", self.models),
            Route("/flush_cache", self.flush_cache, methods=both),
            Route("/freeze_gc", self.freeze_gc, methods=both),
            Route("/slow_down", self.slow_down, methods=both),
            Route("/abort_request", self.abort_request, methods=["POST"]),
            Route("/start_profile", self.start_profile, methods=both),
            Route("/stop_profile", self.stop_profile, methods=both),
            Route("/simulated/fault", self.show_faults, methods=["GET"]),
            Route("/simulated/fault", self.set_fault, methods=["POST"]),
        ]
        if self.args.enable_metrics:
            routes.append(Route("/metrics", self.metrics))
        app = Starlette(routes=routes)
        return KeyCheck(app, self.args.api_key) if self.args.api_key else app

    async def health(self, _: HttpRequest) -> Response:
        """200 if the engine still turns. Unlike SGLang's, it costs the engine nothing."""
        turning = not self.exiting and await self.engine.ping(HEALTH_TIMEOUT_S)
        return Response(status_code=200 if turning else 503)

    async def ready(self, _: HttpRequest) -> Response:
        """200 as soon as the port is open: it opens last."""
        return Response(status_code=503 if self.exiting else 200)

    async def server_info(self, _: HttpRequest) -> Response:
        """Resolved arguments at the top, as in SGLang (the key in clear too); ``simulated`` says what is not real."""
        resolved = self.args.of_sglang()
        counters = self.engine.counters
        state = {
            **resolved,
            "last_gen_throughput": round(counters.last_gen_throughput, 2),
            "effective_max_running_requests_per_dp": self.args.max_running_requests,
            "page_size": PAGE,
            "memory_usage": {"weight": 39.0, "kvcache": 40.0, "token_capacity": 1_000_000, "graph": 1.0},
        }
        noise = self.engine.scheduler.model.noise
        simulated = {
            "pid": os.getpid(),
            "args": self.args.of_simulation(),
            "hardware": self.executed.hardware,
            "profile_digest": self.profile.digest(),
            "executed_runner": self.executed.runner,
            "executed_profile": self.executed.to_dict(),
            "run_index": noise.run_index,
            "faults": self.board.report(),
            "forward_sleep_time": self.disturbance.sleep_s or None,
            "punctuality": counters.punctuality.to_dict(),
        }
        return json_response(
            {
                **resolved,
                "launch_command": self.launch_command,
                "status": "ready",
                "max_total_num_tokens": 1_000_000,
                "max_req_input_len": self.args.context_length - 6,
                "internal_states": [state],
                "version": f"simulated-{__version__}",
                "kv_events": None,
                "startup_time": self.startup_s,
                "simulated": simulated,
            }
        )

    async def model_info(self, _: HttpRequest) -> Response:
        """As SGLang's."""
        return json_response(
            {
                "model_path": self.args.model_path,
                "tokenizer_path": self.args.tokenizer_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": "simulated",
                "architectures": ["Simulated"],
            }
        )

    async def models(self, _: HttpRequest) -> Response:
        """OpenAI's list, of one."""
        name = self.args.served_model_name
        card = {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "sglang",
            "root": name,
            "parent": None,
        }
        return json_response({"object": "list", "data": [{**card, "max_model_len": self.args.context_length}]})

    async def metrics(self, _: HttpRequest) -> Response:
        """Prometheus text."""
        scheduler = self.engine.scheduler
        text = self.engine.counters.prometheus(
            model_name=self.args.served_model_name, running=len(scheduler.running), queued=len(scheduler.waiting)
        )
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def flush_cache(self, http: HttpRequest) -> Response:
        """Forget all prompts, and let the next request start a new run. 400 while requests run or wait."""
        try:
            timeout_s = float(http.query_params.get("timeout", "0"))
        except ValueError:
            return json_response({"error": {"message": "timeout must be a number of seconds"}}, status=400)
        give_up_s = time.monotonic() + timeout_s
        while self.engine.busy and time.monotonic() < give_up_s:
            await asyncio.sleep(0.02)
        if self.engine.busy:
            return PlainTextResponse("Flush cache failed: requests are running or waiting.\n", status_code=400)
        self.cache.clear()
        self.engine.scheduler.order_new_run()
        self.engine.counters.punctuality = Punctuality()
        return PlainTextResponse(
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )

    async def freeze_gc(self, _: HttpRequest) -> Response:
        """What exists now is not looked at by later collections."""
        gc.freeze()
        return PlainTextResponse("Garbage collection frozen.\n")

    async def slow_down(self, http: HttpRequest) -> Response:
        """``{"forward_sleep_time": seconds}`` is added to every step; null ends it."""
        body = await _object(http)
        seconds = body.get("forward_sleep_time")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float, type(None))):
            message = f"forward_sleep_time must be a number of seconds or null, not {seconds!r}"
            return json_response({"error": {"message": message}}, status=400)
        self.disturbance.sleep_s = max(float(seconds or 0.0), 0.0)
        return json_response(None)

    async def abort_request(self, http: HttpRequest) -> Response:
        """``{"rid": ...}`` or ``{"abort_all": true}``."""
        body = await _object(http)
        if body.get("abort_all") is True:
            self.engine.abort_all(finish_abort())
        elif (request := self.generator.live.get(str(body.get("rid")))) is not None:
            self.engine.abort(request, finish_abort())
        return Response(status_code=200)

    async def start_profile(self, http: HttpRequest) -> Response:
        """Record the executed kernels' names for ``num_steps`` steps, or until ``/stop_profile``."""
        body = await _object(http)
        steps = body.get("num_steps")
        problem = self.tracer.start(
            output_dir=str(body.get("output_dir") or os.environ.get("SGLANG_TORCH_PROFILER_DIR") or "/tmp"),  # noqa: S108
            prefix=str(body.get("profile_prefix") or ""),
            steps=int(steps) if isinstance(steps, (int, str)) and str(steps).isdigit() else None,
        )
        if problem:
            return json_response({"error": {"message": problem}}, status=400)
        return PlainTextResponse("Start profiling.\n")

    async def stop_profile(self, _: HttpRequest) -> Response:
        """Write the trace, if one is being recorded."""
        self.tracer.stop()
        return PlainTextResponse("Stop profiling. This will take some time.\n")

    async def show_faults(self, _: HttpRequest) -> Response:
        """The active faults and their counts."""
        return json_response({"faults": self.board.report()})

    async def set_fault(self, http: HttpRequest) -> Response:
        """Set or clear faults while running; see faults.py for the body."""
        body = await _object(http)
        try:
            self._change_faults(body)
        except FaultError as error:
            return json_response({"error": {"message": str(error)}}, status=400)
        return await self.show_faults(http)

    def _change_faults(self, body: Mapping[str, Any]) -> None:
        if "name" in body and body["name"] is None:
            self.board.clear()
            return
        name = body.get("name")
        if body.get("clear") is True and isinstance(name, str):
            self.board.clear(name)
            return
        if isinstance(body.get("fault"), str):
            fault = parse_fault(body["fault"])
        elif isinstance(name, str):
            arg, which = body.get("arg"), body.get("which")
            fault = make_fault(
                name=name, arg=None if arg is None else str(arg), which=None if which is None else str(which)
            )
        else:
            raise FaultError(
                'send {"fault": "NAME=ARG@WHICH"}, {"name": ..., "arg": ..., "which": ...} or {"name": null}'
            )
        if fault.name in AT_START_ONLY:
            raise FaultError(f"{fault.name} can only be set at start, with --fault")
        self.board.arm(fault)


async def _object(http: HttpRequest) -> Mapping[str, Any]:
    """The body as an object; what is no object counts as an empty one, as each key has a default."""
    try:
        value = json.loads(await http.body() or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class KeyCheck:
    """SGLang's rule: with a key set, every path but ``/health*`` and ``/metrics*`` needs it as a bearer token."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            await json_response({"error": "Unauthorized"}, status=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        if scope["path"].startswith(("/health", "/metrics")):
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, key = given.partition(b" ")
        return kind.lower() == b"bearer" and secrets.compare_digest(key, self._key)
