"""An API key that gets nowhere by accident: not into a text, a traceback, JSON or a pickle."""

from __future__ import annotations

import hmac
import secrets
from typing import Any, NoReturn

from pytest_moeperf.outgoing.secrets import REDACTED, remember


class ApiKey:
    """``reveal()`` gives it to what sends it. ``told`` knows it from now on."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        remember((value,))

    @classmethod
    def drawn(cls) -> ApiKey:
        """A new one. Hexadecimal: none begins with a dash, which an argument parser takes for an option."""
        return cls(secrets.token_hex(24))

    def reveal(self) -> str:
        """A text like any other, but for its repr."""
        return _Revealed(self._value)

    def __repr__(self) -> str:
        return REDACTED

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return REDACTED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __deepcopy__(self, _memo: dict[int, Any]) -> ApiKey:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is not pickled")


class _Revealed(str):
    """Tracebacks show the repr of arguments and locals."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{REDACTED}'"
