"""Forgets declared shapes that hold for one value of an input only, which other inputs of the samples would contradict.

An exporter may declare the shape of a ``ReduceSum`` whose axes are an input of the model: that which the axes of its
example gave. IREE compiles such a model to the declared shape, whatever axes are given later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto

from sartor.onnx_model.graphs.walk import drop_named, graphs, names_read, subgraphs
from sartor.onnx_model.preparing.shape_inputs import OF_SHAPES, is_small, sizing_operands

# The numbers of ways on which each small input decides a value.
_Sources = Mapping[str, int]
# Where operands of these depend on one input in two ways, a shape may be the same for all its values: that of a window
# from ``start`` to ``start + 8`` is.
_MAY_CANCEL = frozenset({"Pad", "Range", "Slice"})


def forget_decided(model: ModelProto) -> tuple[str, ...]:
    """Remove the declared shapes of values whose shapes small inputs decide, in place; returns the values' names.

    What then has no static shape is bounded, or refused with the input that decides it.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in constants and is_small(value))
    sources: dict[str, _Sources] = {value.name: {value.name: 1} for value in inputs}
    decided: set[str] = set()
    if sources:
        _follow(model.graph, sources, decided)
    return tuple(sorted(set(_forget(model, decided)))) if decided else ()


def _follow(graph: GraphProto, sources: dict[str, _Sources], decided: set[str]) -> None:
    """Add the values of a graph, whose nodes are sorted, that depend on inputs, and those whose shapes do."""
    for node in graph.node:
        for body in subgraphs(node) if node.attribute else ():
            _follow(body, sources, decided)
        read = names_read(node)
        returned = {value.name for body in subgraphs(node) for value in body.output} if node.attribute else set()
        if not decided.isdisjoint(read | returned):
            decided.update(filter(None, node.output))
        elif _is_decided(node, sources):
            # Values that a loop carries have the same shape after each of its steps.
            carried = len(node.input) - 2 if node.op_type == "Loop" else 0
            decided.update(filter(None, node.output[carried:]))
        sources_of_all = _joined(read | returned, sources) if node.op_type not in OF_SHAPES else {}
        if sources_of_all:
            sources.update(dict.fromkeys(filter(None, node.output), sources_of_all))


def _is_decided(node: NodeProto, sources: Mapping[str, _Sources]) -> bool:
    decided = _joined({name for _, name in sizing_operands(node)}, sources)
    return bool(decided) and (node.op_type not in _MAY_CANCEL or max(decided.values()) == 1)


def _joined(names: set[str], sources: Mapping[str, _Sources]) -> _Sources:
    """On how many ways inputs decide any of some values; two stand for more."""
    total: Counter[str] = Counter()
    for name in names & sources.keys():
        total.update(sources[name])
    return {name: min(count, 2) for name, count in total.items()}


def _forget(model: ModelProto, decided: set[str]) -> Iterator[str]:
    """Remove the declared shapes of values; yields the names of those that had one."""
    for graph in graphs(model):
        yield from (value.name for value in graph.value_info if value.name in decided)
        drop_named(graph.value_info, decided.__contains__)
        # Writing to the type of a sequence would make it a tensor.
        outputs = (value for value in graph.output if value.name in decided and value.type.HasField("tensor_type"))
        for value in outputs:
            if value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.ClearField("shape")
                yield value.name
