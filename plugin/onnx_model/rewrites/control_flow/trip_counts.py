"""Conditions of loops: whether they decide, and how many steps are taken where a loop's own counters do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import names_read, subgraphs

_MOST_STEPS = 4096
# Counters and their limits are numbers; a condition on a large constant decides by data.
_MOST_ELEMENTS = 64


def counted_steps(node: NodeProto, body: GraphProto, editor: GraphEditor, version: int, most: int | None) -> int | None:
    """How often a Loop's body runs if constants and the loop's own counters alone decide that; None if others do.

    Args:
        node: the loop, whose first condition is true.
        body: what it runs.
        editor: of the graph around it.
        version: of the standard operators.
        most: the trip count; None if the loop has none.
    """
    counters = _counters(node, body, editor)
    if counters is None:
        return None
    try:
        return _simulated(counters, body, version, most)
    except EVALUATOR_ERRORS:
        return None


@dataclass(frozen=True)
class _Counters:
    """What a body's condition is computed from.

    Attributes:
        nodes: of the body, in its order.
        constants: by the names that the nodes read.
        initial: first values of the states that the condition depends on, by the body's names.
        results: names of the next values of these states.
    """

    nodes: list[NodeProto]
    constants: Mapping[str, Array]
    initial: Mapping[str, Array]
    results: list[str]


def _counters(node: NodeProto, body: GraphProto, editor: GraphEditor) -> _Counters | None:
    states = [value.name for value in body.input[2:]]
    before = dict(zip(states, node.input[2:], strict=False))
    after = dict(zip(states, (value.name for value in body.output[1:]), strict=False))
    producers = {name: item for item in body.node for name in item.output if name}
    kept = {tensor.name: tensor for tensor in body.initializer}
    seen = {value.name for value in body.input[:2]}
    needed, constants, initial = set[str](), dict[str, Array](), dict[str, Array]()
    pending = [body.output[0].name]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        producer = producers.get(name)
        if producer is not None:
            if producer.domain or any(True for _ in subgraphs(producer)):
                return None
            needed.update(producer.output)
            pending.extend(names_read(producer))
            continue
        values = to_array(kept[name]) if name in kept else editor.constant(before.get(name, name))
        if values is None or values.size > _MOST_ELEMENTS:
            return None
        (initial if name in before else constants)[name] = values
        pending.extend([after[name]] if name in before else [])
    nodes = [item for item in body.node if not needed.isdisjoint(item.output)]
    return _Counters(nodes, constants, initial, [after[name] for name in initial])


def _simulated(counters: _Counters, body: GraphProto, version: int, most: int | None) -> int | None:
    """The number of steps, at most ``most``; None if it does not end by itself within many."""
    number, going = body.input[:2]
    evaluator, states = _evaluator(counters, body, version), dict(counters.initial)
    true = np.ones(_sizes(going), np.bool_)
    limit = _MOST_STEPS if most is None else min(most, _MOST_STEPS)
    for step in range(limit):
        given = {**states, number.name: np.full(_sizes(number), step, np.int64), going.name: true}
        condition, *results = evaluator.run(None, given)
        if not np.asarray(condition).all():
            return step + 1
        states = {name: np.asarray(value) for name, value in zip(states, results, strict=True)}
    return limit if limit == most else None


def _evaluator(counters: _Counters, body: GraphProto, version: int) -> ReferenceEvaluator:
    kinds = {name: helper.np_dtype_to_tensor_dtype(values.dtype) for name, values in counters.initial.items()}
    states = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    given = [
        helper.make_tensor_value_info(value.name, kind, _sizes(value))
        for value, kind in zip(body.input[:2], (TensorProto.INT64, TensorProto.BOOL), strict=True)
    ]
    results = [ValueInfoProto(name=name) for name in (body.output[0].name, *counters.results)]
    constants = [numpy_helper.from_array(values, name) for name, values in counters.constants.items()]
    graph = helper.make_graph(counters.nodes, "counters", [*given, *states], results, constants)
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]))


def _sizes(value: ValueInfoProto) -> list[int]:
    """The shape of a step's number or condition, which ONNX Runtime passes as a vector if the body declares one."""
    return [1] * len(value.type.tensor_type.shape.dim)


def begins(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a loop's condition before the first step is known to be true."""
    name, around = optional_input(node, 1), editor.graph.input
    # Within the body of another loop, that loop's own condition is true. A Scan's body has none.
    is_given = editor.owner == "Loop" and len(around) > 1 and around[1].name == name
    known = _constant(name, editor)
    return not name or is_given or (known is not None and bool(known.all()))


def _constant(name: str, editor: GraphEditor) -> Array | None:
    """The values of an initialiser, or of a Constant: bodies that stay loops have small ones as nodes."""
    maker = editor.producer(name)
    if maker is None or maker.domain or maker.op_type != "Constant":
        return editor.constant(name)
    value = attributes(maker).get("value")
    return None if value is None else to_array(value)


def goes_on(body: GraphProto, editor: GraphEditor) -> bool:
    """Whether the condition that a body computes is always the one that it was given, or true.

    ``editor`` is that of the graph around it, which may have the body's constants.
    """
    name = body.output[0].name
    producers = {output: inner for inner in body.node for output in inner.output}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    constants = {tensor.name: tensor for tensor in body.initializer}
    known = to_array(constants[name]) if name in constants else editor.constant(name)
    return name == body.input[1].name or (known is not None and bool(known.all()))
