"""What the files hold that a server's arguments and variables name: a path says nothing, its content does.

Configuration is read, weights are counted by their sizes, and what is a secret, a cache or an output is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_moeperf.model.comparability import SERVER_ENV_PREFIXES
from pytest_moeperf.model.run import Plain
from pytest_moeperf.outgoing.secrets import is_secret_name

LARGEST_READ = 4 << 20
"""Bytes. What is larger is no configuration: its size and its first part stand for it."""
MOST_FILES = 2000
_DEEPEST = 3

_CONFIGURATION = frozenset((".json", ".toml", ".yaml", ".yml", ".txt", ".csv", ".ini", ".cfg", ".py", ".model"))
_WEIGHTS = frozenset((".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz"))
_OF_THE_MODEL_ELSEWHERE = (
    "config.json",
    "tokenizer*",
    "special_tokens*",
    "added_tokens*",
    "vocab*",
    "merges*",
    "*chat_*",
)
"""The model's config.json is compared by itself, and prompts are token ids."""
_LEFT_ALONE = (
    # Secrets.
    *("*_key", "*key_file", "*keyfile*", "*cert*", "ssl_*", "*token_file", "*credential*", "*secret*", "*password*"),
    # Caches and outputs, which every launch changes.
    *("*cache*", "*dump*", "*log", "*log_*", "*_logs*", "export_*", "*export_path", "*save*", "*storage*", "*trace*"),
    *("*profiler*", "*_home", "*_root", "*workspace*", "*tmp*", "*temp_*", "download_dir", "*socket*", "*_output_*"),
    # Prompts are token ids; where they come from changes no work.
    *("*chat_template*", "*completion_template*", "tokenizer_path", "host", "served_model_name", "*record*"),
)


def read_named_files(
    args: Sequence[str], env: Mapping[str, str], *, model: str = "", cwd: str = ""
) -> dict[str, Plain]:
    """A digest by ``file.ARGUMENT`` and ``file.env.VARIABLE`` for each value that is a file or a folder here.

    :param model: the model's folder; ``file.model_path`` is its quantization and its weights' index and sizes.
    :param cwd: where the server's relative paths start; empty: here.
    """
    found: dict[str, Plain] = {}
    for name, values in _valued(args).items():
        if not _is_left_alone(name):
            _add(found, f"file.{name}", values, cwd)
    for name, value in sorted(env.items()):
        if name.startswith(SERVER_ENV_PREFIXES) and not _is_left_alone(name):
            _add(found, f"file.env.{name}", [value], cwd)
    folder = Path(model).expanduser()
    if model and folder.is_dir() and (digest := _folder_digest(folder, without=_OF_THE_MODEL_ELSEWHERE)):
        found["file.model_path"] = digest
    return found


def _add(found: dict[str, Plain], name: str, values: Sequence[str], cwd: str) -> None:
    digests = [digest for value in values if (digest := _digest(value, cwd)) is not None]
    if digests:
        found[name] = " ".join(digests)


def _valued(args: Sequence[str]) -> dict[str, list[str]]:
    """``("--a=x", "--b", "y", "n=z")`` -> ``{"a": ["x"], "b": ["y", "n=z"]}``."""
    values: dict[str, list[str]] = {}
    name = ""
    for argument in args:
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            name = name.replace("-", "_")
            values.setdefault(name, []).extend([value] if equals else [])
        elif name:
            values[name].append(argument)
    return values


def _is_left_alone(name: str) -> bool:
    lower = name.lower()
    return is_secret_name(name) or any(fnmatchcase(lower, pattern) for pattern in _LEFT_ALONE)


def _digest(value: str, cwd: str) -> str | None:
    """None: neither a file nor a folder. ``NAME=PATH`` is how adapters are named."""
    for text in dict.fromkeys((value, value.rpartition("=")[2])):
        try:
            path = Path(cwd or os.curdir) / Path(text).expanduser()
            # A bare word may be a file's or a folder's name here by accident.
            if (os.sep in text or "." in text) and path.is_file():
                return hashlib.sha256(_content(path)).hexdigest()[:16]
            if os.sep in text and path.is_dir():
                return _folder_digest(path)
        except (OSError, ValueError, RuntimeError):
            continue
    return None


def _folder_digest(folder: Path, *, without: Sequence[str] = ()) -> str | None:
    """Of its configuration files' contents and its weights' sizes; None: it holds neither."""
    digest = hashlib.sha256()
    count = 0
    for path in _files(folder):
        if any(fnmatchcase(path.name, pattern) for pattern in without) or _is_left_alone(path.name):
            continue
        count += 1
        if count > MOST_FILES:
            break
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(str(path.stat().st_size).encode() if path.suffix in _WEIGHTS else _content(path))
    return digest.hexdigest()[:16] if count else None


def _files(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < _DEEPEST else []
        yield from (
            path
            for name in sorted(names)
            if (path := Path(at) / name).suffix in _CONFIGURATION | _WEIGHTS and path.is_file()
        )


def _content(path: Path) -> bytes:
    """Of JSON what it says, whatever the order of its keys, without what a library writes about itself."""
    size = path.stat().st_size
    with path.open("rb") as file:
        data = file.read(LARGEST_READ)
    if size > LARGEST_READ:
        return str(size).encode() + data
    if path.suffix == ".json":
        try:
            content = json.loads(data)
        except ValueError:
            return data
        if isinstance(content, dict):
            kept = {key: value for key, value in content.items() if key[:1] != "_" and key != "transformers_version"}
            return json.dumps(kept, sort_keys=True).encode()
    return data
