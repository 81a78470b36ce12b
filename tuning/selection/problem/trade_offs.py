"""Removes choices of a layer that no best plan needs when one quantity is minimised and others are limited."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.problem import Choice

_Vector = tuple[float, ...]


def worth_keeping(choices: Sequence[Choice], quantities: Sequence[Quantity], keep: int = 1) -> tuple[Choice, ...]:
    """The choices without those for which ``keep`` others with equal schemas are as good in every quantity.

    Of equal choices the earlier is better. Choices with a childnet are always kept and never replace another; so are
    choices with shared weights, if memory is one of the quantities.
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
    """Whether the cost of a choice depends on other choices or on its childnet."""
    return choice.childnet is not None or (memory and bool(choice.shared))


def _better(group: Sequence[tuple[Choice, _Vector]], position: int, vector: _Vector, memory: bool) -> int:
    """Number of choices in the group that are as good as that at ``position`` everywhere, and better or earlier."""
    return sum(
        all(one <= own for one, own in zip(other, vector, strict=True)) and (other != vector or index < position)
        for index, (choice, other) in enumerate(group)
        if index != position and not _is_special(choice, memory)
    )


def _vector(choice: Choice, quantities: Sequence[Quantity]) -> _Vector:
    parts = {
        Quantity.LATENCY: (choice.cost.latency,),
        # Apart, as the first inference may overlap reading and executing.
        Quantity.COLD: (choice.cost.latency, choice.cost.executing, choice.cost.cold),
        Quantity.MEMORY: (choice.cost.memory, choice.scratch),
        Quantity.ERROR: (choice.cost.error,),
        Quantity.REPEATED: (choice.cost.repeated,),
    }
    return tuple(part for quantity in quantities for part in parts[quantity])
