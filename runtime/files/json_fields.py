"""Reading records from JSON data that may be anything: each field is checked, and errors say which one is wrong.

Sessions read manifests by this, as a library that does the same takes several times longer to load than a small model
to run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Read = Callable[[object, str], T]
"""Checks a value that JSON gave; the text says where it is, for example ``inputs.0.shape``."""

_MISSING: Any = object()


class FieldError(ValueError):
    """A value is not what was expected; ``where`` is the path to it, empty for the whole content."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


class Fields:
    """The fields of one record. Each is taken once; ``end`` refuses others.

    Raises:
        FieldError: if the content is not an object.
    """

    def __init__(self, content: object, where: str = "") -> None:
        self._content = dict(record(content, where))
        self._where = where

    def take(self, name: str, read: Read[T], default: T = _MISSING) -> T:
        """The value of a field.

        Raises:
            FieldError: if it is missing and has no default, or is not what ``read`` expects.
        """
        value = self._content.pop(name, _MISSING)
        if value is not _MISSING:
            return read(value, below(self._where, name))
        if default is _MISSING:
            raise FieldError(below(self._where, name), "it is missing")
        return default

    def end(self) -> None:
        """Make sure that all fields were taken.

        Raises:
            FieldError: if one was not.
        """
        if self._content:
            raise FieldError(below(self._where, next(iter(self._content))), "there is no such field")


def below(where: str, name: str | int) -> str:
    """The path of something inside what ``where`` leads to."""
    return f"{where}.{name}" if where else str(name)


def text(value: object, where: str) -> str:
    """A string."""
    return _of_type(value, str, where, "a string")


def whole(value: object, where: str) -> int:
    """An integer, which is no truth value."""
    if isinstance(value, bool):
        raise FieldError(where, "an integer was expected")
    return _of_type(value, int, where, "an integer")


def truth(value: object, where: str) -> bool:
    """A truth value."""
    return _of_type(value, bool, where, "a truth value")


def number(value: object, where: str) -> bool | int | float:
    """A number or truth value."""
    if not isinstance(value, bool | int | float):
        raise FieldError(where, "a number was expected")
    return value


def record(value: object, where: str) -> dict[str, Any]:
    """An object, whose fields are not checked."""
    return _of_type(value, dict, where, "an object")


def optional(read: Read[T]) -> Read[T | None]:
    """Null, or what ``read`` expects."""
    return lambda value, where: None if value is None else read(value, where)


def listed(read: Read[T]) -> Read[tuple[T, ...]]:
    """A list of what ``read`` expects."""

    def read_all(value: object, where: str) -> tuple[T, ...]:
        items = _of_type(value, list, where, "a list")
        return tuple(read(item, below(where, index)) for index, item in enumerate(items))

    return read_all


def named(read: Read[T]) -> Read[dict[str, T]]:
    """An object, of whose fields ``read`` expects each."""

    def read_all(value: object, where: str) -> dict[str, T]:
        items: Mapping[str, object] = record(value, where)
        return {name: read(item, below(where, name)) for name, item in items.items()}

    return read_all


def checked(read: Read[T], check: Callable[[T], object]) -> Read[T]:
    """What ``read`` expects, if ``check`` raises no ``ValueError``."""

    def read_and_check(value: object, where: str) -> T:
        read_value = read(value, where)
        try:
            check(read_value)
        except ValueError as error:
            raise FieldError(where, str(error)) from None
        return read_value

    return read_and_check


def _of_type(value: object, kind: type[T], where: str, expected: str) -> T:
    if not isinstance(value, kind):
        raise FieldError(where, f"{expected} was expected")
    return value
