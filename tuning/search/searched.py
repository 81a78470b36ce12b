"""Tasks whose variants are searched, what is known of them, and what measuring costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sartor.codegen.analysis.task_bounds import weight_bytes
from sartor.codegen.ir.variants.traits import DescribedVariant, FormatClass

Picks = Mapping[str, tuple[str, ...]]
"""Descriptors of the variants to measure, by task key."""

Times = Mapping[str, Mapping[str, float | None]]
"""Seconds of measured variants, by task key and descriptor; None for those that failed."""

# Bytes of weights that are packed and copied to the device, for a variant and those timed beside it, in the time
# in which a short kernel is compiled.
_PACKED_BYTES = 20e6


@dataclass(frozen=True)
class Searched:
    """A task for which variants are searched.

    Attributes:
        key: of the task.
        facts: as ``task_facts`` writes them.
        variants: candidate 0 first.
        count: number of the network's layers with this task.
    """

    key: str
    facts: str
    variants: tuple[DescribedVariant, ...]
    count: int


def working_times(known: Times, task: Searched) -> Iterator[tuple[DescribedVariant, float]]:
    """Measured variants of a task that work, with their seconds, in the order of ``known``."""
    variants = {variant.descriptor: variant for variant in task.variants}
    for name, seconds in known.get(task.key, {}).items():
        if seconds is not None:
            yield variants[name], seconds


def best_time(known: Times, task: Searched, format_class: FormatClass | None = None) -> float | None:
    """Seconds of the fastest measured variant of a task, of one format class or of all; None if none works."""
    times = [seconds for variant, seconds in working_times(known, task) if format_class in (None, variant.format_class)]
    return min(times, default=None)


def cost_of(variant: DescribedVariant, facts: str) -> float:
    """The cost of compiling a variant of a task with these facts, as a multiple of one short kernel's."""
    return variant.traits.compile_cost + weight_bytes(facts) / _PACKED_BYTES
