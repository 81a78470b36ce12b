"""Runs of nodes that ONNX Runtime computes, between nodes that something else computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from sartor.onnx_model.graphs.walk import names_read
from sartor.reference.trusted.oracles.element_types import numpy_code
from sartor.reference.trusted.parts.division import Surroundings
from sartor.runtime.driver.signature import Array

# Arrays of these types do not pass ONNX Runtime's door, and are exact in the other ones.
_CARRIED: Mapping[int, int] = {
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FN: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FNUZ: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2FNUZ: TensorProto.FLOAT,
    TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT4: TensorProto.UINT8,
}

Values = Mapping[str, Any]
"""Values by name: arrays, or lists of them for sequences."""
Loader = Callable[[bytes], Callable[[Mapping[str, Any]], list[Array]]]
"""Loads a serialised model that is to be run as it is."""


class Segment:
    """Nodes that ONNX Runtime runs together. They are loaded by the first run, as types are known for sure then.

    Args:
        nodes: neighbours in a sorted graph.
        outputs: those of their values that others read.
        types: element types, as far as they are known.
        around: of the graph.
        load: loads a model.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        outputs: Sequence[str],
        types: Mapping[str, int],
        around: Surroundings,
        load: Loader,
    ) -> None:
        self._nodes, self.outputs, self._around, self._load = nodes, outputs, around, load
        computed = {name for node in nodes for name in node.output}
        read = {name for node in nodes for name in names_read(node)} - computed
        self._constants = sorted(read & set(around.constants))
        self.inputs = sorted(read - set(around.constants))
        self._restored = {name: types[name] for name in outputs if types.get(name) in _CARRIED}
        self._run: Callable[[Mapping[str, Any]], list[Array]] | None = None

    def __call__(self, values: Values) -> dict[str, Any]:
        """The outputs by name.

        Raises:
            UnsupportedModelError: if ONNX Runtime does not load the nodes.
            UsageError: if it fails on the values.
        """
        feeds = {name: values[name] for name in self.inputs}
        if self._run is None:
            self._run = self._load(self._model(feeds).SerializeToString())
        arrays = self._run({_passing(name, value): _carried(value) for name, value in feeds.items()})
        named = dict(zip(self.outputs, arrays, strict=True))
        return {name: self._restore(name, value) for name, value in named.items()}

    def _restore(self, name: str, value: Any) -> Any:
        kind = self._restored.get(name)
        return value if kind is None else value.astype(helper.tensor_dtype_to_np_dtype(kind))

    def _model(self, feeds: Mapping[str, Any]) -> ModelProto:
        graph = GraphProto(name="segment")
        graph.initializer.extend(self._around.constants[name] for name in self._constants)
        before, after = [], []
        for name, value in feeds.items():
            outer = _passing(name, value)
            if outer != name:
                before.append(helper.make_node("Cast", [outer], [name], to=numpy_code(value.dtype)))
            graph.input.append(_declared(outer, value))
        for name in self.outputs:
            outer = name
            if name in self._restored:
                outer = _door(name)
                after.append(helper.make_node("Cast", [name], [outer], to=_CARRIED[self._restored[name]]))
            graph.output.append(helper.make_value_info(outer, TypeProto()))
        graph.node.extend([*before, *self._nodes, *after])
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._around.versions.items()]
        return ModelProto(ir_version=self._around.ir_version, opset_import=opsets, graph=graph)


def _door(name: str) -> str:
    """The name under which a value passes in another type."""
    return f"sartor.carried:{name}"


def _passing(name: str, value: Any) -> str:
    """The name under which a value passes."""
    return name if isinstance(value, list) or numpy_code(value.dtype) not in _CARRIED else _door(name)


def _declared(name: str, value: Any) -> ValueInfoProto:
    if isinstance(value, list):
        kind = numpy_code(value[0].dtype) if value else int(TensorProto.FLOAT)
        return helper.make_tensor_sequence_value_info(name, kind, None)
    kind = numpy_code(value.dtype)
    return helper.make_tensor_value_info(name, _CARRIED.get(kind, kind), None)


def _carried(value: Any) -> Any:
    """A value in a type that passes."""
    if isinstance(value, list):
        return value
    kind = _CARRIED.get(numpy_code(value.dtype))
    passed = value if kind is None else value.astype(helper.tensor_dtype_to_np_dtype(kind))
    return np.ascontiguousarray(passed) if passed.ndim else passed
