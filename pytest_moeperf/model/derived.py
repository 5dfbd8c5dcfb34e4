"""Arguments that an engine derives from the machine's memory where nobody sets them, compared by what they lead to.

SGLang computes ``mem_fraction_static``, ``chunked_prefill_size`` and the batch sizes of its CUDA graphs from the memory
that it finds (server_args.py:3122-3320 in 0.5.14): a machine with more of it would never be comparable with itself,
though the cell needs a hundredth of the cache that either value leads to. What a value leads to is a figure for one
cell: requests of its shape that fit at once, tokens of a prompt batch, batch sizes with a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from pytest_moeperf.model.run import Fingerprint, Plain

GIVEN = "given"
"""Server field that names which of them the launch command sets; absent: nobody knows."""
NONE_GIVEN = "none"

_Effect = Callable[[Plain, Fingerprint], float | None]


def same_effect(name: str, baseline: Fingerprint, here: Fingerprint) -> bool | None:
    """Whether two different values lead to the same for these cells; None: it is no derived argument, somebody set it,
    or what it leads to is not known."""
    effect, flags = _DERIVED.get(name, (None, ()))
    if effect is None or any(_is_given(flag, side) for flag in flags for side in (baseline, here)):
        return None
    effects = [effect(side.server.get(name), side) for side in (baseline, here)]
    return effects[0] == effects[1] if None not in effects else None


def given_names(flags: Mapping[str, object] | tuple[str, ...]) -> str:
    """Those of a command's arguments (``mem_fraction_static``, ...) that set what would be derived otherwise."""
    patterns = {pattern for _, used in _DERIVED.values() for pattern in used}
    return " ".join(sorted(flag for flag in flags if _matches(flag, patterns))) or NONE_GIVEN


def _is_given(pattern: str, side: Fingerprint) -> bool:
    return any(fnmatchcase(name, pattern) for name in str(side.server.get(GIVEN) or "").split())


def _matches(name: str, patterns: set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _number(value: Plain) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _requests(side: Fingerprint) -> float | None:
    """Of a run that one rank may have to serve at once."""
    # At a rate, nothing but the number of prompts bounds how many are there at once.
    open_loop = _number(side.workload.get("request_rate")) is not None
    requests = _number(side.workload.get("num_prompts" if open_loop else "concurrency"))
    ranks = _number(side.server.get("dp_size")) or 1
    return None if requests is None else -(-requests // ranks)


def _that_fit(_: Plain, side: Fingerprint) -> float | None:
    room, requests = _number(side.server.get("max_total_num_tokens")), _requests(side)
    prompt, answer = (_number(side.workload.get(name)) for name in ("input_len", "output_len"))
    if room is None or requests is None or prompt is None or answer is None:
        return None
    return min(requests, room // max(1, prompt + answer))


def _that_run(limit_value: Plain, side: Fingerprint) -> float | None:
    limit, requests = _number(limit_value), _requests(side)
    return None if limit is None or requests is None else min(requests, limit)


def _prompt_batch(value: Plain, side: Fingerprint) -> float | None:
    size, requests, prompt = _number(value), _requests(side), _number(side.workload.get("input_len"))
    if size is None or requests is None or prompt is None:
        return None
    return min(size, requests * prompt) if size > 0 else requests * prompt


def _all_captured(largest: str, needed: Callable[[Fingerprint], float | None]) -> _Effect:
    """The sizes up to the largest are the same ones in one version: it is enough that all needed ones have a graph."""

    def effect(_: Plain, side: Fingerprint) -> float | None:
        captured, wanted = _number(side.server.get(largest)), needed(side)
        return None if captured is None or wanted is None or captured < wanted else wanted

    return effect


def _prompt_tokens(side: Fingerprint) -> float | None:
    return _prompt_batch(side.server.get("chunked_prefill_size"), side)


_decode_graphs = _all_captured("cuda_graph_config.decode.max_bs", _requests)
_prefill_graphs = _all_captured("cuda_graph_config.prefill.max_bs", _prompt_tokens)
_GRAPH_FLAGS = ("*cuda_graph*", "torch_compile_max_bs", "enable_torch_compile")

_DERIVED: dict[str, tuple[_Effect, tuple[str, ...]]] = {
    "mem_fraction_static": (_that_fit, ("mem_fraction_static",)),
    "max_total_num_tokens": (_that_fit, ()),
    "effective_max_running_requests": (_that_run, ()),
    "chunked_prefill_size": (_prompt_batch, ("chunked_prefill_size",)),
    "cuda_graph_max_bs": (_all_captured("cuda_graph_max_bs", _requests), _GRAPH_FLAGS),
    "cuda_graph_bs": (_all_captured("cuda_graph_max_bs", _requests), _GRAPH_FLAGS),
    "cuda_graph_config.decode.max_bs": (_decode_graphs, _GRAPH_FLAGS),
    "cuda_graph_config.decode.bs": (_decode_graphs, _GRAPH_FLAGS),
    "cuda_graph_config.prefill.max_bs": (_prefill_graphs, _GRAPH_FLAGS),
    "cuda_graph_config.prefill.bs": (_prefill_graphs, _GRAPH_FLAGS),
    "torch_compile_max_bs": (_all_captured("torch_compile_max_bs", _requests), _GRAPH_FLAGS),
}
"""By server field: what its value leads to, and the flags that set it. A field without flags is a result itself."""
