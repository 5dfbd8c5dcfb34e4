"""Where a server runs: its devices, the hardware for its fingerprint, the model's config."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_moeperf.bench.devices import CPU_DEVICE, Gpu, device_sets, gpus_of_this_host, visible
from pytest_moeperf.engines.identity import Identity
from pytest_moeperf.engines.sglang import on_cpu
from pytest_moeperf.engines.sglang_flags import option_of
from pytest_moeperf.environment import read_environment, read_model, read_named_files, read_source_build
from pytest_moeperf.environment.model_files import model_folder, read_json
from pytest_moeperf.environment.vocabulary import read_vocabulary
from pytest_moeperf.model.comparability import AMBIENT_ENV_PREFIXES
from pytest_moeperf.model.environment import EnvironmentFacts
from pytest_moeperf.model.run import Plain
from pytest_moeperf.model.spec import NO_MODEL, ServerSpec
from pytest_moeperf.model.vocabulary import UNREAD, Vocabulary


@dataclass(frozen=True, kw_only=True)
class Code:
    """What a launch starts from and a version doesn't say."""

    source: Mapping[str, Plain] = field(default_factory=dict)
    """Of an engine that was built from source: its commit and local changes."""
    files: Mapping[str, Plain] = field(default_factory=dict)
    """Content of the files that arguments and variables name, by ``file.ARGUMENT``."""

    def digest(self, spec_digest: str) -> str:
        """Two specs of one digest are served by one launch; after an edit a server that was kept warm is not theirs."""
        if not self.source and not self.files:
            return spec_digest
        text = json.dumps([spec_digest, dict(self.source), dict(self.files)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One machine as one spec sees it."""

    spec: ServerSpec
    facts: EnvironmentFacts = field(repr=False)
    gpus: tuple[Gpu, ...]
    """Those that the server spans; none for a CPU."""
    chosen: bool = False
    """They are one of several sets, so the server has to be told."""
    device_sets: int = 1
    """Servers that may be measured side by side on this machine."""
    served: Identity | None = None
    """What an attached server said of itself; None: it was launched here."""

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"

    @property
    def devices(self) -> tuple[str, ...]:
        """What the measuring lock is keyed by."""
        return tuple(gpu.uuid for gpu in self.gpus) or (CPU_DEVICE,)

    @property
    def label(self) -> str:
        """``1x NVIDIA H200``, ``simulated``, ``CPU``."""
        if self.spec.engine == "simulated":
            return "simulated"
        if self.served is not None:
            return f"{self.served.text} at {self.spec.attach_url}"
        return f"{len(self.gpus)}x {self.gpus[0].name}" if self.gpus else "CPU"

    @cached_property
    def model_config(self) -> dict[str, Any] | None:
        """The model's config.json where it is a folder here; None for a hub name."""
        if not self.spec.model or self.served is not None:
            return None
        return read_json(Path(self.spec.model) / "config.json")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What prompts are made of: the model's ordinary tokens where its files are here, else ids that nearly every
        model has."""
        args, env = self.spec.args, self.spec.env
        model = self.spec.model if self.served is None else self.served.model or ""
        folder = model_folder(model, env=env, revision=option_of(args, "--revision") or "main")
        tokenizer = model_folder(option_of(args, "--tokenizer-path") or "", env=env)
        return (read_vocabulary(folder, tokenizer=tokenizer) if folder is not None else None) or UNREAD

    @property
    def model_name(self) -> str:
        """What baselines are filed under."""
        name = self.spec.model if self.served is None else self.served.model or ""
        return model_label(name) or NO_MODEL

    @property
    def env(self) -> dict[str, str]:
        """The server's variables that count: the configuration's, and the engine's own ones that the shell sets."""
        if self.spec.engine in WITHOUT_GPU:
            return self.spec.env
        ambient = {name: value for name, value in os.environ.items() if name.startswith(AMBIENT_ENV_PREFIXES)}
        return ambient | self.spec.env

    def read_code(self) -> Code:
        """Read anew for each launch: it may be edited in between."""
        if self.spec.engine == "attached":
            return Code()
        source = read_source_build(self.spec.engine, self.spec.python, env=self.spec.env)
        # Only the simulated engine is launched in the configuration's folder.
        cwd = self.spec.cwd if self.spec.engine == "simulated" else ""
        return Code(source=source, files=read_named_files(self.spec.args, self.env, model=self.spec.model, cwd=cwd))

    @cached_property
    def draft_has_experts(self) -> bool | None:
        """Of a draft model that is a folder here; None: there is none, or its configuration can't be read."""
        path = option_of(self.spec.args, "--speculative-draft-model-path")
        config = read_json(Path(path) / "config.json") if path else None
        if config is None:
            return None
        parts = [config, *(part for part in config.values() if isinstance(part, dict))]
        return any(part.get(name) for part in parts for name in _EXPERTS)

    @cached_property
    def model(self) -> dict[str, Plain]:
        """For the fingerprint: its name, and what its config says."""
        if self.served is not None:
            return {"name": self.model_name, "max_len": self.served.context_len}
        revision = option_of(self.spec.args, "--revision") or ""
        facts = read_model(self.spec.model, env=os.environ | self.spec.env, revision=revision)
        return facts | {"name": self.model_name}

    @property
    def software(self) -> dict[str, Plain]:
        """The engine, and what it computes with."""
        if self.served is not None:
            return {"engine": self.served.engine, "engine_version": self.served.version, "build": self.served.build}
        return {"engine": self.spec.engine, **self.facts.software}

    @property
    def arguments(self) -> dict[str, Plain]:
        """How an attached server was started, where it has no list of arguments of its own."""
        if self.served is None or self.served.arguments is not None:
            return {}
        if self.spec.stated.args:
            return {"stated_args": self.spec.stated.args}
        return {"arguments": self.served.engine_config}


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""In a config.json: how many experts a layer has."""


WITHOUT_GPU = frozenset({"simulated", "attached"})
"""Engines that use none of this machine's GPUs."""


def place_of(spec: ServerSpec, *, turn: int | None = None) -> Place:
    """
    :param turn: number of this process among those that measure side by side (``--perf-devices=auto``): which of the
        disjoint sets of GPUs it uses. None: the first GPUs that are visible; servers that want the same ones wait for
        each other.
    """
    without_gpu = spec.engine in WITHOUT_GPU or on_cpu(spec.args)
    gpus = () if without_gpu else visible(gpus_of_this_host(), os.environ | spec.env)
    # Nodes elsewhere have GPUs of their own.
    size = spec.tensor_parallel if spec.launcher == "local" else spec.tensor_parallel // spec.nnodes
    sets = device_sets(gpus, size=size) if turn is not None else ()
    used = sets[turn % len(sets)] if sets and turn is not None else gpus[:size]
    facts = read_environment(python=spec.python, gpus=[gpu.uuid for gpu in used])
    return Place(spec=spec, facts=facts, gpus=used, chosen=len(sets) > 1, device_sets=max(1, len(sets)))


def attached_place(spec: ServerSpec, served: Identity) -> Place:
    """Of a server that runs anywhere, this machine included: what it runs on is what was stated, else unknown. The
    client's own machine is a note."""
    client = read_environment()
    notes = {**client.environment, **client.hardware}
    facts = EnvironmentFacts(
        hardware={"stated": spec.stated.hardware or None},
        environment={f"client_{name}": value for name, value in notes.items()},
    )
    return Place(spec=spec, facts=facts, gpus=(), served=served)


def model_label(name: str) -> str:
    """A hub name as it is; of a folder's path, which differs between machines, the last part."""
    name = name.rstrip("/")
    return Path(name).name if Path(name).is_absolute() else name
