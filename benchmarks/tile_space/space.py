"""The space that an audit draws from: routines whose parameters are numbers, also with vectors of other widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Routine, Variant, variant_of, variants_of
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.routines import FUSED_ROUTINES, ROUTINES

Listed = list[tuple[Routine, list[Parameters]]]
"""Routines, and parameter sets that each of them is known to accept."""


@dataclass(frozen=True)
class Space:
    """All variants of kernels of a task.

    Attributes:
        task: the layer.
        target: what code is for.
        widths: elements of a vector, and channels of a block, that are tried beside the CPU's own.
    """

    task: Task
    target: Target
    widths: tuple[int, ...] = ()

    def make(self, routine: Routine, parameters: Parameters) -> Variant | None:
        """A variant; None if the routine does not accept the parameters."""
        try:
            found = variant_of(routine, self.task, parameters, self.target)
        except (ValueError, ZeroDivisionError, IndexError):
            return None
        return found if isinstance(found, Variant) else None

    def maker(self, routine: Routine) -> Callable[[Parameters], Variant | None]:
        """``make`` for one routine."""
        return lambda parameters: self.make(routine, parameters)

    def kernels(self, variants: Sequence[Variant]) -> Listed:
        """Routines of the variants that are kernels with numbers as parameters, and the parameters of those variants.

        Raises:
            StopIteration: if a variant is of no known routine.
        """
        own: dict[str, list[Variant]] = {}
        for variant in filter(is_numbered, variants):
            own.setdefault(variant.routine, []).append(variant)
        return [
            (self._routine_of(first), [dict(each.parameters) for each in (first, *rest)])
            for first, *rest in own.values()
        ]

    def of_other_widths(self) -> Iterator[Variant]:
        """What the analytic model lists for routines with vectors of other widths than the CPU's."""
        for routine in self._of_other_widths():
            found = variants_of(routine, self.task, self.target)
            yield from (each for each in found if isinstance(each, Variant) and is_numbered(each))

    def _of_other_widths(self) -> Iterator[Routine]:
        for routine in ROUTINES:
            if isinstance(routine, ImageRoutine) and is_exact(routine):
                for lanes in self.widths:
                    yield replace(routine, name=f"{routine.name}_by_{lanes}", lanes=lanes)

    def _routine_of(self, variant: Variant) -> Routine:
        """The routine that makes a variant; others of its name have other element types."""
        every = (*ROUTINES, *FUSED_ROUTINES, *self._of_other_widths())
        named = (each for each in every if each.name == variant.routine)
        made = ((each, self.make(each, dict(variant.parameters))) for each in named)
        return next(routine for routine, found in made if found is not None and found.descriptor == variant.descriptor)


def is_exact(routine: ImageRoutine[object]) -> bool:
    """Whether a routine multiplies and stores numbers of the model's own types."""
    traits = routine.traits
    return (routine.storage, routine.output, traits.precision, traits.instruction, traits.weights) == (None,) * 5


def is_numbered(variant: Variant) -> bool:
    """Whether a variant is a kernel with parameters."""
    return variant.implementation.kernel is not None and bool(variant.parameters)


def width_of(variant: Variant) -> int | None:
    """The width that distinguishes a variant's routine; None for the CPU's own."""
    _, separator, lanes = variant.routine.rpartition("_by_")
    return int(lanes) if separator and lanes.isdecimal() else None
