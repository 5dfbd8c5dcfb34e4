"""Model values as JSON-plain data and back, for files and for xdist's wire. Strict: a wrong type names its path."""

from __future__ import annotations

from array import array
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses, enums, tuples and arrays as dicts, strings and lists."""
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_array_to_list)


def from_plain(kind: type[T], data: Any) -> T:
    """The inverse of ``to_plain``.

    :raises ValueError: names the path of the first wrong value: ``Expected `int`, got `str` - at `$.index```.
    """
    import msgspec

    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _array_to_list(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a model value")
