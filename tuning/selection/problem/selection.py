"""The result of a solver, and the evaluation of a plan's cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Problem, Value


@dataclass(frozen=True)
class Assignment:
    """A plan: the choice of every layer, and of the layers inside the chosen childnets.

    Attributes:
        choices: layer name to its choice.
        childnets: layer name to the plan of its choice's childnet, where the choice has one.
    """

    choices: Mapping[str, Choice]
    childnets: Mapping[str, Assignment] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """A plan with its cost and a bound on the cost of all plans.

    Attributes:
        assignment: the plan.
        cost: by the problem's objective, in its unit (seconds or bytes).
        costs: the whole cost vector, adapts and childnets included.
        lower_bound: no plan costs less.
        optimal: whether no plan costs less than this one.
        solver: name of the solver in the registry.
        seconds: run time of the solver.
    """

    assignment: Assignment
    cost: float
    costs: Cost
    lower_bound: float
    optimal: bool
    solver: str
    seconds: float

    @property
    def choices(self) -> Mapping[str, Choice]:
        """Layer name to its choice."""
        return self.assignment.choices

    @property
    def childnets(self) -> Mapping[str, Assignment]:
        """Layer name to the plan of its choice's childnet."""
        return self.assignment.childnets


Selector = Callable[[Problem], Selection]
"""The type of every solver's ``select``, which raises InfeasibleError if no plan exists."""


def evaluate(problem: Problem, assignment: Assignment) -> Cost | None:
    """The cost of a plan; None if it needs a conversion that does not exist.

    A conversion of a value to one schema is paid for once, however many layers read it.

    Raises:
        ValueError: if the plan has no choice, or an unknown one, for a layer.
    """
    total = Cost()
    for node in problem.nodes:
        choice = assignment.choices.get(node.name)
        if choice is None or choice not in node.choices:
            raise ValueError(f"the plan has no valid choice for layer '{node.name}'")
        inside = _evaluate_childnet(choice, assignment.childnets.get(node.name), node.name)
        if inside is None:
            return None
        total = total + choice.cost + inside
    paid: dict[tuple[Value | Edge, Schema], Cost] = {}
    for edge in problem.edges:
        needed = assignment.choices[edge.consumer].inputs[edge.slot]
        adapt = problem.adapt(edge, assignment.choices[edge.producer].output, needed)
        if adapt is None:
            return None
        paid[edge.value or edge, needed] = adapt
    return sum(paid.values(), total)


def conclude(
    problem: Problem, assignment: Assignment, *, bound: float | None, solver: str, seconds: float
) -> Selection:
    """The selection of a feasible plan; ``bound`` is a lower bound, or None if the plan is proven optimal.

    Raises:
        ValueError: if the plan is not feasible.
    """
    costs = evaluate(problem, assignment)
    if costs is None:
        raise ValueError("the plan needs a conversion that does not exist")
    cost = costs.value(problem.objective)
    # A bound that was summed in another order may exceed the cost by rounding.
    lower_bound = cost if bound is None else min(bound, cost)
    return Selection(assignment, cost, costs, lower_bound, lower_bound == cost, solver, seconds)


def nothing_left(layer: str) -> InfeasibleError:
    """The error for a net in which no combination of choices up to ``layer`` is possible."""
    return InfeasibleError(
        f"layer '{layer}': no combination of choices is left in which every input can be converted to what "
        "the layer reads; allow it or its producers another routine, dtype or device"
    )


def _evaluate_childnet(choice: Choice, inside: Assignment | None, layer: str) -> Cost | None:
    if choice.childnet is None:
        return Cost()
    if inside is None:
        raise ValueError(f"the plan has no choices for the childnet of layer '{layer}'")
    return evaluate(choice.childnet, inside)
