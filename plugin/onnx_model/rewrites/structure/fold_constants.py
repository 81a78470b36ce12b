"""Evaluates nodes that depend on constants and static shapes alone, unless their results are large."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, editors, opset
from sartor.onnx_model.graphs.infer import infer_node, infer_shapes, range_length
from sartor.onnx_model.graphs.limits import MAX_FOLDED_BYTES
from sartor.onnx_model.graphs.tensor_data import element_bits
from sartor.onnx_model.graphs.walk import describe_node, subgraphs
from sartor.onnx_model.rewrites.control_flow.inline_if import inline_if
from sartor.onnx_model.rewrites.control_flow.resolve_sequences import resolve_sequences
from sartor.onnx_model.rewrites.control_flow.unroll_loops import unroll_loops

_log = logging.getLogger(__name__)

SUMMING = frozenset(
    {
        *("AveragePool", "GlobalAveragePool", "GlobalLpPool", "LpPool", "CumSum"),
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum"),
        *("ReduceSumSquare", "Softmax", "LogSoftmax", "MeanVarianceNormalization", "RMSNormalization"),
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"),
    }
)
"""Operators that add many numbers."""

# Not folded: quantised weights would become larger, and random values would be the same in each inference.
_KEPT = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
        *(
            "Dropout",
            "RandomNormal",
            "RandomUniform",
            "RandomNormalLike",
            "RandomUniformLike",
            "Bernoulli",
            "Multinomial",
        ),
    }
)
# Nor is what ONNX's evaluator computes otherwise than ONNX Runtime, found by comparing both: LRN sums channels of the
# first images alone, LpNormalization for p = 1 the signs too, LogSoftmax is the logarithm of what underflows, pools and
# resizes take other elements, ConvTranspose by groups adds the first bias to all channels, and recurrent cells go on
# after a sequence's end. onnxslim folds those that are small, by ONNX Runtime.
_OTHERWISE = frozenset(
    {
        *("AveragePool", "ConvTranspose", "GRU", "GridSample", "LRN", "LSTM", "LogSoftmax", "LpNormalization"),
        *("LpPool", "MaxPool", "RNN", "ReduceLogSumExp", "Resize", "Upsample"),
    }
)
_SINCE = {"BatchNormalization": 14, "Hardmax": 13, "Softmax": 13}
"""The opsets from which on the evaluator is right: before, it mixes statistics in, or takes one axis for several."""
_ALIGNED = 7
"""The opset from which on operands have no attribute that says which of their dimensions belong together."""
_MOST_CHOICES = 31
"""The largest dimension of which the evaluator picks elements along any axis."""
_EXACT = "biu"
"""Kinds of numbers whose sums are exact."""
_NARROW = frozenset({"bfloat16", "float16"})


def fold_constants(model: ModelProto) -> tuple[str, ...]:
    """Replace nodes by their values, branches, steps of loops and elements of sequences, until none changes.

    A node whose result exceeds 64 KiB is folded only if the result is no larger than the constants it depends on.
    Returns the names of the folded nodes.
    """
    changed: list[str] = []
    while True:
        infer_shapes(model)
        version = helper.make_opsetid("", opset(model))
        folded = [name for editor in editors(model.graph) for name in _fold(editor, version)]
        folded.extend(resolve_sequences(model))
        folded.extend(inline_if(model))
        folded.extend(unroll_loops(model))
        if not folded:
            return tuple(changed)
        changed.extend(folded)


def _fold(editor: GraphEditor, version: OperatorSetIdProto) -> tuple[str, ...]:
    def rule(node: NodeProto) -> list[NodeProto] | None:
        _infer(node, editor, version)
        values = (
            _known_shape(node, editor) or _known_range(node, editor) or _evaluated(_cast(node, editor), editor, version)
        )
        if values is None:
            return None
        for name, value in zip(node.output, values, strict=True):
            if name:
                editor.set_constant(name, value)
        return []

    return editor.rewrite(rule)


def _infer(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> None:
    """Infer the node's output types again: nodes folded before may determine its shapes, which allow later folds."""
    if all(editor.shape(name) is not None for name in node.output if name):
        return
    for name, value in infer_node(node, editor, version).items():
        if name:
            editor.set_type(name, value)


def _cast(node: NodeProto, editor: GraphEditor) -> NodeProto:
    """A ``CastLike`` as ``Cast``, so that it needs the type of its second operand alone; other nodes as they are."""
    element = editor.element_type(node.input[1]) if node.op_type == "CastLike" and not node.domain else 0
    return _as_cast(node, element) if element else node


def _as_cast(node: NodeProto, element: int) -> NodeProto:
    cast = helper.make_node("Cast", node.input[:1], node.output, name=node.name, to=element)
    cast.attribute.extend(node.attribute)
    return cast


def _known_shape(node: NodeProto, editor: GraphEditor) -> list[Array] | None:
    if node.op_type not in ("Shape", "Size"):
        return None
    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return [np.asarray(np.prod(shape, dtype=np.int64))]
    settings = attributes(node)
    return [np.asarray(shape[settings.get("start", 0) : settings.get("end")], np.int64)]


def _known_range(node: NodeProto, editor: GraphEditor) -> list[Array] | None:
    """A Range of vectors of one element, which shape inference refuses and ONNX's own function bodies have."""
    if node.op_type != "Range" or node.domain:
        return None
    bounds = [editor.constant(name) for name in node.input]
    known: list[Any] = [bound.reshape(()) for bound in bounds if bound is not None and bound.size == 1]
    if len(known) < len(bounds) or all(bound is not None and not bound.ndim for bound in bounds):
        return None
    if range_length(*map(float, known)) * known[0].dtype.itemsize > MAX_FOLDED_BYTES:
        return None
    return [np.arange(*known, dtype=known[0].dtype)]


def _evaluated(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> list[Array] | None:
    if node.op_type in _KEPT or node.domain not in ("", "ai.onnx") or any(True for _ in subgraphs(node)):
        return None
    inputs = [name for name in dict.fromkeys(node.input) if name]
    if not all(map(editor.is_constant, inputs)):
        return None
    operands = {name: value for name in inputs if (value := editor.constant(name)) is not None}
    if len(operands) != len(inputs) or _is_otherwise(node, operands, version):
        return None
    if not _stays_small(node, editor, operands):
        return None
    values = _run_wide(node, editor, operands, version)
    return values if values is not None and _as_declared(node, editor, values) else None


def _is_otherwise(node: NodeProto, operands: dict[str, Array], version: OperatorSetIdProto) -> bool:
    """Whether ONNX's evaluator may compute a node otherwise than ONNX Runtime."""
    if node.op_type == "OneHot":
        # The one value is added to the difference of both, which is NaN beside infinity, and loses what is small.
        return operands[node.input[2]].dtype.kind not in _EXACT
    if node.op_type == "GatherElements":
        return max(operands[node.input[0]].shape, default=0) > _MOST_CHOICES
    names_dimensions = version.version < _ALIGNED and "broadcast" in attributes(node)
    return names_dimensions or node.op_type in _OTHERWISE or version.version < _SINCE.get(node.op_type, 0)


def _stays_small(node: NodeProto, editor: GraphEditor, operands: dict[str, Array]) -> bool:
    size = 0
    for name in node.output:
        shape, element = editor.shape(name), editor.element_type(name)
        if name and (shape is None or not element):
            return False
        size += int(np.prod(shape or (), dtype=object)) * element_bits(element) // 8 if name else 0
    return size <= max(MAX_FOLDED_BYTES, sum(value.nbytes for value in operands.values()))


def _run_wide(
    node: NodeProto, editor: GraphEditor, operands: dict[str, Array], version: OperatorSetIdProto
) -> list[Array] | None:
    """The node's results; sums of float16 and bfloat16 are computed in float32, as in ONNX Runtime and when it runs."""
    if node.op_type not in SUMMING:
        return _run(node, operands, version)
    wide = {name: _widened(value) for name, value in operands.items()}
    values = _run(node, wide, version)
    if values is None or all(wide[name] is operands[name] for name in wide):
        return values
    return [
        value.astype(helper.tensor_dtype_to_np_dtype(editor.element_type(name))) if name else value
        for name, value in zip(node.output, values, strict=True)
    ]


def _widened(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype.name in _NARROW else value


def _run(node: NodeProto, operands: dict[str, Array], version: OperatorSetIdProto) -> list[Array] | None:
    inputs = [helper.make_value_info(name, TypeProto()) for name in operands]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "constant", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[version])
    try:
        with np.errstate(all="ignore"):
            results = iter(ReferenceEvaluator(model).run(None, operands))
    except EVALUATOR_ERRORS as error:
        _log.debug("%s is not folded: %s", describe_node(node), error)
        return None
    return [np.asarray(next(results)) if name else np.empty(0) for name in node.output]


def _as_declared(node: NodeProto, editor: GraphEditor, values: list[Array]) -> bool:
    """Whether the values have the inferred types and shapes. Otherwise, or for a sequence, the node is not folded."""
    for name, value in zip(node.output, values, strict=True):
        if not name:
            continue
        expected = helper.tensor_dtype_to_np_dtype(editor.element_type(name))
        if value.dtype != expected or value.shape != editor.shape(name):
            return False
    return True
