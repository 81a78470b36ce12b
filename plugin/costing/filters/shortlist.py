"""Drops candidates that are not worth measuring: most of the tuning time would go to variants that cannot win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Routine, Variant
from sartor.tuning.selection.problem.pin import Pin

_IMAGE_RANK = 4
# With fewer channels most lanes of a vector of channels are unused, and IREE's loops over pixels may be faster.
_FEWEST_CHANNELS = 8
_SLOWER = Rejected("code that IREE generates is slower than kernels that fill their vectors, which there are")


def shortlisted(candidates: Candidates, graph: LayerGraph, pins: Sequence[Pin]) -> Candidates:
    """For each task with kernels that fill their vectors, candidate 0 and its kernels; all candidates of other tasks.

    Most of IREE's lowerings are much slower than the kernels (docs/records/kernels.md). They are kept only if their
    routine's ``beside_kernels`` or a pin names them. What has kernels on one device keeps other lowerings on another.

    Args:
        candidates: of the network.
        graph: the network.
        pins: restrictions of layers.
    """
    tasks, pinned = graph.tasks(), _pinned_routines(graph, pins)
    first, filled = first_variants(candidates.variants), _tasks_with_kernels(tasks, candidates.variants)

    def judge(key: str, variant: Variant) -> Rejected | None:
        is_kept = (
            (key, variant.device) not in filled
            or (key, variant.descriptor) in first
            or variant.implementation.kernel is not None
            or tasks[key].kind in variant.traits.beside_kernels
            or any(fnmatchcase(variant.descriptor, glob) for glob in pinned.get(key, ()))
        )
        return None if is_kept else _SLOWER

    return candidates.judged(Filter.KERNELS, judge)


def best_guesses(candidates: Candidates, graph: LayerGraph, pins: Sequence[Pin], most: int) -> Candidates:
    """The first variants of each routine, which lists its best guess first; all variants of pinned layers.

    Args:
        candidates: of the network.
        graph: the network.
        pins: restrictions of layers.
        most: number of variants of a routine that are kept.
    """
    pinned, counts = _pinned_routines(graph, pins), Counter[tuple[str, str]]()

    def judge(key: str, variant: Variant) -> Rejected | None:
        routine = key, variant.descriptor.partition("{")[0]
        counts[routine] += 1
        if counts[routine] <= most or pinned.get(key):
            return None
        return Rejected(f"it is not among the {most} best guesses of its routine")

    return candidates.judged(Filter.GUESSES, judge)


def superfluous(task: Task, listed: Sequence[Variant], routine: Routine) -> Rejected | None:
    """Why ``shortlisted`` would drop all variants of a routine, given those that were ``listed``, without pins."""
    return _SLOWER if task.kind not in routine.traits.beside_kernels and _has_kernels(task, listed) else None


def _tasks_with_kernels(tasks: Mapping[str, Task], variants: Mapping[str, tuple[Variant, ...]]) -> set[tuple[str, str]]:
    """Keys of tasks with kernels that fill their vectors, each with the device that they are for."""
    return {
        (key, variant.device)
        for key, listed in variants.items()
        for variant in listed
        if _has_kernels(tasks[key], [variant])
    }


def first_variants(variants: Mapping[str, tuple[Variant, ...]]) -> set[tuple[str, str]]:
    """Keys of tasks with the descriptor of candidate 0 of each device."""
    first = {(key, variant.device): variant.descriptor for key in variants for variant in reversed(variants[key])}
    return {(key, descriptor) for (key, _), descriptor in first.items()}


def _has_kernels(task: Task, variants: Sequence[Variant]) -> bool:
    """Whether a task has kernels that fill their vectors."""
    kernels = any(variant.implementation.kernel is not None for variant in variants)
    return kernels and _channels(task) >= _FEWEST_CHANNELS


def _pinned_routines(graph: LayerGraph, pins: Sequence[Pin]) -> dict[str, tuple[str, ...]]:
    """Globs of the routines that pins name, by task key."""
    pinned: dict[str, tuple[str, ...]] = {}
    for layer in graph.all_layers():
        globs = (pin.routines for pin in pins if fnmatchcase(layer.name, pin.layers))
        pinned[layer.task.key] = (*pinned.get(layer.task.key, ()), *globs)
    return pinned


def _channels(task: Task) -> int:
    shape = task.results[0].shape
    is_image = len(shape) == _IMAGE_RANK and task.kind is not LayerKind.CONTRACTION
    return shape[1] if is_image else shape[-1] if shape else 1
