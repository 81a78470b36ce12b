"""A selection problem as arrays over indices, with solved childnets and without dominated choices.

Solvers work on this form: output schemas and options of a layer are numbered, and every edge is a dense table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value
from sartor.tuning.selection.problem.selection import Assignment, Selection

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Solve = Callable[[Problem], Sequence[Selection]]


@dataclass(frozen=True)
class Option:
    """A choice, with one plan of its childnet if it has one; ``value`` is its cost by the objective."""

    choice: Choice
    childnet: Selection | None
    value: float


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's options in choice order.

    Attributes:
        name: the layer's name.
        options: of those that read and write the same schemas at most the k cheapest.
        outputs: the schemas that the options write, in order of first use.
        output_of: for each option the index of its output schema.
        values: for each option its value.
        slack: upper bound of the gain by a better plan of a childnet, if its plan is not proven optimal.
    """

    name: str
    options: tuple[Option, ...]
    outputs: tuple[Schema, ...]
    output_of: NDArray[np.intp]
    values: Floats
    slack: float


@dataclass(frozen=True, eq=False)
class Link:
    """An edge.

    Attributes:
        producer: index of the layer that writes.
        consumer: index of the layer that reads.
        costs: ``costs[output of producer, option of consumer]`` is the cost of the adapt, infinite if there is none.
        needed: for each option of the consumer a number of the schema that it reads here, the same on all links.
        sharing: indices of the earlier links that carry the same value and so share its conversions.
        readers: number of links that carry the value.
    """

    producer: int
    consumer: int
    costs: Floats
    needed: NDArray[np.intp]
    sharing: tuple[int, ...] = ()
    readers: int = 1


@dataclass(frozen=True, eq=False)
class IndexedProblem:
    """Layers in topological order, and the links between them."""

    problem: Problem
    layers: tuple[Layer, ...]
    links: tuple[Link, ...]

    @cached_property
    def inbound(self) -> tuple[tuple[Link, ...], ...]:
        """For each layer the links into it."""
        into: list[list[Link]] = [[] for _ in self.layers]
        for link in self.links:
            into[link.consumer].append(link)
        return tuple(tuple(links) for links in into)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer the distinct layers it reads, ascending."""
        return tuple(tuple(sorted({link.producer for link in links})) for links in self.inbound)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer the distinct layers that read it, ascending."""
        readers: list[list[int]] = [[] for _ in self.layers]
        for consumer, producers in enumerate(self.producers):
            for producer in producers:
                readers[producer].append(consumer)
        return tuple(tuple(consumers) for consumers in readers)

    @property
    def slack(self) -> float:
        """Upper bound of the gain by better plans of childnets."""
        return sum(layer.slack for layer in self.layers)

    def value(self, picks: Sequence[int]) -> float:
        """The value of taking option ``picks[i]`` at layer i; infinite if an adapt is missing."""
        total = sum(float(layer.values[pick]) for layer, pick in zip(self.layers, picks, strict=True))
        for link in self.links:
            needed, pick = link.needed[picks[link.consumer]], picks[link.consumer]
            own = float(link.costs[self.layers[link.producer].output_of[picks[link.producer]], pick])
            if math.isinf(own) or all(other.needed[picks[other.consumer]] != needed for other in self.sharing(link)):
                total += own
        return total

    @cached_property
    def values(self) -> Mapping[int, Sequence[int]]:
        """The links of each value that several carry, by the index of the first of them."""
        indices_of_values: dict[int, list[int]] = {}
        for index, link in enumerate(self.links):
            if link.readers > 1:
                indices_of_values.setdefault(link.sharing[0] if link.sharing else index, []).append(index)
        return indices_of_values

    def sharing(self, link: Link) -> Iterator[Link]:
        """The earlier links that carry the same value."""
        return (self.links[index] for index in link.sharing)

    def adapt_costs(self, link: Link, picks: Sequence[int]) -> Floats:
        """The cost of an adapt for each option of the consumer, if the layers before it take the options ``picks``.

        A conversion that an earlier reader of the value needs too costs nothing.
        """
        costs: Floats = link.costs[self.layers[link.producer].output_of[picks[link.producer]]]
        for other in self.sharing(link):
            same = other.consumer == link.consumer
            paid = other.needed == link.needed if same else link.needed == other.needed[picks[other.consumer]]
            costs = np.where(paid & np.isfinite(costs), 0.0, costs)
        return costs

    def assignment(self, picks: Sequence[int]) -> Assignment:
        """The plan that takes option ``picks[i]`` at layer i."""
        taken = {layer.name: layer.options[pick] for layer, pick in zip(self.layers, picks, strict=True)}
        return Assignment(
            {name: option.choice for name, option in taken.items()},
            {name: option.childnet.assignment for name, option in taken.items() if option.childnet},
        )


def index_problem(problem: Problem, solve: Solve, keep: int = 1) -> IndexedProblem:
    """Convert ``problem``. Its childnets are solved by ``solve`` before, innermost first.

    ``keep`` is the number of options to keep among those with equal schemas. With k these include all options of the k
    best plans.

    Raises:
        InfeasibleError: if all choices of a layer have childnets without a plan.
    """
    solve_once = cache(solve)
    layers = tuple(_index_layer(node, problem, solve_once, keep) for node in problem.nodes)
    index = {layer.name: position for position, layer in enumerate(layers)}
    links = tuple(_index_edges(problem, layers, index))
    return IndexedProblem(problem, layers, links)


def _index_layer(node: Node, problem: Problem, solve: Solve, keep: int) -> Layer:
    indexed: list[Option] = []
    slack = 0.0
    failure: InfeasibleError | None = None
    for choice in node.choices:
        try:
            options, unproven = _options(choice, problem, solve)
        except InfeasibleError as error:
            failure = error
            continue
        indexed += options
        slack = max(slack, unproven)
    if not indexed:
        raise InfeasibleError(f"layer '{node.name}': none of its childnets has a plan; {failure}") from failure
    kept = tuple(_undominated(indexed, keep))
    outputs = {
        schema: position for position, schema in enumerate(dict.fromkeys(option.choice.output for option in kept))
    }
    output_of = np.array([outputs[option.choice.output] for option in kept], dtype=np.intp)
    values = np.array([option.value for option in kept], dtype=np.float64)
    return Layer(node.name, kept, tuple(outputs), output_of, values, slack)


def _options(choice: Choice, problem: Problem, solve: Solve) -> tuple[list[Option], float]:
    """The options of one choice, and an upper bound of the distance from its childnet's optimum."""
    value = choice.cost.value(problem.objective)
    if choice.childnet is None:
        return [Option(choice, None, value)], 0.0
    plans = solve(choice.childnet)
    unproven = plans[0].cost - plans[0].lower_bound
    return [Option(choice, plan, value + plan.cost) for plan in plans], unproven


def _undominated(options: Sequence[Option], keep: int) -> Iterator[Option]:
    alike: dict[tuple[tuple[Schema, ...], Schema], list[int]] = {}
    for position, option in enumerate(options):
        alike.setdefault((option.choice.inputs, option.choice.output), []).append(position)
    kept = [
        position
        for positions in alike.values()
        for position in sorted(positions, key=lambda position: options[position].value)[:keep]
    ]
    return (options[position] for position in sorted(kept))


def _index_edges(problem: Problem, layers: Sequence[Layer], index: Mapping[str, int]) -> Iterator[Link]:
    tables = {
        edge: _EdgeTable(edge.slot, layers[index[edge.producer]], layers[index[edge.consumer]])
        for edge in problem.edges
    }
    last: Edge | None = None
    # One pass over the adapts: looking up every pair of schemas on every edge would mostly hash edges.
    for (edge, produced, needed), cost in problem.adapts.items():
        if edge is not last:
            last, table = edge, tables[edge]
        row, column = table.rows.get(produced), table.columns.get(needed)
        if row is not None and column is not None:
            table.values[row][column] = cost.value(problem.objective)
    numbers: dict[Schema, int] = {}
    carried: dict[Value, list[int]] = {}
    for position, (edge, table) in enumerate(tables.items()):
        read = np.array([numbers.setdefault(schema, len(numbers)) for schema in table.columns], dtype=np.intp)
        earlier = carried.setdefault(edge.value, []) if edge.value is not None else []
        yield Link(
            index[edge.producer],
            index[edge.consumer],
            table.costs(),
            read[table.needed],
            tuple(earlier),
            len(problem.readers.get(edge.value, (edge,))) if edge.value is not None else 1,
        )
        earlier.append(position)


class _EdgeTable:
    """The costs of the adapts on an edge, infinite until they are set.

    Attributes:
        rows: the producer's outputs.
        columns: the schemas that the consumer's options read.
        needed: the column of what each of the consumer's options reads.
        values: costs by row and column.
    """

    def __init__(self, slot: int, producer: Layer, consumer: Layer) -> None:
        self.rows = {schema: row for row, schema in enumerate(producer.outputs)}
        self.columns: dict[Schema, int] = {}
        read = (option.choice.inputs[slot] for option in consumer.options)
        self.needed = [self.columns.setdefault(schema, len(self.columns)) for schema in read]
        self.values = [[math.inf] * len(self.columns) for _ in self.rows]

    def costs(self) -> Floats:
        """Costs by the producer's outputs and the consumer's options; 0 for equal schemas."""
        for schema, row in self.rows.items():
            if schema in self.columns:
                self.values[row][self.columns[schema]] = 0.0
        return np.array(self.values, dtype=np.float64)[:, self.needed]
