"""Limits on a plan's memory and error, and the amounts that a plan needs.

The memory of a plan is its packed weights, each counted once, plus the peak of its temporary memory. The layers run one
after another in the order of the problem's nodes. While a layer runs, temporary memory holds

- its own output, and every output that it or a later layer still reads;
- each converted copy of a value that it reads, or that an earlier and a later layer read, beside the original;
- the scratch of its choice, and the peak inside its childnet.

An output lives from the layer that writes it to the last that reads it, unless it is kept. This is the least that a
memory planner needs, without its rounding and fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.problem import Edge, Problem, Value
from sartor.tuning.selection.problem.selection import Assignment, evaluate


class Quantity(StrEnum):
    """A quantity to limit or minimise: seconds of a warm and of the first inference, bytes, squared error, or bytes of
    weights in a second form."""

    LATENCY = "latency"
    COLD = "cold"
    MEMORY = "memory"
    ERROR = "error"
    REPEATED = "repeated"


Amounts = Mapping[Quantity, float]
"""The needed or allowed amount of each quantity."""


@dataclass(frozen=True)
class Limits:
    """Limits on a plan; None is no limit.

    Attributes:
        memory: bytes of all packed weights and of the peak of the activations together.
        error: the largest sum of the squared errors of all choices and adapts.
        repeated: bytes of weights that are packed in a second form beside the first.

    Raises:
        ValueError: if a limit is negative or NaN.
    """

    memory: float | None = None
    error: float | None = None
    repeated: float | None = None

    def __post_init__(self) -> None:
        for quantity, bound in self.bounds.items():
            if not bound >= 0:
                raise ValueError(f"the limit of {quantity} is {bound}, not a number from 0 up")

    @property
    def bounds(self) -> dict[Quantity, float]:
        """The limits that are not None."""
        pairs = (
            (Quantity.MEMORY, self.memory),
            (Quantity.ERROR, self.error),
            (Quantity.REPEATED, self.repeated),
        )
        return {quantity: bound for quantity, bound in pairs if bound is not None}


UNLIMITED = Limits()
"""No limits."""


def measures(problem: Problem, plan: Assignment) -> Amounts:
    """The amount of every quantity that a feasible plan needs.

    Raises:
        ValueError: if the plan needs a conversion that does not exist, or lacks a choice.
    """
    costs = evaluate(problem, plan)
    if costs is None:
        raise ValueError("the plan needs a conversion that does not exist")
    return {
        Quantity.LATENCY: costs.latency,
        Quantity.COLD: costs.value(Objective.COLD),
        Quantity.MEMORY: costs.memory + shared_bytes(plan) + peak_bytes(problem, plan),
        Quantity.ERROR: costs.error,
        Quantity.REPEATED: costs.repeated,
    }


def within(needed: Amounts, bounds: Amounts) -> bool:
    """Whether no bound is exceeded."""
    return all(needed[quantity] <= bound for quantity, bound in bounds.items())


def shared_bytes(plan: Assignment) -> float:
    """Bytes of the weights that several choices may use, each counted once."""
    return sum(dict(_shared(plan)).values())


def _shared(plan: Assignment) -> Iterator[tuple[str, float]]:
    for choice in plan.choices.values():
        yield from choice.shared
    for inside in plan.childnets.values():
        yield from _shared(inside)


def lifetimes(problem: Problem) -> list[range]:
    """For each layer the layers, by number, that run while its output lives; they do not depend on the choices."""
    count = len(problem.nodes)
    position = {node.name: index for index, node in enumerate(problem.nodes)}
    last = list(range(count))
    for edge in problem.edges:
        last[position[edge.producer]] = max(last[position[edge.producer]], position[edge.consumer])
    return [range(count) if node.kept else range(index, last[index] + 1) for index, node in enumerate(problem.nodes)]


def held_bytes(problem: Problem, plan: Assignment | None = None) -> list[float]:
    """For each layer the bytes of the outputs that live while it runs, as a plan stores them.

    Without a plan all have their ``output_bytes``.
    """
    change = [0.0] * (len(problem.nodes) + 1)
    for node, alive in zip(problem.nodes, lifetimes(problem), strict=True):
        size = node.output_bytes if plan is None else node.bytes_in(plan.choices[node.name].output)
        change[alive.start] += size
        change[alive.stop] -= size
    return list(accumulate(change[:-1]))


def _copies(problem: Problem, plan: Assignment) -> list[float]:
    """For each layer the bytes of the converted copies that live while it runs, from their first to their last
    reader."""
    position = {node.name: index for index, node in enumerate(problem.nodes)}
    readers: dict[tuple[Value | Edge, Schema], list[Edge]] = {}
    for edge in problem.edges:
        needed = plan.choices[edge.consumer].inputs[edge.slot]
        if plan.choices[edge.producer].output != needed:
            readers.setdefault((edge.value or edge, needed), []).append(edge)
    change = [0.0] * (len(problem.nodes) + 1)
    for (_, needed), edges in readers.items():
        size = problem.nodes[position[edges[0].producer]].bytes_in(needed)
        change[min(position[edge.consumer] for edge in edges)] += size
        change[max(position[edge.consumer] for edge in edges) + 1] -= size
    return list(accumulate(change[:-1]))


def peak_bytes(problem: Problem, plan: Assignment) -> float:
    """The peak of the plan's temporary memory in bytes, without weights."""
    names = [node.name for node in problem.nodes]
    held, copies = held_bytes(problem, plan), _copies(problem, plan)
    live = {name: sum(sizes) for name, *sizes in zip(names, held, copies, strict=True)}
    for name, choice in plan.choices.items():
        live[name] += choice.scratch
        if choice.childnet is not None:
            live[name] += peak_bytes(choice.childnet, plan.childnets[name])
    return max(live.values(), default=0.0)
