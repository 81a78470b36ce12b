"""First inferences that ``sartor bench --cold --json`` wrote, read for pictures and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import UsageError
from sartor.first_inference.layer_phases import LayerPhases
from sartor.first_inference.sample import FirstRun
from sartor.first_inference.timeline import COLOURS
from sartor.runtime.files.json_fields import FieldError, Fields, listed, named, number, record, text, whole
from sartor.runtime.files.regular_files import read_json

_MOST_BYTES = 64 << 20
# Of milliseconds and bytes: sums of them are drawn.
_MOST = 1e15


@dataclass(frozen=True)
class ColdRecord:
    """First inferences that were timed.

    Attributes:
        runs: the typical ones, by runtime and state of the files.
        layers: what each layer takes, in the order of execution; empty if it is not known.
    """

    runs: Mapping[tuple[str, str], FirstRun]
    layers: tuple[LayerPhases, ...]


def read_cold(path: Path) -> ColdRecord:
    """What ``sartor bench --cold --json`` wrote.

    Raises:
        UsageError: if it cannot be read, or is something else.
    """
    try:
        content = read_json(path, _MOST_BYTES)
        fields = Fields(content)
        runs = dict(fields.take("cold", listed(_sample)))
        return ColdRecord(runs, fields.take("phases", _layers, ()))
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}") from None
    except FieldError as error:
        where = f"at '{error.where}', " if error.where else ""
        raise UsageError(f"'{path}' is not what 'sartor bench --cold --json' writes: {where}{error}") from None
    except ValueError as error:
        raise UsageError(f"'{path}' is not what 'sartor bench --cold --json' writes: {error}") from None


def _sample(content: object, where: str) -> tuple[tuple[str, str], FirstRun]:
    fields = Fields(content, where)
    return (fields.take("runtime", text), fields.take("files", text)), _run(fields.take("typical", record))


def _run(content: Mapping[str, Any]) -> FirstRun:
    fields = Fields(content, "typical")
    start, imports, load = (fields.take(name, _finite) for name in ("start", "imports", "load"))
    return FirstRun(start, imports, load, fields.take("runs", listed(_finite)), fields.take("steps", listed(_step), ()))


def _step(content: object, where: str) -> tuple[str, float, float, int]:
    kind, begin, end, size = listed(lambda value, _: value)(content, where)
    if not isinstance(kind, str) or kind not in COLOURS:
        raise ValueError(f"'{kind}' is nothing that is drawn")
    return kind, _finite(begin, where), _finite(end, where), int(_finite(size, where))


def _finite(content: object, where: str) -> float:
    try:
        parsed = float(number(content, where))
    except OverflowError:
        parsed = math.inf
    if not abs(parsed) <= _MOST:
        raise FieldError(where, f"a number of at most {_MOST:g} was expected")
    return parsed


def _layers(content: object, where: str) -> tuple[LayerPhases, ...]:
    return () if content is None else Fields(content, where).take("layers", listed(_layer))


def _layer(content: object, where: str) -> LayerPhases:
    fields = Fields(content, where)
    name, size, read = (
        fields.take("layer", text),
        fields.take("weight_bytes", whole),
        fields.take("read_ms", named(_seconds)),
    )
    return LayerPhases(name, size, read, fields.take("first_ms", _seconds), fields.take("later_ms", _seconds))


def _seconds(content: object, where: str) -> float:
    return _finite(content, where) / 1e3
