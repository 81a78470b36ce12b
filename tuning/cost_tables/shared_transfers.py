"""Transfers that several layers share in the selection problem.

A tensor goes to another device once, as it is produced, and is converted there for each of its readers. So a value that
several layers may read in different schemas of another device gets a node of its own behind its producer: the choices
are the devices to which the value goes, at the cost of these transfers, and the readers pay for conversions alone.
Plans of the problem then cost what they do as they are run, and solvers need no notion of transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from sartor.codegen.ir.schema import Schema
from sartor.tuning.cost_tables.fused_choices import is_inside
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value

Moved = Callable[[Value, Schema, str], float]
"""Seconds in which a value that is produced in a schema goes to a device; every adapt to that device includes them."""
_Adapts = Mapping[tuple[Edge, Schema, Schema], Cost]

_SEVERAL = 2


def with_shared_transfers(problem: Problem, moved: Moved) -> Problem:
    """The problem in which a value goes to each device once, whatever reads it there.

    Memory must not count: the nodes of transfers have no size.
    """
    nodes = {node.name: node for node in problem.nodes}
    behind: dict[str, list[Node]] = {}
    edges: dict[Edge, tuple[Edge, ...]] = {}
    adapts = dict(problem.adapts)
    for value, carried in problem.readers.items():
        wanted = [_read(nodes[edge.consumer], edge) for edge in carried]
        ways = _ways([choice.output for choice in nodes[value.producer].choices], wanted)
        if ways:
            sender = Node(f"transfers of {value}", tuple(_choice(value, way, moved) for way in ways))
            behind.setdefault(value.producer, []).append(sender)
            own = {edge: replace(edge, producer=sender.name, result=0) for edge in carried}
            edges |= {edge: (fresh,) for edge, fresh in own.items()}
            edges[carried[0]] = (Edge(value.producer, sender.name, 0, value.result), own[carried[0]])
            for edge, needed in zip(carried, wanted, strict=True):
                adapts.update(_conversions(problem, edge, own[edge], ways, needed, moved))
    given = [part for edge in problem.edges for part in edges.get(edge, (edge,))]
    known = set(given)
    return replace(
        problem,
        nodes=tuple(part for node in problem.nodes for part in (node, *behind.get(node.name, ()))),
        edges=tuple(given),
        adapts={key: cost for key, cost in adapts.items() if key[0] in known},
    )


@dataclass(frozen=True)
class _Way:
    """The schema in which a value is produced, and the other devices to which it goes."""

    produced: Schema
    devices: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        """The schema that stands for it: that in which the value is produced, unless it goes somewhere."""
        if not self.devices:
            return self.produced
        return replace(self.produced, layout=f"{self.produced.layout} at {'+'.join(self.devices)}")


def _read(consumer: Node, edge: Edge) -> list[Schema]:
    return list(dict.fromkeys(choice.inputs[edge.slot] for choice in consumer.choices))


def _ways(produced: Sequence[Schema], wanted: Sequence[Collection[Schema]]) -> list[_Way]:
    """All ways to send a value to the devices of its readers, if a transfer can serve several in different schemas.

    A value within a fused kernel stays.
    """
    written = list(dict.fromkeys(produced))
    crossing = [schema for schema in written if not is_inside(schema)]
    read = sorted({schema.device for schema in chain.from_iterable(wanted)})
    if not any(_is_shared(device, crossing, wanted) for device in read):
        return []
    return [way for schema in written for way in _ways_of(schema, read if schema in crossing else ())]


def _is_shared(device: str, crossing: Collection[Schema], wanted: Sequence[Collection[Schema]]) -> bool:
    there = [own for schemas in wanted if (own := {schema for schema in schemas if schema.device == device})]
    comes = any(schema.device != device for schema in crossing)
    return comes and len(there) >= _SEVERAL and len(set[Schema]().union(*there)) >= _SEVERAL


def _ways_of(schema: Schema, read: Collection[str]) -> Iterator[_Way]:
    others = [device for device in read if device != schema.device]
    for count in range(len(others) + 1):
        yield from (_Way(schema, taken) for taken in combinations(others, count))


def _choice(value: Value, way: _Way, moved: Moved) -> Choice:
    seconds = sum(moved(value, way.produced, device) for device in way.devices)
    return Choice(f"{way.schema}", (way.produced,), way.schema, Cost(latency=seconds))


def _conversions(
    problem: Problem, edge: Edge, own: Edge, ways: Sequence[_Way], needed: Sequence[Schema], moved: Moved
) -> Iterator[tuple[tuple[Edge, Schema, Schema], Cost]]:
    """The adapts of a reader behind the node of transfers, from each way in which the value is there."""
    assert edge.value is not None
    for way in ways:
        for target in needed:
            cost = problem.adapt(edge, way.produced, target)
            if cost is None or way.schema == target or target.device not in (way.produced.device, *way.devices):
                continue
            crossed = moved(edge.value, way.produced, target.device) if target.device in way.devices else 0.0
            yield (own, way.schema, target), replace(cost, latency=max(cost.latency - crossed, 0.0))
