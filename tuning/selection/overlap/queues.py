"""How long a first inference takes that reads and executes at the same time.

One thread reads the weights of the layers in order, another executes them in order: a layer is executed once its
weights were read and the layer before was executed. That is a flow shop of two machines whose order is given (Johnson,
"Optimal two- and three-stage production schedules", 1954). It ends after

    max over k of (seconds of reading layers 1 to k) + (seconds of executing layers k to n),

so never before the longer of the two queues (NNV12, section 3.3), nor after their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Edge, Problem, Value
from sartor.tuning.selection.problem.selection import Assignment, evaluate


@dataclass(frozen=True)
class Queues:
    """Seconds of each layer in the order of execution.

    Attributes:
        reading: its weights.
        executing: it for the first time, and the conversions before it.
    """

    reading: tuple[float, ...]
    executing: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """When the last layer is done, if reading and executing overlap."""
        read = done = 0.0
        for reading, executing in zip(self.reading, self.executing, strict=True):
            read += reading
            done = max(done, read) + executing
        return done

    @property
    def least(self) -> float:
        """The longer queue."""
        return max(sum(self.reading), sum(self.executing))

    @property
    def most(self) -> float:
        """Both queues one after the other, as on one core."""
        return sum(self.reading) + sum(self.executing)


def queues_of(problem: Problem, plan: Assignment) -> Queues:
    """The queues of a feasible plan.

    Raises:
        ValueError: if the plan needs a conversion that does not exist, or lacks a choice.
    """
    if evaluate(problem, plan) is None:
        raise ValueError("the plan needs a conversion that does not exist")
    costs = [_of_layer(problem, plan, node.name) for node in problem.nodes]
    for place, cost in _conversions(problem, plan):
        costs[place] = costs[place] + cost
    return Queues(tuple(cost.cold for cost in costs), tuple(cost.executing for cost in costs))


def _of_layer(problem: Problem, plan: Assignment, name: str) -> Cost:
    """The cost of a layer, with that of its childnet's plan."""
    choice = plan.choices[name]
    if choice.childnet is None:
        return choice.cost
    return choice.cost + (evaluate(choice.childnet, plan.childnets[name]) or Cost())


def _conversions(problem: Problem, plan: Assignment) -> Iterator[tuple[int, Cost]]:
    """The layer at which each conversion is counted, and its cost; each is made once."""
    made: set[tuple[Value | Edge, Schema]] = set()
    for edge in problem.edges:
        carried, needed = edge.value or edge, plan.choices[edge.consumer].inputs[edge.slot]
        cost = problem.adapt(edge, plan.choices[edge.producer].output, needed)
        if cost is not None and (carried, needed) not in made:
            made.add((carried, needed))
            yield problem.first_reader[carried], cost
