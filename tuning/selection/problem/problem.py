"""The selection problem: one choice per layer, and the adapts between the choices.

A net is a DAG of layers. Every layer has choices (a routine with its parameters). A choice reads each input in one
schema and writes its output in one. If the schemas on an edge differ, the cost of an adapt is added (SoftNeuro,
sections III-C and IV-A; NeoCPU, section 3.3.2, where the schemas are layouts). Several edges may carry the same value:
a conversion of it to one schema is then made, and paid for, once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost, Objective

_FREE = Cost()


@dataclass(frozen=True)
class Choice:
    """One way to compute a layer.

    Attributes:
        name: unique among the choices of its layer.
        inputs: the schema in which each input slot is read.
        output: the schema that is written.
        cost: of the choice; with a ``childnet``, without the cost of the childnet's plan.
        childnet: the net of layers that the choice consists of (SoftNeuro, section III-D). Its source and sink
            layers must have only the schemas of ``inputs`` and ``output``.
        scratch: bytes that it needs only while it runs.
        shared: weights that other choices may also use, by name with their bytes, which are not part of ``cost``:
            a weight takes memory once, even if several selected choices use it.
    """

    name: str
    inputs: tuple[Schema, ...]
    output: Schema
    cost: Cost
    childnet: Problem | None = None
    scratch: float = 0.0
    shared: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Node:
    """A layer and its choices. Of equally good choices the earlier is preferred.

    Attributes:
        name: unique in the net.
        choices: ways to compute it.
        output_bytes: size of its output. Layouts permute elements without padding, so it does not depend on them.
        kept: whether the output lives all the time, as network inputs and outputs do.
        stored: sizes of the output in schemas with elements of another width.
    """

    name: str
    choices: tuple[Choice, ...]
    output_bytes: float = 0.0
    kept: bool = False
    stored: tuple[tuple[Schema, float], ...] = ()

    def bytes_in(self, schema: Schema) -> float:
        """Bytes of the output in a schema."""
        return self._sizes.get(schema, self.output_bytes)

    @cached_property
    def _sizes(self) -> Mapping[Schema, float]:
        return dict(self.stored)


@dataclass(frozen=True, order=True)
class Value:
    """Result number ``result`` of layer ``producer``."""

    producer: str
    result: int

    def __str__(self) -> str:
        return f"result {self.result} of '{self.producer}'"


@dataclass(frozen=True, order=True)
class Edge:
    """A result of layer ``producer`` is input ``slot`` of layer ``consumer``.

    ``result`` is the result's number; edges that carry the same result of a layer share its conversions. An edge
    without a number shares them with no other.
    """

    producer: str
    consumer: str
    slot: int
    result: int | None = None

    @property
    def value(self) -> Value | None:
        """What the edge carries; None if it shares conversions with no other edge."""
        return None if self.result is None else Value(self.producer, self.result)

    def __str__(self) -> str:
        return f"'{self.producer}' -> '{self.consumer}' input {self.slot}"


@dataclass(frozen=True, eq=False)
class Problem:
    """A net whose layers each need one choice.

    Network inputs and outputs are layers too, usually with one choice without cost.

    Attributes:
        nodes: the layers, in topological order.
        edges: one for every input slot of every layer; two may join the same pair of layers.
        adapts: cost of the conversion from the first schema to the second on an edge. Equal schemas cost
            nothing and are not listed. A missing pair is a conversion that does not exist. A conversion costs the same
            on all edges that carry the same value.
        objective: the part of the costs to minimise, the same in all childnets.

    Raises:
        ValueError: if the net is malformed; the message names the layer, the choice or the edge.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    adapts: Mapping[tuple[Edge, Schema, Schema], Cost]
    objective: Objective = Objective.LATENCY

    def __post_init__(self) -> None:
        names = {node.name: index for index, node in enumerate(self.nodes)}
        if len(names) < len(self.nodes):
            raise ValueError("two layers of the selection problem have the same name")
        for node in self.nodes:
            _check_node(node, self.objective)
        _check_edges(self, names)
        _check_adapts(self)

    def adapt(self, edge: Edge, produced: Schema, needed: Schema) -> Cost | None:
        """The cost of converting ``produced`` to ``needed`` on ``edge``; None if that is impossible."""
        return _FREE if produced == needed else self.adapts.get((edge, produced, needed))

    @cached_property
    def readers(self) -> Mapping[Value, tuple[Edge, ...]]:
        """The edges of each value that several edges carry, in the order of the edges."""
        readers_of_values: dict[Value, list[Edge]] = {}
        for edge in self.edges:
            if edge.value is not None:
                readers_of_values.setdefault(edge.value, []).append(edge)
        return {value: tuple(edges) for value, edges in readers_of_values.items() if len(edges) > 1}

    @cached_property
    def first_reader(self) -> Mapping[Value | Edge, int]:
        """The number of the first layer that may read each value, where conversions of it are counted in time.

        A later layer may be the first that reads it in the schema to which it is converted, and convert it there.
        """
        position = {node.name: index for index, node in enumerate(self.nodes)}
        first_readers: dict[Value | Edge, int] = {}
        for edge in self.edges:
            carried = edge.value or edge
            first_readers[carried] = min(first_readers.get(carried, len(position)), position[edge.consumer])
        return first_readers


def _check_node(node: Node, objective: Objective) -> None:
    if not node.choices:
        raise ValueError(f"layer '{node.name}' has no choices")
    for size in (node.output_bytes, *(stored_size for _, stored_size in node.stored)):
        if not _is_size(size):
            raise ValueError(f"layer '{node.name}' has an output of {size} bytes")
    if len({choice.name for choice in node.choices}) < len(node.choices):
        raise ValueError(f"layer '{node.name}' has two choices of the same name")
    for choice in node.choices:
        what = f"choice '{choice.name}' of layer '{node.name}'"
        if len(choice.inputs) != len(node.choices[0].inputs):
            raise ValueError(f"{what} has another number of inputs than choice '{node.choices[0].name}'")
        if not _is_finite(choice.cost):
            raise ValueError(f"{what} has no finite cost")
        if not _is_size(choice.scratch):
            raise ValueError(f"{what} needs {choice.scratch} bytes of scratch")
        if not all(_is_size(size) for _, size in choice.shared):
            raise ValueError(f"{what} uses a weight whose size is no number of bytes")
        if choice.childnet is not None and choice.childnet.objective is not objective:
            raise ValueError(f"{what} has a childnet with another objective than {objective}")


def _check_edges(problem: Problem, names: Mapping[str, int]) -> None:
    fed: set[tuple[str, int]] = set()
    for edge in problem.edges:
        for end in (edge.producer, edge.consumer):
            if end not in names:
                raise ValueError(f"edge {edge}: there is no layer '{end}'")
        if names[edge.producer] >= names[edge.consumer]:
            raise ValueError(f"edge {edge}: the layers are not in topological order")
        if not 0 <= edge.slot < len(problem.nodes[names[edge.consumer]].choices[0].inputs):
            raise ValueError(f"edge {edge}: the slot is out of range")
        if (edge.consumer, edge.slot) in fed:
            raise ValueError(f"edge {edge}: the slot is fed twice")
        fed.add((edge.consumer, edge.slot))
    for node in problem.nodes:
        for slot in range(len(node.choices[0].inputs)):
            if (node.name, slot) not in fed:
                raise ValueError(f"input {slot} of layer '{node.name}' is fed by no edge")


def _check_adapts(problem: Problem) -> None:
    edges = set(problem.edges)
    known: dict[tuple[Value, Schema, Schema], Cost] = {}
    for (edge, produced, needed), cost in problem.adapts.items():
        if edge not in edges:
            raise ValueError(f"adapt {produced} -> {needed}: there is no edge {edge}")
        if not _is_finite(cost):
            raise ValueError(f"adapt {produced} -> {needed} on edge {edge} has no finite cost")
        if edge.value is not None and known.setdefault((edge.value, produced, needed), cost) != cost:
            raise ValueError(f"adapt {produced} -> {needed} of {edge.value} has another cost on edge {edge}")


def _is_finite(cost: Cost) -> bool:
    return all(map(math.isfinite, (cost.latency, cost.cold, cost.memory, cost.error, cost.starting)))


def _is_size(size: float) -> bool:
    return math.isfinite(size) and size >= 0
