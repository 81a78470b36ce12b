"""Childnets in the selection problem.

A childnet is one choice of its layer for each way in which its own choices can read the layer's activations and write
its result. Its cost is that of the best plan of the net between just these schemas: conversions of what comes in and
goes out are on the layer's own edges. So each plan of the nested problem is one of the network with the children in
their layer's place, at the same cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from sartor.codegen.ir.graph import Childnet
from sartor.codegen.ir.schema import Schema
from sartor.tuning.errors.error_sum import squared_error
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem


def childnet_choices(childnet: Childnet, problem: Problem, inputs: Sequence[str], output: str) -> Iterator[Choice]:
    """The choices that a childnet offers for its layer, one per pair of schemas at its ends.

    Args:
        childnet: the net.
        problem: the selection problem of the childnet alone.
        inputs: nodes of the problem that are the layer's activations.
        output: the node that is the layer's result.
    """
    nodes = {node.name: node for node in problem.nodes}
    read = [_schemas(_read(problem, nodes, name)) for name in inputs]
    (last,) = (edge for edge in problem.edges if edge.consumer == output)
    written = _schemas(choice.output for choice in nodes[last.producer].choices)
    for *before, after in itertools.product(*read, written):
        name = f"{childnet.descriptor} {', '.join(map(str, before))} -> {after}"
        fixed = {input_: _outside(schema, 0) for input_, schema in zip(inputs, before, strict=True)}
        net = _between(problem, fixed | {output: _outside(after, 1)}, last.producer)
        yield Choice(name, tuple(before), after, Cost(error=squared_error(childnet.error)), net)


def asked_for(childnets: Sequence[Childnet], layer: str, globs: Sequence[str]) -> tuple[Sequence[Childnet], bool]:
    """The childnets of a layer that pins allow, and whether one of them must be chosen.

    A pin that restricts a child, but not its layer with the same glob, requires that the layer is split into children.
    """
    inside = [glob for glob in globs if not fnmatchcase(layer, glob)]
    asked = [
        net
        for net in childnets
        if any(fnmatchcase(child.name, glob) for child in net.graph.all_layers() for glob in inside)
    ]
    return (asked, True) if asked else (childnets, False)


def names_childnet(choice: str, childnet: Childnet) -> bool:
    """Whether a choice of this name is the childnet between some schemas."""
    return choice.startswith(f"{childnet.descriptor} ")


def _between(problem: Problem, fixed: dict[str, Choice], last: str) -> Problem:
    """The problem of the childnet with fixed schemas at its ends; conversions there belong to the layer's edges."""

    def bounded(node: Node) -> Node:
        if node.name in fixed:
            return Node(node.name, (fixed[node.name],))
        return replace(node, output_bytes=0.0, kept=False, stored=()) if node.name == last else node

    adapts = {
        key: cost
        for key, cost in problem.adapts.items()
        if key[0].producer not in fixed and key[0].consumer not in fixed
    }
    return replace(problem, nodes=tuple(map(bounded, problem.nodes)), adapts=adapts)


def _read(problem: Problem, nodes: dict[str, Node], producer: str) -> Iterator[Schema]:
    """Schemas in which readers may take a value."""
    for edge in problem.edges:
        if edge.producer == producer:
            yield from _wanted(nodes, edge)


def _wanted(nodes: dict[str, Node], edge: Edge) -> Iterator[Schema]:
    return (choice.inputs[edge.slot] for choice in nodes[edge.consumer].choices)


def _schemas(schemas: Iterable[Schema]) -> list[Schema]:
    """Each once, in order of their first use."""
    return list(dict.fromkeys(schemas))


def _outside(schema: Schema, slots: int) -> Choice:
    return Choice("outside", (schema,) * slots, schema, Cost())
