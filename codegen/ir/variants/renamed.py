"""Routines that were renamed: plans and databases from before have their old names, and are read with the new ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from string import Formatter

RENAMED: Mapping[str, str] = {
    "block_panel_dots": "block_dots",
    "columns_of_panels": "columns_of_{vectors}",
}
"""New names by old ones; parameters that are in braces are part of the new name, and parameters no longer."""


def renamed(descriptor: str) -> str:
    """A variant's descriptor with the name that its routine has now; one that is no descriptor stays as it is."""
    operation, routine, given = _parts(descriptor)
    template = RENAMED.get(routine)
    if template is None:
        return descriptor
    inside = {name for _, name, _, _ in Formatter().parse(template) if name}
    if not inside <= given.keys():
        return descriptor
    kept = {name: value for name, value in given.items() if name not in inside}
    return _written(operation, template.format_map(given), kept)


def former_names(descriptor: str) -> list[str]:
    """The descriptors that a variant had before, of which ``renamed`` gives this one."""
    operation, routine, given = _parts(descriptor)
    matches = ((old, pattern.fullmatch(routine)) for old, pattern in _patterns())
    return [_written(operation, old, given | match.groupdict()) for old, match in matches if match is not None]


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Old names, and what matches the names that their templates give, with a group for each parameter."""
    return [(old, re.compile("".join(map(_pattern, Formatter().parse(template))))) for old, template in RENAMED.items()]


def _pattern(part: tuple[str, str | None, str | None, str | None]) -> str:
    text, name, _, _ = part
    return re.escape(text) + (f"(?P<{name}>[^.{{}}=,]+)" if name else "")


def _parts(descriptor: str) -> tuple[str, str, dict[str, str]]:
    """What is before the name of the routine, this name, and the parameters."""
    head, brace, listed = descriptor.removesuffix("}").partition("{")
    operation, dot, routine = head.rpartition(".")
    pairs = [pair.partition("=") for pair in listed.split(",")] if brace else []
    return operation + dot, routine, {name: value for name, _, value in pairs}


def _written(operation: str, routine: str, parameters: Mapping[str, str]) -> str:
    listed = ",".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    return f"{operation}{routine}" + (f"{{{listed}}}" if listed else "")
