"""Routines that were renamed: plans and databases from before have their old names, and are read with the new ones."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

RENAMED: Mapping[str, str] = {
    "block_panel_dots": "block_dots",
    "columns_of_panels": "columns_of_{vectors}",
}
"""New names by old ones; parameters that are in braces are part of the new name, and parameters no longer."""


def renamed(descriptor: str) -> str:
    """A variant's descriptor with the name that its routine has now; one that is no descriptor stays as it is."""
    head, brace, listed = descriptor.removesuffix("}").partition("{")
    operation, dot, routine = head.rpartition(".")
    template = RENAMED.get(routine)
    if template is None:
        return descriptor
    pairs = [pair.partition("=") for pair in listed.split(",")] if brace else []
    given = {name: value for name, _, value in pairs}
    inside = {name for _, name, _, _ in Formatter().parse(template) if name}
    if not inside <= given.keys():
        return descriptor
    kept = ",".join(f"{name}={value}" for name, value in given.items() if name not in inside)
    return f"{operation}{dot}{template.format_map(given)}" + (f"{{{kept}}}" if kept else "")
