"""``moeperf ceiling``: the physical limit, from a config.json and a GPU's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_samples import moeperf

from pytest_moeperf.ceiling import ceiling_tok_s

CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("qwen3-30b-a3b").mkdir()
    Path("qwen3-30b-a3b/config.json").write_text(json.dumps(CONFIG))


def test_the_table() -> None:
    ran = moeperf("ceiling", "--model=qwen3-30b-a3b", "--gpu=H200", "--tp=2", "--concurrency=1,10,64")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
2x NVIDIA H200, 512/128 tokens
concurrency  ceiling     a request   step     read a step  bound by
1            1564 tok/s  1564 tok/s  0.64 ms  6.14 GB      memory
10           3137 tok/s  314 tok/s   3.19 ms  30.6 GB      memory
64           9732 tok/s  152 tok/s   6.58 ms  63.1 GB      memory

at concurrency 1, each step reads
part            read at least once  bits  bytes    share
attention       0.91 B              16    1.81 GB  29.5%
    48 layers
routed experts  1.81 B              16    3.62 GB  59.0%
    48 layers x 8.0 of 128 experts
router          0.01 B              16    25.2 MB  0.4%
    48 layers x 128
output head     0.31 B              16    622 MB   10.1%
    151936 x 2048
KV cache                            16    56.6 MB  0.9%
    1 x 576 tokens x 1024 values a layer
all             3.04 B                    6.14 GB  100%
    over 9.6 TB/s: 1564 tok/s
assumed: weights in bf16: nothing quantized
assumed: 4.8 TB/s a GPU (NVIDIA H200 data sheet, SXM column)
assumed: routing spread evenly over the experts
assumed: no time for launches, communication, sampling and prompts
"""
    )
    assert moeperf("ceiling", "--model=qwen3-30b-a3b/config.json", "--gpu=H200", "--tp=2").out == ran.out


def test_the_configuration_names_model_and_gpus() -> None:
    Path("moeperf.toml").write_text('model = "qwen3-30b-a3b"\ntensor_parallel = 4\n')
    assert moeperf("ceiling", "--gpu=H200").out.startswith("4x NVIDIA H200, 512/128 tokens\n")


def test_every_option_reaches_the_calculation() -> None:
    flags = (
        "--input-len=4000 --output-len=2000 --quantization=fp8 --kv-cache-dtype=fp8_e4m3 --ep=2 --tokens-per-step=1.8"
    )
    ran = moeperf(
        "ceiling",
        "--model=qwen3-30b-a3b",
        "--gpu=H100",
        "--tp=8",
        "--dp-attention",
        "--concurrency=7",
        "--json",
        *flags.split(),
    )
    (found,) = json.loads(ran.out)
    expected = ceiling_tok_s(
        config=CONFIG,
        gpu="H100",
        gpus=8,
        concurrency=7,
        context_len=5000,
        quantization="fp8",
        kv_cache_dtype="fp8_e4m3",
        expert_parallel=2,
        dp_attention=True,
        tokens_per_step=1.8,
    )
    assert found["tok_s"] == pytest.approx(expected.tok_s)
    assert [term["bytes_read"] for term in found["terms"]] == pytest.approx(
        [term.bytes_read for term in expected.terms]
    )


def test_an_unknown_gpu_says_what_was_looked_for() -> None:
    ran = moeperf("ceiling", "--model=qwen3-30b-a3b", "--gpu=H900", "--concurrency=1")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith(
        "1x H900, 512/128 tokens\n"
        "concurrency  ceiling  a request  step  read a step  bound by\n"
        "1            unknown\n"
        "looked for: a GPU named 'H900' in the table, or a measured bandwidth; it knows\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu=H200",), "--model: is not given, and no model is configured\n"),
        (("--model=qwen3-30b-a3b",), "--gpu: is not given\n  allowed: a GPU's name, or --measure-bandwidth\n"),
        (
            ("--model=Qwen/Qwen3-30B-A3B", "--gpu=H200"),
            "--model: Qwen/Qwen3-30B-A3B can't be read: No such file or directory\n"
            "  allowed: a model's folder, or its config.json; a hub name is not downloaded\n",
        ),
        (("--model=broken.json", "--gpu=H200"), "broken.json: is no JSON: Expecting value: line 1 column 1 (char 0)\n"),
        (("--model=list.json", "--gpu=H200"), "list.json: is no JSON object\n"),
    ],
)
def test_what_is_missing_is_said(arguments: tuple[str, ...], said: str) -> None:
    Path("broken.json").write_text("nothing")
    Path("list.json").write_text("[]")
    ran = moeperf("ceiling", *arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"moeperf ceiling: {said}")
