"""Which fields of a fingerprint must be equal for two runs to be comparable. Data only; ``fingerprint.py`` applies it.

The rule behind the tables: *the thing under test may change, the work and the machine may not.* A backend comparison
varies the MoE runner and what it brings along; a pull request varies the engine's code and its kernel libraries. All of
that is noted and shown, and blocks nothing. What decides how much work is done, in what batches, on what, blocks.

Names of server arguments are SGLang's, of all versions that were read (0.5.14 and 0.5.23): a name that a version does
not have is simply not there.
"""

from __future__ import annotations

IGNORED_SERVER_ARGS: tuple[str, ...] = (
    # Where it listens, who may come in, what it is called.
    *(
        "host",
        "port",
        "*_port",
        "*_ports",
        "dist_init_addr",
        "*_ip",
        "ssl_*",
        "*api_key",
        "served_model_name",
        "*_urls",
    ),
    *(
        "fastapi_root_path",
        "node_rank",
        "base_gpu_id",
        "launch_command",
        "frontend",
        "weight_version",
        "version",
        "pid",
    ),
    # Where things lie. The model is compared by its configuration, not by its path.
    *("model_path", "tokenizer_path", "*_dir", "*_folder", "*_file", "*_path", "enable_http2", "grpc_mode"),
    # What is drawn, written and watched.
    *("random_seed", "log_*", "*_log_interval", "uvicorn_*", "*watchdog_timeout", "dist_timeout", "warmups"),
    *("skip_server_warmup", "bucket_*", "*_buckets", "tokenizer_metrics_*", "extra_metric_labels", "stat_loggers"),
    *(
        "enable_metrics*",
        "enable_trace",
        "otlp_*",
        "trace_modules",
        "kv_events*",
        "forward_pass_metrics_*",
        "gc_warning_*",
    ),
    *(
        "export_metrics_*",
        "show_time_cost",
        "custom_sigquit_handler",
        "enable_request_time_stats_logging",
        "*_checksum",
    ),
    # How text is put around a prompt; the prompts here are token ids.
    *("chat_template", "hf_chat_template_name", "completion_template", "reasoning_parser", "tool_*", "grammar_backend"),
    # How weights come to the GPU, before anything is measured.
    *("weight_loader_*", "remote_instance_*", "custom_weight_loader", "delete_ckpt_after_loading", "revision"),
    # State of the moment, not an argument.
    *("internal_states", "startup_time", "status", "max_req_input_len", "scheduler_info*", "capabilities", "simulated"),
)
"""Never in a fingerprint (shell patterns)."""

WORK_ARGS: tuple[str, ...] = (
    # Shape of the computation.
    *("device", "dtype", "quantization", "kv_cache_dtype", "load_format", "json_model_override_args", "context_length"),
    *("tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "moe_dp_size", "attn_cp_size", "nnodes"),
    *("moe_dense_tp_size", "enable_dp_attention", "enable_dp_lm_head", "disaggregation_mode", "cpu_offload_gb"),
    # What is batched with what.
    *("max_running_requests", "max_queued_requests", "max_total_tokens", "chunked_prefill_size", "max_prefill_tokens"),
    *("prefill_max_requests", "schedule_policy", "schedule_conservativeness", "enable_mixed_chunk", "page_size"),
    *("disable_overlap_schedule", "num_continuous_decode_steps", "scheduler_recv_interval", "mem_fraction_static"),
    *("enable_two_batch_overlap", "enable_single_batch_overlap", "enable_dynamic_chunking", "enable_prefill_delayer"),
    # What is reused.
    *("disable_radix_cache", "radix_*", "enable_hierarchical_cache", "enable_lmcache"),
    # How it is executed, apart from the experts.
    *("*cuda_graph*", "enable_torch_compile", "torch_compile_max_bs", "enable_deterministic_inference"),
    *("attention_backend", "*_attention_backend", "sampling_backend", "fp8_gemm*", "fp4_gemm*", "bf16_gemm*"),
    *("disable_custom_all_reduce", "enable_mscclpp", "enable_torch_symm_mem", "enable_symm_mem", "enable_nccl_nvls"),
    *("speculative_algorithm", "speculative_num_*", "speculative_eagle_topk", "speculative_draft_*", "enable_eplb"),
    *("ep_num_redundant_experts", "init_expert_location", "enable_lora"),
    # When tokens are sent.
    *("stream_interval", "batch_notify_size", "incremental_streaming_output", "tokenizer_worker_num"),
    *("detokenizer_worker_num", "skip_tokenizer_init"),
)
"""Always blocking, also when a backend's own table sets them: they change the work, whoever asked for it."""

THING_UNDER_TEST: tuple[str, ...] = (
    *("moe_runner_backend", "moe_a2a_backend", "deepep_*", "speculative_moe_*", "flashinfer_mxfp4_moe_precision"),
    *("disable_shared_experts_fusion", "enforce_shared_experts_fusion", "disable_flashinfer_cutlass_moe_fp4_allgather"),
)
"""The MoE runner and what it implies: noted."""

IMPLIED_BY: dict[str, str] = {"ep_size": "moe_a2a_backend"}
"""Noted where the argument named on the right differs too: all-to-all backends force ``ep_size`` to ``tp_size``."""

NOTED_SERVER_ARGS: tuple[str, ...] = (
    # Follow from free memory after loading, which a backend's workspace and its autotuner change. Where a cell would
    # fit on one side and not on the other, ``derived.py`` has them block.
    *("max_total_num_tokens", "max_total_num_tokens_swa", "effective_max_running_requests"),
    *("gc_threshold", "sleep_on_idle", "numa_node", "use_ray", "disable_outlines_disk_cache", "model.name"),
)

NOTED_FILES: tuple[str, ...] = ("profile", "*moe_config*", "*MOE_CONFIG*", "*autotune*")
"""Files that are the thing under test, by the argument or variable that names them: step times of the simulated engine,
tuning tables of the MoE kernels."""

AMBIENT_ENV_PREFIXES: tuple[str, ...] = ("SGLANG_", "SGL_", "FLASHINFER_", "VLLM_", "TRTLLM_", "DG_")
"""Variables that count also where the shell sets them and not the configuration: they are the engine's own."""

SERVER_ENV_PREFIXES: tuple[str, ...] = (
    *("SGLANG_", "SGL_", "FLASHINFER_", "NCCL_", "CUDA_", "CUTLASS_", "DG_", "TRITON_", "TORCH_", "TORCHINDUCTOR_"),
    *("PYTORCH_", "NVSHMEM_", "MSCCLPP_", "OMP_", "MKL_", "VLLM_", "TRTLLM_", "KMP_"),
)
"""Environment variables of the server that are recorded."""

IGNORED_ENV: tuple[str, ...] = (
    "*_DIR",
    "*_PATH",
    "*_HOME",
    "*_BASE",
    "*_FILE",
    "*_PORT",
    "*_HOST",
    "*_LOG*",
    "*_DEBUG*",
    "*_ROOT",
)
HARMLESS_ENV: tuple[str, ...] = (
    # Settings of libraries, none of which takes a credential.
    *("NCCL_*", "CUDA_*", "CUTLASS_*", "DG_*", "TRITON_*", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "NVSHMEM_*"),
    *("MSCCLPP_*", "OMP_*", "MKL_*", "KMP_*", "FLASHINFER_*"),
    # Of the engines' own, which plugins and distributions add to: switches, numbers and choices.
    *(
        f"{engine}_{what}"
        for engine in ("SGLANG", "SGL", "VLLM", "TRTLLM")
        for what in (
            *("ENABLE_*", "DISABLE_*", "USE_*", "FORCE_*", "SKIP_*", "ALLOW_*", "IS_*", "MAX_*", "MIN_*", "NUM_*"),
            *("*_SIZE", "*_TIMEOUT*", "*_THRESHOLD", "*_BACKEND", "*_INTERVAL", "*_RATIO", "*_METHOD", "*_NUM_*"),
            *(
                "SIMULATE_*",
                "OPT_*",
                "JIT_*",
                "CUDA_*",
                "TORCH_*",
                "FLASHINFER_*",
                "DEEPEP_*",
                "*DEEPGEMM*",
                "*DEEP_GEMM*",
            ),
            *("MOE_*", "FUSED_MOE_*", "CUTLASS_*", "NCCL_*", "TRITON_*", "V1_*", "CPU_*", "BF16_*", "FP8_*", "*NVFP4*"),
        )
    ),
)
"""Variables whose values are shown and stored. Of others a digest is compared, and the name alone shown."""

NOTED_ENV: tuple[str, ...] = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SGLANG_IS_IN_CI", "SGLANG_*TIMEOUT*")

NOTED_WORKLOAD: tuple[str, ...] = ("seed",)
"""The prompts of every run are new ones, whatever the seed; all other workload fields block."""

BLOCKING_HARDWARE: tuple[str, ...] = (
    *("gpu_name", "gpu_count", "gpu_memory_mib", "gpu_mig", "gpu_ecc", "gpu_power_limit_w", "gpu_pcie", "gpu_links"),
    *("driver", "cpu_model", "cpu_count", "cpu_usable", "machine", "simulated", "stated"),
)
"""``driver`` blocks in its major version only."""

UNKNOWN_IS_KEPT: tuple[str, ...] = ("workload.*", "hardware.stated", "software.engine", "server.arguments")
"""Where nothing is known of these (``group.field``), that stands in the fingerprint: equal to nothing."""

STATED_BY: dict[str, str] = {
    "hardware.stated": '[attach] hardware = "8x H200"',
    "software.engine": '[attach] engine = "vllm"',
    "server.arguments": '[attach] args = "--tp=8 ..."',
}
"""The line of the configuration that says what an attached server does not."""

BLOCKING_SOFTWARE: tuple[str, ...] = ("engine",)
"""Versions of the engine and of its libraries are what a pull request changes: noted."""

LABELS: dict[str, str] = {
    "workload": "the workload",
    "server": "the server's resolved arguments",
    "software": "software versions",
    "hardware": "the hardware",
    "environment": "the machine's settings",
    "workload.concurrency": "concurrency",
    "workload.input_len": "prompt length (tokens)",
    "workload.output_len": "output length (tokens)",
    "workload.num_prompts": "number of prompts in a run",
    "workload.dataset": "dataset",
    "workload.seed": "seed of the prompts",
    "workload.request_rate": "request rate",
    "workload.shared_prefix_len": "shared prefix (tokens)",
    "workload.vocabulary": "token ids that prompts are made of",
    "workload.queueing": "requests may wait in the server's queue",
    "server.model.config_digest": "the model's config.json",
    "server.model.name": "model",
    "server.model.quantization": "the model's quantization",
    "server.model.revision": "the model's revision",
    "server.model.max_len": "the model's context length",
    "server.model.draft": "draft model",
    "server.file.model_path": "the model's quantization and weights (files)",
    "server.mem_fraction_static": "--mem-fraction-static (taken from the machine's memory where args don't pin it)",
    "server.chunked_prefill_size": "--chunked-prefill-size (taken from the machine's memory where args don't pin it)",
    "server.max_total_num_tokens": "room for tokens in the KV cache",
    "server.effective_max_running_requests": "requests that can run at once",
    "software.engine": "engine",
    "software.engine_version": "engine version",
    "software.engine_commit": "engine commit",
    "software.engine_changes": "the engine's local changes",
    "software.engine_files": "the engine's source files",
    "server.arguments": "how the attached server was started",
    "server.stated_args": "how the attached server was started, as stated",
    "hardware.stated": "the attached server's hardware",
    "hardware.driver": "GPU driver",
    "hardware.gpu_name": "GPU",
    "hardware.gpu_count": "number of GPUs",
    "hardware.gpu_memory_mib": "GPU memory (MiB)",
    "hardware.gpu_mig": "MIG",
    "hardware.gpu_ecc": "GPU ECC",
    "hardware.gpu_power_limit_w": "GPU power limit (W)",
    "hardware.gpu_pcie": "PCIe link",
    "hardware.gpu_links": "links between GPUs",
    "hardware.cpu_model": "CPU",
    "hardware.cpu_count": "CPUs of the machine",
    "hardware.cpu_usable": "CPUs that this process may use",
}
"""What a field is called in front of people. A server argument without a label is shown as its flag."""
