"""Take secrets out of anything that is about to be written or shown: texts, mappings, command lists.

Three ways, all always on: what a value is called (``api_key``, ``HF_TOKEN``, ``Authorization``, ``--api-key X``, the
userinfo of a URL), what it looks like (``shapes.py``), and what this process knows to be one (its environment's secret
variables, the keys that it drew or was given). A caller that knows more names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from pytest_moeperf.outgoing.shapes import SHAPES

T = TypeVar("T")

API_KEY_PLACEHOLDER: Final = "{api_key}"
"""In a command, an environment or a file that is still to be filled in."""
KEY_FILE_PLACEHOLDER: Final = "{key_file}"
"""In a command: the path of the file that holds the key."""
REDACTED = "***"

SHORTEST_KNOWN_SECRET = 6
"""A known secret shorter than this is left alone: replacing every ``a`` would hide the text, not the secret."""

# `tokens`, `max_total_tokens` and `tokenizer_path` are counts and paths: `token` counts only as a last word, and short
# words such as `pat` and `sig` only behind a separator.
_WORDS = (
    r"(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|passwords?|passwd|passphrase|credentials?|private[_-]?key"
    r"|access[_-]?key(?:[_-]?id)?|auth(?:orization)?|cookie|token|signature|webhook(?:[_-]?url)?"
    r"|connection[_-]?string"
    r"|(?:plugin|license|signing|encryption|account|master|service|storage|shared|client|ssh|gpg|hmac|deploy|webhook)"
    r"[_-]?key|(?<![A-Za-z0-9])(?:pwd|pat|jwt|sas|sig|dsn)|(?<=[_-])creds?|(?:db|pg|sql|smtp|user|root|admin)[_-]?pass)"
)
_SHELL_WORDS = r"(?:[A-Z0-9]_(?:PASS|KEY|LICENSE|PIN|AUTH|SALT))"
"""At the end of a name in capitals, as variables have."""
_SECRET_NAME = re.compile(rf"(?:(?i:{_WORDS})|(?<![a-z]){_SHELL_WORDS})$")
_NO_SECRET = re.compile(r"(?:^|_)(?:bos|eos|pad|unk|sep|cls|mask|stop|image|audio|video|boi|eoi)_token$", re.IGNORECASE)

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_BARE = r"[^\s,;&)\]}\"'<>]+"
_PLACEHOLDER = re.escape(API_KEY_PLACEHOLDER) + r"(?![A-Za-z0-9._~+/\-])"
_NOTHING = re.compile(rf"\.\.\.|None|null|True|False|true|false|\*\*\*|{_PLACEHOLDER}")
_COUNT = re.compile(r"\d{1,12}(?:\.\d+)?")
_NAME = r"(?<![A-Za-z0-9_.\-])(?P<name>[A-Za-z0-9_.\-]*"
_IS = r"[\"']?(?:\s*[=:]\s*|(?<=[\"'])\s*,\s*(?=[\"'])))"

# name=value, name: value, 'name': 'value', --name value, --name=value; the name ends in one of the words.
_ASSIGNMENT = re.compile(
    rf"(?P<head>{_NAME}{_WORDS}){_IS}"
    rf"(?P<scheme>(?:Bearer|Basic|Token)\s+)?(?P<value>{_QUOTED}|{_PLACEHOLDER}|{_BARE})",
    re.IGNORECASE,
)
# A shell's assignment: its value goes to the next blank.
_SHELL = re.compile(
    rf"(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>[A-Z][A-Z0-9_]*(?:(?i:{_WORDS})|{_SHELL_WORDS}))[\"']?\s*[=:]\s*)(?P<scheme>)"
    rf"(?P<value>{_QUOTED}|{_PLACEHOLDER}|[^\s\"'<>]+)"
)
_FLAG = re.compile(
    rf"(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>--[A-Za-z0-9\-_]*{_WORDS})[ \t]+)(?P<scheme>)"
    rf"(?P<value>{_QUOTED}|(?!--)[^\s]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=\-]{6,})", re.IGNORECASE)
# Headers whose value has parts: Cookie: a=b; c=d, Authorization: Digest username=...
_HEADER = re.compile(
    r"(?P<head>\b(?:set-)?cookie[\"']?:[ \t]*|\bauthorization[\"']?:[ \t]*[\"']?digest )(?!\*\*\*)[^\s\"'][^\r\n]*",
    re.IGNORECASE,
)
_USERINFO = re.compile(
    r"(?P<head>(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]*:(?:%2f|/){2})(?P<value>[^\s/?#]{1,1024}(?=@)|[^\s/:@]{0,256}:(?!\d+/)[^\s@]{1,256}(?=@))",
    re.IGNORECASE,
)
_CURL = re.compile(r"(?P<head>(?<!\S)(?:-u|--user|--proxy-user)[ =])[^\s:]+:\S+")

_SHORTEST_SHAPE = 16
_remembered: set[str] = set()


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a variable, field, header or flag of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.lstrip("-"))) and not _NO_SECRET.search(name)


def has_userinfo(text: str) -> bool:
    """Whether a URL in it has a user or a password, placeholders of both included."""
    return bool(_USERINFO.search(text))


def known_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment's secret variables, for ``scrub_secrets(..., known=...)``."""
    return tuple(value for name, value in env.items() if is_secret_name(name) and len(value) >= SHORTEST_KNOWN_SECRET)


def given_secrets(args: Sequence[str]) -> tuple[str, ...]:
    """The values of a command's secret flags: ``--hf-token X``, ``--hf-token=X``."""
    found: list[str] = []
    for argument, following in pairwise((*args, "")):
        name, equals, value = argument.partition("=")
        if name.startswith("-") and is_secret_name(name):
            found.append(value if equals else following)
    return tuple(value for value in found if value and not value.startswith("--") and not _NOTHING.fullmatch(value))


def remember(secrets: Iterable[str]) -> None:
    """This process has these: they leave it in no text, whatever stands around them."""
    _remembered.update(secret for secret in secrets if len(secret) >= SHORTEST_KNOWN_SECRET)


def scrub_secrets(value: T, *, known: Iterable[str] = ()) -> T:
    """The same value with ``***`` for every secret. Goes through strings, mappings, lists and tuples; keeps the rest.

    ``None``, booleans and empty strings stay under any name: that no key was set is a fact and no secret. So do numbers
    under names that end in ``token``: those are counts.
    """
    return cast("T", _scrub(value, _known(known)))


def without_known(text: str) -> str:
    """Without what this process knows to be a secret. For long texts whose pieces are scrubbed where they leave."""
    for secret in _known(()):
        text = text.replace(secret, REDACTED)
    return text


def _known(more: Iterable[str]) -> tuple[str, ...]:
    """Longest first: one may be a piece of another."""
    every = {*(secret for secret in more if len(secret) >= SHORTEST_KNOWN_SECRET), *_remembered}
    return tuple(sorted(every.union(known_secrets(os.environ)), key=len, reverse=True))


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
            scrubbed.append(item if _NOTHING.fullmatch(item) else REDACTED)
        else:
            scrubbed.append(_scrub(item, known))
        secret_follows = is_text and item.startswith("-") and "=" not in item and is_secret_name(item)
    return scrubbed


def _scrub_text(text: str, known: tuple[str, ...]) -> str:
    # A known one that is a word ("secret") may be a piece of the name that tells another one: it goes last.
    for secret in known:
        if not secret.isalpha():
            text = text.replace(secret, REDACTED)
    if len(text) < _SHORTEST_SHAPE and text.replace("_", "").isalnum():
        return REDACTED if text in known else text  # one of a report's many words: no name, no value
    text = _USERINFO.sub(rf"\g<head>{REDACTED}", text)
    text = _HEADER.sub(rf"\g<head>{REDACTED}", text)
    for pattern in (_SHELL, _ASSIGNMENT, _FLAG):
        text = pattern.sub(_hide_assigned, text)
    text = _BEARER.sub(rf"\g<head>{REDACTED}", text)
    text = _CURL.sub(rf"\g<head>{REDACTED}", text)
    text = SHAPES.sub(REDACTED, text)
    for secret in known:
        text = text.replace(secret, REDACTED)
    return text


def _hide_assigned(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    if _NOTHING.fullmatch(value) or not value.strip("\"'") or _NO_SECRET.search(name):
        return match[0]
    if name.lower().endswith("token") and _COUNT.fullmatch(value):  # "#token: 384" in a server's log
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['head']}{match['scheme'] or ''}{quote}{REDACTED}{quote}"
