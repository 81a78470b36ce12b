"""Lower bounds of the time of a task, from the line of facts about it."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.codegen.analysis.task_facts import read_facts

SIZES = (
    *("batch", "rows", "columns", "channels", "depth", "taps", "kernel_height", "kernel_width"),
    *("operations", "read", "weights", "written"),
)
"""Numbers of a task that are extents or amounts."""

_OTHERS = ("stride", "operands")
# Sixteen f32 in a vector of 64 bytes, two vectors multiplied and added in a cycle.
_OPERATIONS_PER_CYCLE = 4 * 16
_BYTES_PER_CYCLE = 8
HERTZ = 3e9
"""Cycles in a second."""


def kind_and_sizes(facts: str) -> tuple[str, Mapping[str, int]]:
    """Kind and numbers of a task.

    Raises:
        ValueError: if ``facts`` cannot be read, or a number is missing.
    """
    kind, numbers = read_facts(facts)
    missing = {*SIZES, *_OTHERS} - numbers.keys()
    if missing:
        raise ValueError(f"'{facts}' lacks {sorted(missing)[0]}")
    return kind, numbers


def ideal_seconds(facts: str) -> float:
    """About the least time that a task can take: that of its operations or of its bytes, whichever is longer.

    Raises:
        ValueError: if ``facts`` cannot be read.
    """
    return ideal_cycles(kind_and_sizes(facts)[1]) / HERTZ


def weight_bytes(facts: str) -> int:
    """Bytes of a task's weights.

    Raises:
        ValueError: if ``facts`` cannot be read.
    """
    return kind_and_sizes(facts)[1]["weights"]


def ideal_cycles(sizes: Mapping[str, int]) -> float:
    """The bound of ``ideal_seconds`` in cycles, from the numbers of a task."""
    moved = sizes["read"] + sizes["weights"] + sizes["written"]
    return max(sizes["operations"] / _OPERATIONS_PER_CYCLE, moved / _BYTES_PER_CYCLE, 1.0)
