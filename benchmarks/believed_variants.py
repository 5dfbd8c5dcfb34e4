"""The servers, proxies and circumstances that ``believed.py`` tries, each with the truth about it. Most are public
cases: a thread or a release in which somebody's benchmark believed a wrong number or refused a right one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RIGHT, REFUSED, EITHER = "right", "refused", "either"
"""What is true of a variant: its figures can be told right; nothing that is measured there may be believed; or both
will do, as long as no wrong figure is believed (another source may settle what the client can't see)."""

STATED = 'hardware = "1x made up"'
"""What the user of an attached server writes down, where a variant says nothing else."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One try. A first invocation records; with ``then`` a second one is compared with that baseline."""

    name: str
    truth: str
    cause: str = ""
    """Of a refusal: a pattern that its text holds."""
    traits: dict[str, Any] | None = None
    """Of ``believed_engine.Traits``: an attached server; None: the embedded engine is launched."""
    then: dict[str, Any] | None = None
    """Traits of the second server, laid over the first's; for the embedded engine ``args`` and ``env``."""
    fails: bool = False
    """A test that fails on figures that are true is right too: the server is slower, or beyond a limit."""
    perf: str = ""
    """Further arguments of the ``perf`` marker."""
    bounds: str = ""
    """Further decorators."""
    attach: str = STATED
    then_attach: str | None = None
    args: tuple[str, ...] = ()
    """Of the embedded engine."""
    env: dict[str, str] = field(default_factory=dict)
    path: str = ""
    """Behind the server's URL."""
    options: tuple[str, ...] = ()


SGLANG: dict[str, Any] = {}
VLLM: dict[str, Any] = {"engine": "vllm", "version": "0.32.0"}
PLAIN: dict[str, Any] = {"engine": "openai"}
LONG = "output_len=80, num_prompts=8"
DEAD_PROXY = {
    "http_proxy": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "no_proxy": "",
    "NO_PROXY": "",
}


def _same() -> list[Variant]:
    """The same server twice: compared, with right figures."""
    return [
        Variant(name="sglang, twice", truth=RIGHT, traits={}, then={}),
        Variant(name="vllm, twice", truth=RIGHT, traits=VLLM, then={}),
        Variant(
            name="a plain server, all stated",
            truth=RIGHT,
            traits=PLAIN,
            then={},
            attach=f'{STATED}\nengine = "llama.cpp"\nversion = "b9000"',
        ),
        Variant(name="a newer version", truth=RIGHT, traits={}, then={"version": "0.5.15"}),
        Variant(name="router of prefill and decode", truth=RIGHT, traits={"engine": "pd"}, then={}),
        Variant(name="vllm with its dev endpoints", truth=RIGHT, traits={**VLLM, "engine": "vllm-dev"}, then={}),
        Variant(name="TensorRT-LLM with a server_info of its own", truth=RIGHT, traits={"engine": "trtllm"}, then={}),
        Variant(name="a key, given", truth=RIGHT, traits={"api_key": "k-1"}, env={"MOEPERF_API_KEY": "k-1"}),
        Variant(name="base URL with /v1", truth=RIGHT, traits=VLLM, path="/v1"),
        Variant(name="a dead proxy in the environment", truth=RIGHT, traits={}, env=DEAD_PROXY),
        Variant(name="a dead proxy, embedded engine", truth=RIGHT, env=DEAD_PROXY, then={}),
        Variant(name="embedded engine, twice", truth=RIGHT, then={}),
    ]


def _identity() -> list[Variant]:
    """Another server than the baseline's, or one that does not say which it is."""

    def other(name: str, first: dict[str, Any], then: dict[str, Any], cause: str, **more: Any) -> Variant:
        return Variant(name=name, truth=REFUSED, cause=cause, traits=first, then=then, **more)

    not_compared = r"INCOMPARABLE|NO_BASELINE"
    return [
        other("another model, vllm", VLLM, {"model": "other-moe"}, not_compared),
        other("another model, sglang", {}, {"model": "other-moe"}, not_compared),
        other("another context length", VLLM, {"context": 8192}, "INCOMPARABLE"),
        other("another quantization", {}, {"info": {"quantization": "fp8"}}, "INCOMPARABLE"),
        other("another size of tensor parallelism", {}, {"info": {"tp_size": 4}}, "INCOMPARABLE"),
        other("the overlap schedule switched off", {}, {"info": {"disable_overlap_schedule": True}}, "INCOMPARABLE"),
        other("an argument of a decode worker", {"engine": "pd"}, {"info": {"dtype": "half"}}, "INCOMPARABLE"),
        other("another engine at the address", {}, VLLM, "INCOMPARABLE|NO_BASELINE"),
        other("hardware that nobody states", VLLM, {}, "hardware", attach="", then_attach=""),
        other("hardware that only one side states", VLLM, {}, "hardware", attach=""),
        other("other hardware, stated", VLLM, {}, "hardware", then_attach='hardware = "8x other"'),
        other("a plain server that nobody describes", PLAIN, {}, "hardware", attach="", then_attach=""),
        other("server_info gone the second time", {}, {"info_status": 404}, "INCOMPARABLE|INVALID|NO_BASELINE"),
        other(
            "server_info broken both times", {"info_status": 500}, {}, "INCOMPARABLE|INVALID|NO_BASELINE|server_info"
        ),
        Variant(
            name="another runner than was asked for",
            truth=REFUSED,
            cause="flashinfer_cutedsl",
            traits={"runner": "triton"},
            options=("--backend=flashinfer_cutedsl", "--perf-strict-evidence"),
        ),
        Variant(name="no key", truth=REFUSED, cause="MOEPERF_API_KEY", traits={"api_key": "k-1"}),
        Variant(name="a wrong key", truth=REFUSED, cause="key", traits={"api_key": "k"}, env={"MOEPERF_API_KEY": "x"}),
        Variant(
            name="nobody there", truth=REFUSED, cause="(?i)nobody|refused|not up|answers", traits={"engine": "gone"}
        ),
    ]


def _replaced() -> list[Variant]:
    """Not one server: replaced in the middle, or several behind one address."""
    faster = {"step_ms": 2.0}
    return [
        Variant(
            name="replaced between runs, sglang",
            truth=REFUSED,
            cause="not the same server|another server|replaced|the server counted",
            traits={"becomes_after": 30, "becomes": {**faster, "pid": 5151}},
        ),
        Variant(
            name="replaced between runs, vllm",
            truth=REFUSED,
            cause="not the same server|another server|replaced|the server counted",
            traits={**VLLM, "becomes_after": 30, "becomes": {**faster, "started": 1_700_009_999.0}},
        ),
        Variant(
            name="replaced by another version, no metrics",
            truth=REFUSED,
            cause="changed while it was measured|another server",
            traits={**VLLM, "metrics": "none", "becomes_after": 30, "becomes": {**faster, "version": "0.33.0"}},
        ),
        Variant(
            name="two replicas, one half as fast",
            truth=REFUSED,
            cause="server|replica|latenc",
            traits={**VLLM, "replica": {"step_ms": 8.0, "started": 1_700_005_555.0}},
        ),
        Variant(
            name="two replicas, one half as fast, no metrics",
            truth=REFUSED,
            cause="replica|latenc",
            traits={**PLAIN, "replica": {"step_ms": 8.0}},
        ),
        Variant(
            name="two replicas of one speed",
            truth=REFUSED,
            cause="server|replica",
            traits={"replica": {"pid": 5151}},
        ),
        Variant(
            name="somebody else's requests, sglang", truth=REFUSED, cause="somebody else", traits={"foreign_tokens": 40}
        ),
        Variant(
            name="somebody else's requests, vllm",
            truth=REFUSED,
            cause="somebody else",
            traits={**VLLM, "foreign_tokens": 40},
        ),
    ]


def _asked() -> list[Variant]:
    """Whether the server did what the cell asks for."""
    capped = "at once|queue|running"
    return [
        Variant(name="a cap of 2 under c=4", truth=REFUSED, cause=capped, traits={"cap": 2}),
        Variant(name="a cap that only gauges show", truth=REFUSED, cause=capped, traits={"cap": 2, "told_cap": False}),
        Variant(name="a cap, vllm", truth=REFUSED, cause=capped, traits={**VLLM, "cap": 2}),
        Variant(name="a cap that nothing tells", truth=REFUSED, cause=capped, traits={**PLAIN, "cap": 2}),
        Variant(name="a cap that fits", truth=RIGHT, traits={"cap": 4}),
        Variant(name="a cap, declared", truth=RIGHT, traits={"cap": 2}, perf="queueing=True"),
        Variant(name="no cap, no metrics", truth=RIGHT, traits=PLAIN),
        Variant(name="retractions", truth=REFUSED, cause="retracted|preempt", traits={"preempts": True}),
        Variant(name="preemptions, vllm", truth=REFUSED, cause="retracted|preempt", traits={**VLLM, "preempts": True}),
        Variant(name="hits that nobody declared", truth=REFUSED, cause="cache", traits={"cached": 40}),
        Variant(name="hits that nobody declared, vllm", truth=REFUSED, cause="cache", traits={**VLLM, "cached": 40}),
        Variant(
            name="hits that only the counters show",
            truth=REFUSED,
            cause="cache",
            traits={**VLLM, "cached": 40, "reports_cached": False},
        ),
        Variant(name="a shared prefix, reused", truth=RIGHT, traits={"cached": 32}, perf="shared_prefix_len=32"),
        Variant(
            name="a shared prefix, not reused",
            truth=REFUSED,
            cause="reused|prefix",
            traits={},
            perf="shared_prefix_len=32",
        ),
        Variant(name="a shared prefix, embedded engine", truth=RIGHT, perf="shared_prefix_len=32"),
        Variant(
            name="a shared prefix, cache off, embedded engine",
            truth=REFUSED,
            cause="reused|prefix|cache",
            args=("--disable-radix-cache",),
            perf="shared_prefix_len=32",
        ),
        Variant(name="a cap, embedded engine", truth=REFUSED, cause=capped, args=("--max-running-requests=2",)),
        Variant(name="fewer prompts than slots", truth=REFUSED, cause="num_prompts", traits={}, perf="num_prompts=2"),
    ]


def _delivered() -> list[Variant]:
    """What reached the client of what was generated."""
    unseen = "deliver|bunch|burst|latenc|window|generat"
    either: list[tuple[str, dict[str, Any]]] = [
        ("in two pieces", {"delivery": "halves"}),
        ("in one piece", {"delivery": "whole"}),
        ("all after the last token", {"delivery": "late"}),
        ("every 40 ms", {"delivery": "batched"}),
    ]
    servers: tuple[tuple[str, dict[str, Any]], ...] = (("vllm", VLLM), ("no metrics", PLAIN), ("sglang", {}))
    found = [
        Variant(name=f"delivered {how}, {who}", truth=EITHER, cause=unseen, traits={**base, **traits})
        for how, traits in either
        for who, base in servers
    ]
    found += [
        Variant(
            name=f"delivered {how}, limited to 1 ms a token",
            truth=REFUSED,
            cause=f"{unseen}|limit",
            traits={**PLAIN, **traits},
            bounds="@pytest.mark.tpot(at_most_ms=1)",
            fails=True,
        )
        for how, traits in either[:3]
    ]
    return [
        *found,
        Variant(name="leading tokens in an unknown field", truth=EITHER, cause=".", traits={**VLLM, "hidden": 16}),
        Variant(
            name="leading tokens in an unknown field, final usage",
            truth=EITHER,
            cause=".",
            traits={**PLAIN, "hidden": 16, "usage": "final"},
        ),
        Variant(name="in lumps of 20, sglang", truth=RIGHT, traits={"lump": 20}, perf=LONG),
        Variant(name="in lumps of 20, vllm", truth=RIGHT, traits={**VLLM, "lump": 20}, perf=LONG),
        Variant(
            name="stream interval of 50, embedded engine",
            truth=RIGHT,
            args=("--stream-interval=50",),
            perf="output_len=128, num_prompts=8",
        ),
        Variant(name="speculation, 4 tokens a step", truth=RIGHT, traits={"lump": 4, "speculative": True}, perf=LONG),
        Variant(name="three tokens in the first event", truth=RIGHT, traits={**VLLM, "first_lump": 3}),
        Variant(
            name="three tokens in the first event, final usage",
            truth=EITHER,
            cause=".",
            traits={**PLAIN, "first_lump": 3, "usage": "final"},
        ),
    ]


def _counted() -> list[Variant]:
    """How the tokens are counted, and how an answer ends."""
    usages = ("continuous", "final", "last-choice", "null", "zero", "bare")
    broken = (("in-band", "error"), ("truncated", "end|DONE"), ("abort", "abort"))
    return [
        *(Variant(name=f"usage: {usage}", truth=RIGHT, traits={**VLLM, "usage": usage}) for usage in usages),
        Variant(name="no usage", truth=REFUSED, cause="usage", traits={**PLAIN, "usage": "none"}),
        Variant(name="no counts, sglang", truth=REFUSED, cause="count|usage", traits={"usage": "none"}),
        Variant(
            name="more tokens counted than generated",
            truth=REFUSED,
            cause="token",
            traits={**VLLM, "overcounts": 20},
        ),
        *(
            Variant(name=f"two tokens claimed for each, {who}", truth=REFUSED, cause="token", traits={**base, **traits})
            for who, base, traits in (
                ("vllm", VLLM, {"claims": 2}),
                ("final usage, vllm", VLLM, {"claims": 2, "usage": "final"}),
                ("no metrics", PLAIN, {"claims": 2}),
                ("final usage, no metrics", PLAIN, {"claims": 2, "usage": "final"}),
                ("sglang", SGLANG, {"claims": 2}),
                ("sglang without metrics", SGLANG, {"claims": 2, "metrics": "none"}),
            )
        ),
        Variant(
            name="more tokens counted, no metrics", truth=REFUSED, cause="token", traits={**PLAIN, "overcounts": 20}
        ),
        Variant(
            name="more tokens counted, final usage, no metrics",
            truth=REFUSED,
            cause="token",
            traits={**PLAIN, "overcounts": 20, "usage": "final"},
        ),
        Variant(name="lone surrogates", truth=RIGHT, traits={**VLLM, "surrogates": True}),
        Variant(name="lone surrogates, sglang", truth=RIGHT, traits={"surrogates": True}),
        Variant(name="a trailer that nothing announced", truth=RIGHT, traits={**VLLM, "trailer_ms": 0.0}),
        Variant(name="three tokens too many", truth=REFUSED, cause="token", traits={"extra": 3}),
        Variant(name="an early end", truth=REFUSED, cause="stop|token", traits={**VLLM, "stop_after": 30}),
        *(
            Variant(
                name=f"every fifth answer: {fault}, {who}", truth=REFUSED, cause=cause, traits={**base, "fault": fault}
            )
            for fault, cause in broken
            for who, base in (("sglang", SGLANG), ("vllm", VLLM))
        ),
        *(
            Variant(name=f"metrics: {kind}", truth=RIGHT, traits={"metrics": kind})
            for kind in ("none", "old", "front", "underscore")
        ),
        Variant(
            name="a cache that can't be emptied",
            truth=EITHER,
            cause="cache|flush",
            traits={"flush_status": 500, "info": {"disable_radix_cache": False}, "reports_cached": False},
        ),
    ]


def _launched() -> list[Variant]:
    """The embedded engine, launched."""
    return [
        Variant(
            name="other arguments behind a dead proxy",
            truth=REFUSED,
            cause="INCOMPARABLE",
            env=DEAD_PROXY,
            then={"args": ("--disable-cuda-graph",)},
        ),
        Variant(name="other arguments", truth=REFUSED, cause="INCOMPARABLE", then={"args": ("--disable-cuda-graph",)}),
        Variant(
            name="another backend ran",
            truth=REFUSED,
            cause="flashinfer_cutlass",
            args=("--fault=silent_fallback=flashinfer_cutlass",),
        ),
        Variant(
            name="every step 20 % longer",
            truth=REFUSED,
            fails=True,
            cause="REGRESSION|INCONCLUSIVE|INCOMPARABLE",
            then={"args": ("--fault=throttle=1.2",)},
        ),
    ]


VARIANTS: tuple[Variant, ...] = (
    *_same(),
    *_identity(),
    *_replaced(),
    *_asked(),
    *_delivered(),
    *_counted(),
    *_launched(),
)
