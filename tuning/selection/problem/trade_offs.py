"""Which choices of a layer some plan may need, when one quantity is minimised and others are bounded."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.problem import Choice

_Vector = tuple[float, ...]


def worth_keeping(choices: Sequence[Choice], quantities: Sequence[Quantity], keep: int = 1) -> tuple[Choice, ...]:
    """The choices without those that have ``keep`` others of equal schemas which are as good in every quantity.

    Of equals the earlier is better. What is made of a childnet is always kept, and no reason to drop another; so is,
    where memory counts, what uses weights that others may use.
    """
    memory = Quantity.MEMORY in quantities
    alike: dict[tuple[tuple[Schema, ...], Schema], list[tuple[Choice, _Vector]]] = {}
    for choice in choices:
        alike.setdefault((choice.inputs, choice.output), []).append((choice, _vector(choice, quantities)))
    kept = {
        choice.name
        for group in alike.values()
        for position, (choice, vector) in enumerate(group)
        if _is_special(choice, memory) or _better(group, position, vector, memory) < keep
    }
    return tuple(choice for choice in choices if choice.name in kept)


def _is_special(choice: Choice, memory: bool) -> bool:
    """Whether more than the choice itself decides what it costs."""
    return choice.childnet is not None or (memory and bool(choice.shared))


def _better(group: Sequence[tuple[Choice, _Vector]], position: int, vector: _Vector, memory: bool) -> int:
    """How many of the group are as good as the one at ``position`` in everything, and better or earlier."""
    return sum(
        all(one <= own for one, own in zip(other, vector, strict=True)) and (other != vector or index < position)
        for index, (choice, other) in enumerate(group)
        if index != position and not _is_special(choice, memory)
    )


def _vector(choice: Choice, quantities: Sequence[Quantity]) -> _Vector:
    parts = {
        Quantity.LATENCY: (choice.cost.latency,),
        Quantity.COLD: (choice.cost.value(Objective.COLD),),
        Quantity.MEMORY: (choice.cost.memory, choice.scratch),
        Quantity.ERROR: (choice.cost.error,),
    }
    return tuple(part for quantity in quantities for part in parts[quantity])
