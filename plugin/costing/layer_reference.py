"""Worker side: reference results of a layer, from its own ONNX nodes, cut out of the model and run in ONNX Runtime.

Both compute with the layer's own weights: the nodes as the file has them, the variants as the front end transformed
them. The model is read only when variants disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper
from onnx.checker import ValidationError

from sartor.codegen.ir.layer import TensorType
from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.graphs.walk import names_read
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array, passed
from sartor.tuning.workers.shared_arrays import StoredArrays

# Failures here are not the measured variant's fault. C++ exceptions without a Python class become RuntimeError.
_NO_RESULTS = (
    DecodeError,
    EncodeError,
    MemoryError,
    OSError,
    RuntimeError,
    UnsupportedModelError,
    UsageError,
    ValidationError,
)


@dataclass(frozen=True)
class LayerArbiter:
    """Runs the nodes of a layer.

    Attributes:
        layer: its name.
        model: the prepared model's file.
        inputs: ONNX's names of the activations.
        outputs: ONNX's names of the results; empty if ONNX lacks a name of an activation or a result.
        types: of the results, in the module.
        names: of the weights.
        stored: the weights by name.
    """

    layer: str
    model: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[TensorType, ...]
    names: tuple[str, ...]
    stored: StoredArrays

    def weights(self) -> list[Array]:
        """The layer's own weights, in ONNX layout."""
        return [self.stored[name] for name in self.names]

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        """ONNX Runtime's results; None if the nodes cannot be cut out or run, or their results are not finite."""
        if not self.outputs:
            return None
        try:
            model = prepared_model(self.model)
            cut_out(model, self.inputs, self.outputs)
            reference = ReferenceModel(model.SerializeToString(), threads=1, cuts=False)
            values = reference(_feeds(model.graph, inputs))
        except _NO_RESULTS:
            return None
        if not all(np.isfinite(value).all() for value in values if value.dtype.kind == "f"):
            return None
        return [passed(value, kind.numpy_dtype, kind.shape) for value, kind in zip(values, self.types, strict=True)]


def cut_out(model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Reduce a model in place to the nodes that compute ``outputs`` from ``inputs``.

    Raises:
        UnsupportedModelError: if ``outputs`` depend on other tensors as well, or a type is unknown.
    """
    editor = GraphEditor(model.graph)
    needed: dict[str, NodeProto] = {}
    constants: set[str] = set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        node = editor.producer(name)
        if name in inputs or name in needed or name in constants:
            continue
        if node is not None:
            needed[name] = node
            pending.extend(names_read(node))
        elif editor.is_constant(name):
            constants.add(name)
        else:
            raise UnsupportedModelError(f"'{outputs[0]}' depends on '{name}', which is no input of its layer")
    computing = {node.name for node in needed.values()}
    cut = GraphProto(
        name=model.graph.name,
        node=(node for node in editor.nodes if node.name in computing),
        initializer=(initializer for initializer in model.graph.initializer if initializer.name in constants),
        input=_described(editor, inputs),
        output=_described(editor, outputs),
    )
    for node in cut.node:
        # A node with several outputs may also compute one of the inputs, which are given.
        node.output[:] = [editor.fresh(name) if name in inputs else name for name in node.output]
    model.graph.CopyFrom(cut)


def _described(editor: GraphEditor, names: Sequence[str]) -> list[ValueInfoProto]:
    values: list[ValueInfoProto] = []
    for name in names:
        kind = editor.type(name)
        if kind is None:
            raise UnsupportedModelError(f"nothing is known of the type of '{name}'")
        values.append(ValueInfoProto(name=name, type=kind))
    return values


def _feeds(graph: GraphProto, arrays: Sequence[Array]) -> dict[str, Array]:
    """Inputs of the nodes by name: activations of the module, in ONNX's shapes and types."""
    pairs = zip(graph.input, arrays, strict=True)
    return {
        value.name: passed(
            array,
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
            tuple(size.dim_value for size in value.type.tensor_type.shape.dim),
        )
        for value, array in pairs
    }
