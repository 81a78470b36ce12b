"""Lower bounds of the time of a task, from the line of facts about it, which is read here without the compiler."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.rejection import RejectionError

Numbers = dict[str, int]

SIZES = (
    *("batch", "rows", "columns", "channels", "depth", "taps", "kernel_height", "kernel_width"),
    *("operations", "read", "weights", "written"),
)
"""Numbers of a task that are extents or amounts."""

_OTHERS = ("stride", "operands")


def read_facts(text: str) -> tuple[str, Numbers]:
    """Kind and numbers of a line that ``task_facts`` wrote.

    Raises:
        RejectionError: if the line has another form.
    """
    kind, *pairs = text.split(" ")
    numbers = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise RejectionError(f"'{pair}' is not a fact about a task")
        numbers[name] = int(value)
    return kind, numbers


# A task's line is read again for each of its variants, and for each of a network's hundreds that a model learns from.
@functools.lru_cache(maxsize=4096)
def kind_and_sizes(facts: str) -> tuple[str, Mapping[str, int]]:
    """Kind and numbers of a task.

    Raises:
        RejectionError: if ``facts`` cannot be read, or a number is missing.
    """
    kind, numbers = read_facts(facts)
    missing = {*SIZES, *_OTHERS} - numbers.keys()
    if missing:
        raise RejectionError(f"'{facts}' lacks {sorted(missing)[0]}")
    return kind, MappingProxyType(numbers)


def ideal_seconds(facts: str, core: Core = WIDE) -> float:
    """About the least time that a task can take on a core: that of its operations or of its bytes, whichever is longer.

    Raises:
        RejectionError: if ``facts`` cannot be read.
    """
    return ideal_cycles(kind_and_sizes(facts)[1], core) / core.hertz


def weight_bytes(facts: str) -> int:
    """Bytes of a task's weights.

    Raises:
        RejectionError: if ``facts`` cannot be read.
    """
    return kind_and_sizes(facts)[1]["weights"]


def ideal_cycles(sizes: Mapping[str, int], core: Core = WIDE) -> float:
    """The bound of ``ideal_seconds`` in cycles, from the numbers of a task."""
    return max(sizes["operations"] / core.operations_per_cycle, moving_cycles(sizes, core), 1.0)


def moving_cycles(sizes: Mapping[str, int], core: Core = WIDE) -> float:
    """Cycles to read a task's activations and weights, and to write its results, once each."""
    return (sizes["read"] + sizes["weights"] + sizes["written"]) / core.bytes_per_cycle
