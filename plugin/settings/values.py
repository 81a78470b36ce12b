"""Checks the values of a configuration's fields: values of the field's type, or texts if these say more than a number.

Type hints are not checked at run time. A wrong value would cause an error much later, after minutes of tuning. So every
field is checked by one of these functions, which name the field in errors.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import SupportsIndex, TypeVar

from sartor.errors import UsageError
from sartor.settings.quantities import read_size

SAMPLE_SUFFIXES = (".npz", ".npy")
"""Of the files in a folder those whose names end so hold samples."""
_BYTES = re.compile("[0-9]{1,18}")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)%|0")
_Value = TypeVar("_Value")
_Choice = TypeVar("_Choice", bound=StrEnum)


def refusal(name: str, value: object, expected: str) -> UsageError:
    """The error for a field with a value that it cannot have."""
    return UsageError(f"{name} is {value!r}, expected {expected}")


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """An integer within bounds, numpy's integers included.

    Raises:
        UsageError: if it is not; the message names the field and its valid values.
    """
    expected = f"an integer of {least} or more" if most is None else f"an integer from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise refusal(name, value, expected)
    integer = operator.index(value)
    if integer < least or (most is not None and integer > most):
        raise refusal(name, value, expected)
    return integer


def number(name: str, value: object, expected: str, accepts: Callable[[float], bool]) -> float:
    """A number for which ``accepts`` returns True.

    Raises:
        UsageError: if it is not; the message names the field and its valid values.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise refusal(name, value, expected)
    try:
        real = float(value)
    except OverflowError:
        raise refusal(name, value, expected) from None
    if math.isnan(real) or not accepts(real):
        raise refusal(name, value, expected)
    return real


def fraction(name: str, value: object, expected: str) -> float:
    """A number from 0 to 1, or a text that is a percentage such as ``3%``, or ``0``.

    Raises:
        UsageError: if it is not; the message names the field and its valid values.
    """
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        if match is None or float(match[1] or 0) > 100:
            raise refusal(name, value, "a percentage up to 100% such as 3%, or 0")
        return float(match[1] or 0) / 100
    return number(name, value, expected, lambda given: 0 <= given <= 1)


def choice(name: str, value: object, choices: type[_Choice]) -> _Choice:
    """A member of an enumeration, or its text.

    Raises:
        UsageError: if it is not; the message names the field and the choices.
    """
    for option in choices:
        if value is option or (isinstance(value, str) and value == option.value):
            return option
    raise refusal(name, value, f"one of {', '.join(choices)}")


def byte_count(name: str, value: object) -> int:
    """A number of bytes, or a text such as ``256MiB``; without a unit it is in bytes, as messages and JSON say it.

    Raises:
        UsageError: if it is not; the message names the field.
    """
    if isinstance(value, str):
        return int(value) if _BYTES.fullmatch(value) else read_size(name, value)
    if isinstance(value, int) and value < 0:
        raise UsageError(f"{name} is {value} bytes, expected 0 or more")
    return whole_number(name, value, 0)


def path(name: str, value: object) -> Path:
    """A path, or its text.

    Raises:
        UsageError: if it is not, is empty, which would be the current folder, or contains NUL, which no file's name
            does; the message names the field.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise refusal(name, value, "a path")
    return Path(text)


def parsed(name: str, value: object, kind: type[_Value], parse: Callable[[str], _Value], expected: str) -> _Value:
    """A value of a class, or a text that is parsed to one.

    Raises:
        UsageError: if it is not; the message names the field.
    """
    if isinstance(value, str):
        try:
            return parse(value)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None
    if not isinstance(value, kind):
        raise refusal(name, value, expected)
    return value


def several(name: str, value: object, expected: str) -> tuple[object, ...]:
    """The items of any collection except a text, whose items would be its letters.

    Raises:
        UsageError: if it is not; the message names the field.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refusal(name, value, expected)
    return tuple(value)


def input_values(name: str, value: object) -> dict[str, tuple[bool | int | float, ...]]:
    """Input name to the values of its elements: a number, several, or a text such as ``16000`` or ``1,2``.

    Raises:
        UsageError: if a value is not a finite number; the message names the field and the input.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(name, value, "a mapping of input names to values, for example {'sr': 16000}")
    return {key: _elements(f"{name}[{key!r}]", given) for key, given in value.items()}


def _elements(name: str, value: object) -> tuple[bool | int | float, ...]:
    expected = "finite numbers, or true and false"
    if isinstance(value, str):
        return tuple(_read_element(name, part.strip(), expected) for part in value.split(","))
    single = isinstance(value, (bool, numbers.Real, SupportsIndex)) and not isinstance(value, Iterable)
    elements = tuple(
        _element(name, item, expected) for item in ((value,) if single else several(name, value, expected))
    )
    if not elements:
        raise refusal(name, value, "one value or more")
    return elements


def _read_element(name: str, text: str, expected: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return _element(name, read(text), expected)
        except ValueError:
            continue
    raise refusal(name, text, expected)


def _element(name: str, value: object, expected: str) -> bool | int | float:
    """A number as Python's own; numpy's booleans and numbers have ``item``."""
    own = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if not isinstance(own, (bool, int, float)) or (isinstance(own, float) and not math.isfinite(own)):
        raise refusal(name, value, expected)
    return own


def input_shapes(name: str, value: object) -> dict[str, tuple[int, ...]]:
    """Input name to shape.

    Raises:
        UsageError: if a shape is not valid; the message names the field and the input.
    """
    expected = "a mapping of input names to shapes, for example {'data': (1, 3, 224, 224)}"
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(name, value, expected)
    return {
        key: tuple(whole_number(f"{name}[{key!r}]", size, 0) for size in several(f"{name}[{key!r}]", shape, "sizes"))
        for key, shape in value.items()
    }
