"""``moeperf ceiling``: how fast a model could decode at best on given hardware."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_moeperf.cli.commands import DONE, NO, Commands, add_json_option
from pytest_moeperf.cli.configuration import settings_here
from pytest_moeperf.cli.output import print_json, print_lines, table, width
from pytest_moeperf.cli.values import positive_number, whole_number, whole_numbers
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.foreign import parse_json, read_text
from pytest_moeperf.model.settings import Settings

if TYPE_CHECKING:
    from pytest_moeperf.model.ceiling import Ceiling


def add(commands: Commands) -> None:
    parser = commands.add(
        "ceiling",
        run=run,
        summary="the physical limit of decoding on given hardware",
        description="From a model's config.json and a GPU: bytes that each decode step must read over the memory's "
        "bandwidth, and its operations over the arithmetic's peak. Nothing is launched or downloaded. "
        "Exit code 1: the ceiling is not known; says what was looked for.",
        example="moeperf ceiling --model=/models/GLM-5-NVFP4 --gpu='RTX PRO 6000' --tp=8 --concurrency=1,10,64",
    )
    parser.add_argument("--model", metavar="DIR|FILE", help="a model folder or its config.json; default: configured")
    parser.add_argument("--gpu", metavar="NAME", default="", help="as nvidia-smi or a person writes it")
    parser.add_argument(
        "--tp", metavar="N", type=whole_number(1), help="GPUs that share the weights; default: configured"
    )
    parser.add_argument("--ep", metavar="N", type=whole_number(1), default=1, help="groups that share the experts")
    parser.add_argument(
        "--concurrency", metavar="N,N", type=whole_numbers, default=(1, 10, 64), help="default: 1,10,64"
    )
    parser.add_argument("--input-len", metavar="N", type=whole_number(0), default=512, help="default: 512 tokens")
    parser.add_argument("--output-len", metavar="N", type=whole_number(1), default=128, help="default: 128 tokens")
    parser.add_argument("--quantization", metavar="NAME", help="as the server's flag; default: the config.json's own")
    parser.add_argument("--kv-cache-dtype", metavar="NAME", help="as the server's flag")
    parser.add_argument("--dp-attention", action="store_true", help="requests, not heads, are split over the GPUs")
    parser.add_argument(
        "--tokens-per-step", metavar="N", type=positive_number, default=1.0, help="accepted by speculative decoding"
    )
    parser.add_argument(
        "--measure-bandwidth", action="store_true", help="copy on this machine's first GPU instead of the data sheet's"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.ceiling import ceiling_tok_s

    settings = settings_here()
    config = _config(args.model, settings)
    bandwidth_bytes_s = _bandwidth() if args.measure_bandwidth else None
    if not args.gpu and bandwidth_bytes_s is None:
        raise UsageProblem(where="--gpu", problem="is not given", allowed="a GPU's name, or --measure-bandwidth")
    ceilings = [
        ceiling_tok_s(
            config=config,
            gpu=args.gpu,
            gpus=args.tp or settings.tensor_parallel,
            concurrency=concurrency,
            context_len=args.input_len + args.output_len / 2,
            quantization=args.quantization,
            kv_cache_dtype=args.kv_cache_dtype,
            expert_parallel=args.ep,
            dp_attention=args.dp_attention,
            tokens_per_step=args.tokens_per_step,
            bandwidth_bytes_s=bandwidth_bytes_s,
        )
        for concurrency in args.concurrency
    ]
    if args.json:
        from pytest_moeperf.model.codec import to_plain

        print_json(to_plain(ceilings))
    else:
        print_lines(ceiling_lines(ceilings, shape=f"{args.input_len}/{args.output_len}", width=width()))
    return DONE if all(ceiling.tok_s is not None for ceiling in ceilings) else NO


def ceiling_lines(ceilings: Sequence[Ceiling], *, shape: str, width: int) -> Iterator[str]:
    """The sweep, the terms of its first row, what was assumed or looked for."""
    from pytest_moeperf.ceiling import SWEEP_HEADER, TERM_HEADER, sweep_rows, term_rows
    from pytest_moeperf.reporting.text import safe, wrap

    first = ceilings[0]
    yield f"{first.gpus}x {first.gpu or 'this GPU'}, {shape} tokens"
    yield from table(SWEEP_HEADER, sweep_rows(ceilings))
    if first.terms:
        yield ""
        yield f"at concurrency {first.concurrency}, each step reads"
        *columns, _ = zip(TERM_HEADER, *term_rows(first), strict=True)
        details = [row[-1] for row in term_rows(first)]
        head, *lines = table(
            [column[0] for column in columns], list(zip(*(column[1:] for column in columns), strict=True))
        )
        yield head
        for line, detail in zip(lines, details, strict=True):
            yield line
            yield from wrap(detail, width=width, first="    ", rest="    ")
    for assumption in first.assumptions:
        yield from wrap(f"assumed: {assumption}", width=width, rest="  ")
    for missing in first.looked_for:
        yield from wrap(f"looked for: {safe(missing)}", width=width, rest="  ")


def _config(model: str | None, settings: Settings) -> dict[str, Any]:
    """The model's config.json.

    :raises UsageProblem: if there is none at that place: hub names are not resolved.
    """
    place = Path(model) if model else Path(settings.root) / settings.model
    if not model and not settings.model:
        raise UsageProblem(where="--model", problem="is not given, and no model is configured")
    path = place / "config.json" if place.is_dir() else place
    try:
        config = parse_json(read_text(path))
    except OSError as error:
        raise UsageProblem(
            where="--model",
            problem=f"{path} can't be read: {error.strerror}",
            allowed="a model's folder, or its config.json; a hub name is not downloaded",
        ) from None
    except ValueError as error:
        raise UsageProblem(where=str(path), problem=f"is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageProblem(where=str(path), problem="is no JSON object")
    return config


def _bandwidth() -> float:
    from pytest_moeperf.ceiling import measure_bandwidth_bytes_s

    found = measure_bandwidth_bytes_s()
    if found is None:
        raise UsageProblem(
            where="--measure-bandwidth",
            problem="there is no torch here, no CUDA device, or not enough of its memory free",
            allowed="--gpu=NAME, for the data sheet's bandwidth",
        )
    return found
