"""Selects candidates that are worth measuring: most of the tuning time would go to variants that cannot win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.variants.routine import Routine, Variant
from sartor.tuning.selection.problem.pin import Pin

_IMAGE_RANK = 4
# With fewer channels most lanes of a vector of channels are unused, and IREE's loops over pixels may be faster.
_FEWEST_CHANNELS = 8


def shortlist(
    graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]], pins: Sequence[Pin]
) -> dict[str, tuple[Variant, ...]]:
    """For each task with kernels that fill their vectors, candidate 0 and its kernels; all candidates of other tasks.

    Most of IREE's lowerings are much slower than the kernels (docs/kernels.md). They are kept only if their routine's
    ``beside_kernels`` or a pin names them.

    Args:
        graph: the network.
        variants: candidates of each task.
        pins: restrictions of layers.
    """
    asked = _asked_for(graph, pins)
    return {key: tuple(_kept(task, variants[key], asked.get(key, ()))) for key, task in graph.tasks().items()}


def best_guesses(
    graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]], pins: Sequence[Pin], most: int
) -> dict[str, tuple[Variant, ...]]:
    """The first variants of each routine, which lists its best guess first; all variants of pinned layers.

    Args:
        graph: the network.
        variants: candidates of each task.
        pins: restrictions of layers.
        most: number of variants of a routine that are kept.
    """
    asked = _asked_for(graph, pins)
    return {key: listed if asked.get(key) else _first(listed, most) for key, listed in variants.items()}


def _first(variants: Sequence[Variant], most: int) -> tuple[Variant, ...]:
    """At most ``most`` variants of each routine."""
    seen: Counter[str] = Counter()
    kept: list[Variant] = []
    for each in variants:
        routine = each.descriptor.partition("{")[0]
        seen[routine] += 1
        if seen[routine] <= most:
            kept.append(each)
    return tuple(kept)


def is_superfluous(task: Task, found: Sequence[Variant], routine: Routine) -> bool:
    """Whether ``shortlist`` would remove all variants of a routine, given those that were ``found``, without pins."""
    return task.kind not in routine.traits.beside_kernels and _has_kernels(task, found)


def _has_kernels(task: Task, variants: Sequence[Variant]) -> bool:
    """Whether a task has kernels that fill their vectors."""
    kernels = any(each.implementation.kernel is not None for each in variants)
    return kernels and _channels(task) >= _FEWEST_CHANNELS


def _asked_for(graph: LayerGraph, pins: Sequence[Pin]) -> dict[str, tuple[str, ...]]:
    """Globs of the routines that pins name, by task key."""
    return {
        layer.task.key: tuple(pin.routines for pin in pins if fnmatchcase(layer.name, pin.layers))
        for layer in graph.all_layers()
    }


def _kept(task: Task, variants: Sequence[Variant], globs: Sequence[str]) -> Iterable[Variant]:
    if not _has_kernels(task, variants):
        return variants
    return [
        each
        for index, each in enumerate(variants)
        if index == 0
        or each.implementation.kernel
        or task.kind in each.traits.beside_kernels
        or any(fnmatchcase(each.descriptor, glob) for glob in globs)
    ]


def _channels(task: Task) -> int:
    shape = task.results[0].shape
    is_image = len(shape) == _IMAGE_RANK and task.kind is not LayerKind.CONTRACTION
    return shape[1] if is_image else shape[-1] if shape else 1
