"""Take secrets out of anything that is about to be written or shown: texts, mappings, command lists.

Two ways, both always on: what a value is called (``api_key``, ``HF_TOKEN``, ``Authorization``, ``--api-key X``, the
password of a URL) and what it looks like (``hf_...``, ``sk-...``, ``ghp_...``). A caller that knows the very values
(its own environment, the key that it passed to a server) names them too, and they go wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

API_KEY_PLACEHOLDER: Final = "{api_key}"
"""In a command or an environment that is still to be filled in."""
REDACTED = "***"

SHORTEST_KNOWN_SECRET = 6
"""A known secret shorter than this is left alone: replacing every ``a`` would hide the text, not the secret."""

# `tokens`, `max_total_tokens` and `tokenizer_path` are counts and paths: `token` counts only as a last word.
_NAME_ENDINGS = (
    r"(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|passwords?|passwd|passphrase|credentials?|private[_-]?key"
    r"|access[_-]?key|auth(?:orization)?|cookie|token)"
)
_SECRET_NAME = re.compile(rf"{_NAME_ENDINGS}$", re.IGNORECASE)
_MODEL_TOKEN = re.compile(
    r"(?:^|_)(?:bos|eos|pad|unk|sep|cls|mask|stop|image|audio|video|boi|eoi)_token$", re.IGNORECASE
)

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_BARE = r"[^\s,;&)\]}\"'<>]+"
_PLACEHOLDER = re.escape(API_KEY_PLACEHOLDER) + r"(?![A-Za-z0-9._~+/\-])"
_NOTHING = re.compile(rf"\.\.\.|None|null|True|False|true|false|\*\*\*|{_PLACEHOLDER}")
_COUNT = re.compile(r"\d{1,12}(?:\.\d+)?")

# name=value, name: value, 'name': 'value', --name value, --name=value; the name ends in one of the words.
_ASSIGNMENT = re.compile(
    rf"(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>[A-Za-z0-9_.\-]*{_NAME_ENDINGS})[\"']?(?:\s*[=:]\s*|(?<=[\"'])\s*,\s*(?=[\"'])))"
    rf"(?P<scheme>(?:Bearer|Basic|Token)\s+)?(?P<value>{_QUOTED}|{_PLACEHOLDER}|{_BARE})",
    re.IGNORECASE,
)
_FLAG = re.compile(
    rf"(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>--[A-Za-z0-9\-_]*{_NAME_ENDINGS})[ \t]+)(?P<scheme>)"
    rf"(?P<value>{_QUOTED}|(?!--)[^\s]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=\-]{6,})", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<head>(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*://)(?P<value>[^\s/@]+)(?=@)", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_\-]{16,}|xox[abprs]-[A-Za-z0-9\-]{10,}|AKIA[0-9A-Z]{16})\b"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable, field, header or flag of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.lstrip("-"))) and not _MODEL_TOKEN.search(name)


def known_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment's secret variables, for ``scrub_secrets(..., known=...)``."""
    return tuple(value for name, value in env.items() if is_secret_name(name) and len(value) >= SHORTEST_KNOWN_SECRET)


def scrub_secrets(value: T, *, known: Iterable[str] = ()) -> T:
    """The same value with ``***`` for every secret. Goes through strings, mappings, lists and tuples; keeps the rest.

    ``None``, booleans and empty strings stay under any name: that no key was set is a fact and no secret. So do numbers
    under names that end in ``token``: those are counts.
    """
    literal = tuple(sorted({secret for secret in known if len(secret) >= SHORTEST_KNOWN_SECRET}, key=len, reverse=True))
    return cast("T", _scrub(value, literal))


def _scrub(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _scrub_text(value, known)
    if isinstance(value, Mapping):
        return {
            _scrub(key, known): _hidden(key, item, known)
            if isinstance(key, str) and is_secret_name(key)
            else _scrub(item, known)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        items = _scrub_items(value, known)
        return items if isinstance(value, list) else tuple(items)
    return value


def _hidden(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value is None or isinstance(value, bool) or value == "":
        return value
    if name.lower().endswith("token") and isinstance(value, (int, float)):  # experts_per_token: 8
        return value
    if isinstance(value, Mapping):
        return _scrub(value, known)
    return REDACTED


def _scrub_items(items: Iterable[Any], known: tuple[str, ...]) -> list[Any]:
    """A command list: the item after ``--api-key`` is the key."""
    scrubbed: list[Any] = []
    secret_follows = False
    for item in items:
        is_text = isinstance(item, str)
        if secret_follows and is_text and not item.startswith("--"):
            scrubbed.append(REDACTED)
        else:
            scrubbed.append(_scrub(item, known))
        secret_follows = is_text and item.startswith("-") and "=" not in item and is_secret_name(item)
    return scrubbed


def _scrub_text(text: str, known: tuple[str, ...]) -> str:
    for secret in known:
        text = text.replace(secret, REDACTED)
    text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    text = _ASSIGNMENT.sub(_hide_assigned, text)
    text = _FLAG.sub(_hide_assigned, text)
    text = _BEARER.sub(rf"\g<head>{REDACTED}", text)
    return _SHAPES.sub(REDACTED, text)


def _hide_assigned(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if _NOTHING.fullmatch(value) or not value.strip("\"'") or _MODEL_TOKEN.search(name):
        return match[0]
    if name.lower().endswith("token") and _COUNT.fullmatch(value):  # "#token: 384" in a server's log
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['head']}{match['scheme'] or ''}{quote}{REDACTED}{quote}"
