"""Lists candidates: asks every routine about every task, and keeps the reasons of those that do not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Filter, Rejection
from sartor.codegen.ir.variants.routine import (
    Parameters,
    Rejected,
    Routine,
    Variant,
    choices_of,
    describe,
    variant_of,
)

Skip = Callable[[Task, Sequence[Variant], Routine], Rejected | None]
"""Why a routine need not be asked about a task, given the variants that were listed before; None if it is asked."""


def never(_: Task, __: Sequence[Variant], ___: Routine) -> None:
    """Skips no routine."""


Further = Callable[[Task, Sequence[Variant], Target], Sequence[Parameters]]
"""Parameters that a routine did not name, given its variants of a task."""


def nothing_further(_: Task, __: Sequence[Variant], ___: Target) -> Sequence[Parameters]:
    """No parameters."""
    return ()


Narrow = Callable[[Task, Routine, Sequence[Parameters], Target], Sequence[Parameters]]
"""Those of a routine's parameters for a task whose code is worth writing, if it is not needed to judge them."""


def all_of(_: Task, __: Routine, parameters: Sequence[Parameters], ___: Target) -> Sequence[Parameters]:
    """All parameters."""
    return parameters


def list_candidates(
    graph: LayerGraph,
    routines: Sequence[Routine],
    target: Target,
    fused: Sequence[Routine] = (),
    skip: Skip = never,
    further: Further = nothing_further,
    narrow: Narrow = all_of,
) -> Candidates:
    """Variants of every task of the graph.

    Args:
        graph: the network.
        routines: asked in this order.
        target: what code is for.
        fused: asked about fused tasks instead.
        skip: decides which routines are not asked.
        further: adds variants with other parameters to those that a routine names.
        narrow: leaves out parameters before code is written for them.
    """
    variants: dict[str, tuple[Variant, ...]] = {}
    ledger: list[Rejection] = []
    for key, task in graph.tasks().items():
        listing = _TaskListing(task, target, further, narrow)
        listed: list[Variant] = []
        for routine in fused if task.stages else routines:
            needless = skip(task, listed, routine)
            if needless is not None:
                ledger.append(Rejection(key, routine.name, needless.reason, Filter.KERNELS))
                continue
            for answer in listing.answers(routine, is_first=routine is routines[0]):
                if isinstance(answer, Variant):
                    listed.append(answer)
                else:
                    ledger.append(answer)
        variants[key], equal = _distinct(key, listed)
        ledger += equal
    return Candidates(variants, tuple(ledger))


@dataclass(frozen=True)
class _TaskListing:
    """Asks routines about one task; the attributes are as in ``list_candidates``."""

    task: Task
    target: Target
    further: Further
    narrow: Narrow

    def answers(self, routine: Routine, *, is_first: bool) -> Iterator[Variant | Rejection]:
        """A routine's variants, and why it has none or not more; candidate 0 computes whatever a layer may be."""
        unsuitable = None if is_first else _unsuitable(self.task)
        if unsuitable is not None:
            yield self._rejection(routine, unsuitable)
            return
        choices = choices_of(routine, self.task, self.target)
        if isinstance(choices, Rejected):
            yield self._rejection(routine, choices.reason)
            return
        narrowed = self.narrow(self.task, routine, choices, self.target)
        if len(narrowed) < len(choices):
            reason = f"{len(choices) - len(narrowed)} of its {len(choices)} variants are predicted to be slower"
            yield self._rejection(routine, reason, Filter.PREDICTION)
        own: list[Variant] = []
        for parameters in narrowed:
            answer = self._built(routine, parameters)
            own += [answer] if isinstance(answer, Variant) else []
            yield answer
        for parameters in self.further(self.task, own, self.target):
            yield self._built(routine, parameters)

    def _built(self, routine: Routine, parameters: Parameters) -> Variant | Rejection:
        built = variant_of(routine, self.task, parameters, self.target)
        if isinstance(built, Variant):
            return built
        descriptor = describe(routine, self.task, parameters, self.target)
        return Rejection(self.task.key, routine.name, built.reason, variant=descriptor)

    def _rejection(self, routine: Routine, reason: str, by: Filter = Filter.ROUTINE) -> Rejection:
        return Rejection(self.task.key, routine.name, reason, by)


def _unsuitable(task: Task) -> str | None:
    """Why no kernel computes a task: tiles and vectors would be empty, or hold float64."""
    tensors = (*task.inputs, *task.weights, *task.results)
    if any(not tensor.elements for tensor in tensors):
        return "a tensor of it has no elements"
    return "a tensor of it is of float64" if any(tensor.is_f64 for tensor in tensors) else None


def _distinct(key: str, variants: Sequence[Variant]) -> tuple[tuple[Variant, ...], list[Rejection]]:
    """The variants without those that emit the same code as an earlier one, and these."""
    first: dict[tuple[object, ...], Variant] = {}
    equal: list[Rejection] = []
    for variant in variants:
        code = variant.implementation
        identity = (code.body, code.inputs, code.output, code.packings, code.kernel)
        same = first.setdefault(identity, variant)
        if same is not variant:
            reason = f"its code is that of {same.descriptor}"
            equal.append(Rejection(key, variant.routine, reason, Filter.SAME_CODE, variant.descriptor))
    return tuple(first.values()), equal
