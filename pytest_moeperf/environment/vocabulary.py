"""The ordinary tokens of a model, read from its config and tokenizer files as text: nothing is imported for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_moeperf.environment.model_files import read_json, text_config
from pytest_moeperf.model.vocabulary import Vocabulary

_NAMES_A_TOKEN = re.compile(r"(^|_)token_(id|ids|index|indices|list)$")
"""Keys of a config whose values are ids of tokens with a meaning: ``eos_token_id``, ``image_token_index``, ..."""
_LOOKS_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z][A-Za-z0-9_]*\]|<[|\uff5c].*[|\uff5c]>")
"""``<pad>``, ``<unused7>``, ``<0x0A>``, ``[MASK]``, ``<|reserved_3|>``: in the vocabulary, but no ordinary text."""


class _Added(msgspec.Struct):
    id: int


class _Model(msgspec.Struct):
    vocab: Any = None


class _Tokenizer(msgspec.Struct):
    added_tokens: list[_Added] = []
    model: _Model | None = None


def read_vocabulary(folder: Path, *, tokenizer: Path | None = None) -> Vocabulary | None:
    """None where the folder does not say how many tokens the model has.

    :param tokenizer: folder of the tokenizer, where that is another one.
    """
    said_by = tokenizer or folder
    config = read_json(folder / "config.json") or {}
    size = text_config(config).get("vocab_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    reserved = {*_meant(config), *_meant(read_json(folder / "generation_config.json") or {})}
    decoder = (read_json(said_by / "tokenizer_config.json") or {}).get("added_tokens_decoder")
    if isinstance(decoder, dict):
        reserved.update(int(number) for number in decoder if number.isdecimal())
    reserved.update(_whole((read_json(said_by / "added_tokens.json") or {}).values()))
    tokens, added = _tokenizer(said_by)
    reserved.update(added)
    if tokens:
        reserved.update(number for token, number in tokens.items() if _LOOKS_SPECIAL.fullmatch(token))
        # Embeddings are padded to round sizes: ids without a token were never trained.
        reserved.update(set(range(size)) - set(tokens.values()))
    return Vocabulary(size=size, reserved=frozenset(number for number in reserved if 0 <= number < size))


def _tokenizer(folder: Path) -> tuple[dict[str, int], set[int]]:
    """Tokens by their text, and the ids of added ones; nothing of what is not there."""
    try:
        told = msgspec.json.decode((folder / "tokenizer.json").read_bytes(), type=_Tokenizer)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _plain(read_json(folder / "vocab.json") or {}), set()
    added = {token.id for token in told.added_tokens}
    vocab = told.model.vocab if told.model is not None else None
    if isinstance(vocab, list):  # Unigram: pieces with their scores, in the order of their ids
        return {str(entry[0]): number for number, entry in enumerate(vocab) if isinstance(entry, list) and entry}, added
    return _plain(vocab if isinstance(vocab, dict) else {}), added


def _plain(vocab: Mapping[str, Any]) -> dict[str, int]:
    return {token: number for token, number in vocab.items() if isinstance(number, int)}


def _meant(config: Any) -> Iterator[int]:
    """Ids that a config gives a meaning, at any depth."""
    if isinstance(config, dict):
        for key, value in config.items():
            if _NAMES_A_TOKEN.search(key):
                yield from _whole(value if isinstance(value, list) else [value])
            else:
                yield from _meant(value)


def _whole(values: Iterable[Any]) -> Iterator[int]:
    return (value for value in values if isinstance(value, int) and not isinstance(value, bool))
