"""Runs a graph in parts: segments by ONNX Runtime, single nodes by what is trusted with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UsageError
from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.mapped_data import mapped_array
from sartor.onnx_model.graphs.walk import describe_node, names_read
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.element_types import body_input_types, numpy_code
from sartor.reference.trusted.oracles.standard import run_node
from sartor.reference.trusted.oracles.table import NARROW_FLOATS, definition_of
from sartor.reference.trusted.parts.control_flow import CONTROL_FLOW, Bodies
from sartor.reference.trusted.parts.division import Division, Surroundings, Trust, named_types
from sartor.reference.trusted.parts.segments import Loader, Segment, Values
from sartor.runtime.driver.signature import Array

Step = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Computes some values from those that are known."""


class GraphRun:
    """Computes the outputs of a graph from its inputs and from values around it.

    Args:
        graph: nodes are sorted and have names.
        types: element types of values around the graph and of its inputs.
        around: of the graph around this one.
        load: loads what ONNX Runtime runs.

    Attributes:
        own: descriptions of the nodes that something else than ONNX Runtime computes, also in bodies.
        runs_runtime: whether ONNX Runtime computes any.

    Raises:
        UnsupportedModelError: if nobody is trusted with a node.
    """

    def __init__(self, graph: GraphProto, types: Mapping[str, int], around: Surroundings, load: Loader) -> None:
        constants = {tensor.name: tensor for tensor in graph.initializer}
        self._around = replace(around, constants={**around.constants, **constants})
        self._graph, self._load = graph, load
        division = Division(graph, types, self._around)
        self._types, self.own = division.types, list[NodeProto]()
        self.runs_runtime = False
        self._steps = list(self._made(division.trust))

    def __call__(self, feeds: Values, outside: Values) -> list[Any]:
        """The outputs in the graph's order.

        Args:
            feeds: the inputs by name.
            outside: values around the graph.

        Raises:
            UsageError: if a node fails.
            UnsupportedModelError: if ONNX Runtime does not load a segment.
        """
        values = _Values({**outside, **feeds}, self._around)
        for step in self._steps:
            values.update(step(values))
        return [values[value.name] for value in self._graph.output]

    def _made(self, trust: Sequence[Trust]) -> Iterator[Step]:
        nodes = list(self._graph.node)
        for is_runtime, group in groupby(range(len(nodes)), lambda index: trust[index] is Trust.RUNTIME):
            members = list(group)
            if is_runtime:
                segment = self._segment(nodes, members)
                # ONNX Runtime runs nothing of which no result is read.
                if segment.outputs:
                    self.runs_runtime = True
                    yield segment
            else:
                yield from (self._single(nodes[index], trust[index]) for index in members)

    def _segment(self, nodes: Sequence[NodeProto], members: Sequence[int]) -> Segment:
        rest = nodes[members[-1] + 1 :]
        wanted = {name for node in rest for name in names_read(node)} | {value.name for value in self._graph.output}
        inside = [nodes[index] for index in members]
        outputs = [name for node in inside for name in node.output if name in wanted]
        return Segment(inside, outputs, self._types, self._around, self._load)

    def _single(self, node: NodeProto, trust: Trust) -> Step:
        if trust is Trust.BODIES:
            bodies = {
                attribute.name: self._body(node, attribute.g) for attribute in node.attribute if attribute.HasField("g")
            }
            for run in bodies.values():
                self.own.extend(run.own)
                self.runs_runtime |= run.runs_runtime
            return _ControlFlow(Bodies(node, bodies, self._around.versions.get("", 1)))
        self.own.append(node)
        types = [self._types.get(name) for name in node.output]
        return _Single(node, _COMPUTED[trust], types, self._around)

    def _body(self, node: NodeProto, body: GraphProto) -> GraphRun:
        given = named_types(body, body_input_types(node, self._types))
        return GraphRun(body, {**self._types, **given}, self._around, self._load)


class _Values(dict[str, Any]):
    """Values by name; weights are read when they are needed."""

    def __init__(self, known: Mapping[str, Any], around: Surroundings) -> None:
        super().__init__(known)
        self._around = around

    def __missing__(self, name: str) -> Array:
        tensor = self._around.constants[name]
        mapped = mapped_array(tensor)
        array = numpy_helper.to_array(tensor, str(self._around.folder or "")) if mapped is None else mapped
        self[name] = array
        return array


class _ControlFlow:
    """An If, Loop or Scan whose bodies are run in parts."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        node = self._bodies.node
        given = [values[name] if name else None for name in node.input]
        outputs = CONTROL_FLOW[node.op_type](self._bodies, given, values)
        return {name: value for name, value in zip(node.output, outputs, strict=False) if name}


class _Single:
    """A node that ONNX Runtime does not compute."""

    def __init__(
        self,
        node: NodeProto,
        compute: Callable[[Call, Mapping[str, int]], list[Array]],
        types: Sequence[int | None],
        around: Surroundings,
    ) -> None:
        self._node, self._compute, self._types, self._around = node, compute, types, around

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = [values[name] if name else None for name in self._node.input]
        versions, watch = self._around.versions, self._around.watch
        call = Call(self._node, given, versions.get(self._node.domain, 1), self._types)
        try:
            outputs = self._compute(call, versions)
        except EVALUATOR_ERRORS as error:
            raise UsageError(f"the reference cannot run the model: {describe_node(self._node)}: {error}") from error
        if watch.calls is not None:
            watch.calls.append((call, outputs))
        return {name: value for name, value in zip(self._node.output, outputs, strict=False) if name}


def _defined(call: Call, _: Mapping[str, int]) -> list[Array]:
    compute = definition_of(call.node)
    assert compute is not None
    return compute(call)


def _widened(call: Call, versions: Mapping[str, int]) -> list[Array]:
    """By the kernel in float32, with results rounded once."""
    names = [name for name in call.node.input if name]
    feeds = dict(zip(names, (value for value in call.inputs if value is not None), strict=True))
    wide = {
        name: value.astype(np.float32) if numpy_code(value.dtype) in NARROW_FLOATS else value
        for name, value in feeds.items()
    }
    computed = iter(run_node(call.node, wide, versions))
    # Results without a name keep their place.
    outputs = [next(computed) if name else np.empty(0, np.float32) for name in call.node.output]
    return [_narrow(value, kind) for value, kind in zip(outputs, call.types, strict=True)]


def _narrow(value: Array, kind: int | None) -> Array:
    if kind is None or kind not in NARROW_FLOATS:
        return value
    return value.astype(helper.tensor_dtype_to_np_dtype(kind))


def _evaluated(call: Call, versions: Mapping[str, int]) -> list[Array]:
    """By ONNX's evaluator in Python."""
    named = dict(zip(call.node.input, call.inputs, strict=True))
    results = zip(call.node.output, call.types, strict=True)
    feeds = {name: value for name, value in named.items() if value is not None}
    graph = helper.make_graph(
        [call.node],
        "one",
        [helper.make_tensor_value_info(name, numpy_code(value.dtype), value.shape) for name, value in feeds.items()],
        [helper.make_tensor_value_info(name, kind or 0, None) for name, kind in results],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model: ModelProto = helper.make_model(graph, opset_imports=opsets)
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


_COMPUTED: Mapping[Trust, Callable[[Call, Mapping[str, int]], list[Array]]] = {
    Trust.DEFINITION: _defined,
    Trust.WIDENED: _widened,
    Trust.EVALUATOR: _evaluated,
}
