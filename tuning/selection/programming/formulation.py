"""Formulates a selection problem as a mixed-integer linear program.

It is the local polytope (Wainwright and Jordan, "Graphical models, exponential families, and variational inference",
2008, section 4.1) with two changes that make it smaller:

- A binary column x for every option of a layer; exactly one is 1. For every edge one column y for each pair of a
  schema that the producer writes and a schema that the consumer reads there, instead of one for each pair of
  options: the y of a written schema add up to the x that write it, those of a read schema to the x that read it.
  With x integral y is the product of the two, so y itself need not be. A conversion that does not exist has no y.
- A childnet's layers join the program, the x of each adding up to that of the choice that is made of them: limits
  couple them to all other layers, so they cannot be solved beforehand.

A conversion that several readers of a value may share has a column of its own, which is at least the y of each of them
and alone has a cost. If memory counts, there is a column for the peak of the activations, which is at least the live
bytes at every layer, and one for every shared weight, which is at least the column of each choice that uses it. A
converted copy lives where an earlier or this layer reads it, and this or a later one: for each reader there is a column
that is 1 if one up to it reads the copy, and one if one from it on does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.indexed import Floats
from sartor.tuning.selection.problem.limits import Quantity, held_bytes, lifetimes
from sartor.tuning.selection.problem.problem import Choice, Edge, Problem, Value
from sartor.tuning.selection.problem.selection import Assignment
from sartor.tuning.selection.problem.trade_offs import worth_keeping

_UNIT = float(2**20)
_FREE = Cost()

Term = tuple[int, float]
_Layer = TypeVar("_Layer")
_BySchema = dict[Schema, list[int]]
_Shared = dict[tuple[Value, Schema, Schema], int]
"""Columns of conversions that several edges share."""


class Row(NamedTuple):
    """``lower`` <= the sum of the terms' factors times their columns <= ``upper``."""

    terms: Sequence[Term]
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Net:
    """The columns of a net's layers in the program.

    Attributes:
        problem: the net.
        choices: for each layer the choices that are in the program.
        columns: for each layer the columns x of its choices.
        inside: the childnet of each column whose choice has one.
    """

    problem: Problem
    choices: tuple[tuple[Choice, ...], ...]
    columns: tuple[range, ...]
    inside: Mapping[int, Net]

    def plan(self, values: Sequence[float]) -> Assignment:
        """The plan with each layer's choice of the largest value."""
        choices: dict[str, Choice] = {}
        childnets: dict[str, Assignment] = {}
        for node, offered, columns in zip(self.problem.nodes, self.choices, self.columns, strict=True):
            taken = max(columns, key=lambda column: values[column])
            choices[node.name] = offered[taken - columns.start]
            if taken in self.inside:
                childnets[node.name] = self.inside[taken].plan(values)
        return Assignment(choices, childnets)

    def active(self, plan: Assignment) -> Iterator[int]:
        """The columns x that are 1 in ``plan``. In every other plan one of them is 0."""
        return (column for column, _ in self.chosen(plan))

    def chosen(self, plan: Assignment) -> Iterator[tuple[int, Choice]]:
        """The columns x that are 1 in ``plan``, each with its choice."""
        for node, offered, columns in zip(self.problem.nodes, self.choices, self.columns, strict=True):
            choice = plan.choices[node.name]
            column = columns[offered.index(choice)]
            yield column, choice
            if column in self.inside:
                yield from self.inside[column].chosen(plan.childnets[node.name])


class Program:
    """The program as a solver takes it; every column is at least 0.

    Attributes:
        binary: for each column whether its values are 0 and 1; the others are continuous.
        rows: the constraints.
        net: the columns of the layers.
        sizes: the bytes of activations and scratch that occur in the rows.
        places: for each column the number of the layer that its cost belongs to; conversions belong to the first layer
            that may read their value.
    """

    def __init__(self, problem: Problem, quantities: Collection[Quantity], keep: int = 1) -> None:
        """Build the program.

        Args:
            problem: the selection problem.
            quantities: those that will be minimised or bounded; choices that are no better in any of them are left out.
            keep: number of choices with equal schemas that must be as good before one is left out.
        """
        self.binary: list[bool] = []
        self.rows: list[Row] = []
        self.sizes: list[float] = []
        self._costs: list[Cost] = []
        self.places: list[int] = []
        self._place = 0
        self._quantities = tuple(quantities)
        self._keep = keep
        self._weights: dict[str, int] = {}
        self.net, self._peak = self._add_net(problem, None)

    def objective(self, objective: Objective) -> Floats:
        """The coefficient of each column in the objective."""
        return np.array([cost.value(objective) for cost in self._costs])

    def vector(self, quantity: Quantity) -> Floats:
        """The coefficient of each column in a quantity; memory includes the peak of the activations."""
        if quantity is Quantity.ERROR:
            return np.array([cost.error for cost in self._costs])
        if quantity is Quantity.REPEATED:
            return np.array([cost.repeated for cost in self._costs])
        vector = self.objective(Objective(quantity.value))
        if quantity is Quantity.MEMORY and self._peak is not None:
            vector[self._peak] = _UNIT
        return vector

    def _add_column(self, cost: Cost = _FREE, *, binary: bool = False) -> int:
        self._costs.append(cost)
        self.places.append(self._place)
        self.binary.append(binary)
        return len(self._costs) - 1

    def _add_net(self, problem: Problem, owner: int | None) -> tuple[Net, int | None]:
        """Add a net, whose columns are 0 unless the column ``owner`` is 1; returns it and the column of its peak."""
        live: list[list[Term]] = [[] for _ in problem.nodes]
        inside: dict[int, Net] = {}
        choices = tuple(worth_keeping(node.choices, self._quantities, self._keep) for node in problem.nodes)
        columns = tuple(self._add_layer(offered, owner) for offered in self._placed(choices, owner))
        for layer, (offered, own) in enumerate(self._placed(tuple(zip(choices, columns, strict=True)), owner)):
            for choice, column in zip(offered, own, strict=True):
                live[layer] += self._bytes(column, choice.scratch)
                self._add_weights(column, choice)
                if choice.childnet is not None:
                    inside[column], peak = self._add_net(choice.childnet, column)
                    live[layer] += [(peak, 1.0)] if peak is not None else []
        net = Net(problem, choices, columns, inside)
        self._add_stored(net, live)
        self._add_links(net, live, owner)
        return net, self._add_peak(problem, live, owner)

    def _add_stored(self, net: Net, live: list[list[Term]]) -> None:
        """Add what outputs take less or more in the schema of a choice, while they live."""
        layers = zip(net.problem.nodes, net.choices, net.columns, lifetimes(net.problem), strict=True)
        for node, offered, columns, alive in layers:
            for choice, column in zip(offered, columns, strict=True):
                terms = self._bytes(column, node.bytes_in(choice.output) - node.output_bytes)
                for layer in alive if terms else ():
                    live[layer] += terms

    def _add_layer(self, offered: Sequence[Choice], owner: int | None) -> range:
        """Add columns for the options of a layer, of which exactly one is 1."""
        columns = range(len(self._costs), len(self._costs) + len(offered))
        for choice in offered:
            self._add_column(choice.cost, binary=True)
        terms = [(column, 1.0) for column in columns]
        self.rows.append(Row(terms, 1, 1) if owner is None else Row([*terms, (owner, -1.0)], 0, 0))
        return columns

    def _add_weights(self, column: int, choice: Choice) -> None:
        """Add columns for shared weights, which are 1 if a choice that uses the weight is taken."""
        if Quantity.MEMORY in self._quantities:
            for name, size in choice.shared:
                if name not in self._weights:
                    self._weights[name] = self._add_column(Cost(memory=size))
                self.rows.append(Row([(self._weights[name], 1.0), (column, -1.0)], 0, np.inf))

    def _placed(self, layers: Sequence[_Layer], owner: int | None) -> Iterator[_Layer]:
        """What belongs to each layer, whose columns get its number; those of a childnet have its owner's."""
        for place, layer in enumerate(layers):
            self._place = place if owner is None else self._place
            yield layer

    def _add_links(self, net: Net, live: list[list[Term]], owner: int | None) -> None:
        """Add the adapts of all edges; their copies are live at the layers that read them."""
        position = {node.name: index for index, node in enumerate(net.problem.nodes)}
        written = [
            _by_schema((choice.output for choice in offered), columns)
            for offered, columns in zip(net.choices, net.columns, strict=True)
        ]
        copies: dict[tuple[Value | Edge, Schema], dict[int, list[int]]] = {}
        shared: _Shared = {}
        for edge in net.problem.edges:
            producer, consumer = position[edge.producer], position[edge.consumer]
            needed = (choice.inputs[edge.slot] for choice in net.choices[consumer])
            read = _by_schema(needed, net.columns[consumer])
            self._place = net.problem.first_reader[edge.value or edge] if owner is None else self._place
            for schema, column in self._add_link(net.problem, edge, written[producer], read, shared):
                copies.setdefault((edge.value or edge, schema), {}).setdefault(consumer, []).append(column)
        for (carried, copied), readers in copies.items():
            size = net.problem.nodes[position[carried.producer]].bytes_in(copied)
            if size and Quantity.MEMORY in self._quantities:
                self._add_copy(readers, size, live)

    def _add_copy(self, readers: Mapping[int, Sequence[int]], size: float, live: list[list[Term]]) -> None:
        """Add when a converted copy lives; ``readers`` are the columns of its adapts, by the layer that reads it."""
        layers = sorted(readers)
        if len(layers) == 1 and len(readers[layers[0]]) == 1:
            live[layers[0]] += self._bytes(readers[layers[0]][0], size)
            return
        until = self._add_steps([readers[layer] for layer in layers])
        since = self._add_steps([readers[layer] for layer in reversed(layers)])[::-1]
        for index, layer in enumerate(layers):
            live[layer] += self._bytes(self._add_both(until[index], since[index]), size)
            following = layers[index + 1] if index + 1 < len(layers) else layer
            if following > layer + 1:
                between = self._bytes(self._add_both(until[index], since[index + 1]), size)
                for other in range(layer + 1, following):
                    live[other] += between

    def _add_steps(self, columns: Sequence[Sequence[int]]) -> list[int]:
        """Add columns of which each is at least the one before, and each of the given columns in its own place."""
        steps: list[int] = []
        for own in columns:
            step = self._add_column()
            for other in (*own, *steps[-1:]):
                self.rows.append(Row([(step, 1.0), (other, -1.0)], 0, np.inf))
            steps.append(step)
        return steps

    def _add_both(self, one: int, other: int) -> int:
        """Add a column that is 1 where two columns are."""
        both = self._add_column()
        self.rows.append(Row([(both, 1.0), (one, -1.0), (other, -1.0)], -1, np.inf))
        return both

    def _add_link(
        self, problem: Problem, edge: Edge, written: _BySchema, read: _BySchema, shared: _Shared
    ) -> list[tuple[Schema, int]]:
        """Add the columns and rows of an edge; returns the columns of adapts with the schemas that they convert to."""
        joined: dict[tuple[Schema, Schema], int] = {}
        for produced in written:
            for needed in read:
                cost = problem.adapt(edge, produced, needed)
                if cost is not None:
                    own = self._pay_together(problem, edge, produced, needed, cost, shared)
                    joined[produced, needed] = self._add_column(cost) if own is None else own
        for side, ends in enumerate((written, read)):
            for schema, options in ends.items():
                pairs = [(column, 1.0) for pair, column in joined.items() if pair[side] == schema]
                self.rows.append(Row([*pairs, *((option, -1.0) for option in options)], 0, 0))
        return [(needed, column) for (produced, needed), column in joined.items() if produced != needed]

    def _pay_together(
        self, problem: Problem, edge: Edge, produced: Schema, needed: Schema, cost: Cost, shared: _Shared
    ) -> int | None:
        """Add a column y whose cost a column that edges share has; None if nothing is shared."""
        if cost == _FREE or edge.value is None or edge.value not in problem.readers:
            return None
        if (edge.value, produced, needed) not in shared:
            shared[edge.value, produced, needed] = self._add_column(cost)
        own = self._add_column()
        self.rows.append(Row([(shared[edge.value, produced, needed], 1.0), (own, -1.0)], 0, np.inf))
        return own

    def _add_peak(self, problem: Problem, live: Sequence[Sequence[Term]], owner: int | None) -> int | None:
        """Add a column that is at least the live bytes at every layer; None if nothing has a size."""
        held = held_bytes(problem)
        if Quantity.MEMORY not in self._quantities or not (any(held) or any(live)):
            return None
        self.sizes += (node.output_bytes for node in problem.nodes)
        peak = self._add_column()
        always = max((size for size, terms in zip(held, live, strict=True) if not terms), default=0.0)
        for size, terms in zip(held, live, strict=True):
            # Of layers without terms only the one with the most held bytes needs a row.
            if terms or size == always:
                self.rows.append(_at_least(peak, size, terms, owner))
        return peak

    def _bytes(self, column: int, size: float) -> list[Term]:
        if size == 0 or Quantity.MEMORY not in self._quantities:
            return []
        self.sizes.append(abs(size))
        return [(column, size / _UNIT)]


def _at_least(peak: int, size: float, terms: Sequence[Term], owner: int | None) -> Row:
    """The row by which the peak is at least ``size`` plus the terms, if the column ``owner`` is 1."""
    # A choice's scratch and its output may be two terms, and a solver takes one for each column.
    factors: dict[int, float] = {}
    for column, factor in terms:
        factors[column] = factors.get(column, 0.0) + factor
    taken = [(peak, 1.0), *((column, -factor) for column, factor in factors.items() if factor)]
    if owner is None:
        return Row(taken, size / _UNIT, np.inf)
    return Row([*taken, (owner, -size / _UNIT)], 0, np.inf)


def _by_schema(schemas: Iterable[Schema], columns: Iterable[int]) -> _BySchema:
    """The columns of options, by their schemas."""
    columns_by_schema: _BySchema = {}
    for schema, column in zip(schemas, columns, strict=True):
        columns_by_schema.setdefault(schema, []).append(column)
    return columns_by_schema
