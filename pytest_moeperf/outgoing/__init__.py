"""What leaves: everything that is shown or written passes ``told`` last."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from pytest_moeperf.outgoing.printable import printable, printable_line
from pytest_moeperf.outgoing.secrets import known_secrets, scrub_secrets

__all__ = ["known_secrets", "printable", "printable_data", "printable_line", "scrub_secrets", "told"]

T = TypeVar("T")


def told(value: T, *, known: Iterable[str] = ()) -> T:
    """A text, or data with texts in it, fit to be shown to anybody: ``printable`` lines without secrets."""
    # Control characters first: they may stand in a key.
    return scrub_secrets(printable_data(value), known=known)


def printable_data(value: T) -> T:
    """Data with ``printable`` texts."""
    if isinstance(value, str):
        return cast("T", printable(value))
    if isinstance(value, Mapping):
        cleaned: Any = {printable_data(key): printable_data(item) for key, item in value.items()}
        return cast("T", cleaned)
    if isinstance(value, list):
        return cast("T", [printable_data(item) for item in value])
    if isinstance(value, tuple):
        return cast("T", tuple(printable_data(item) for item in value))
    return value
