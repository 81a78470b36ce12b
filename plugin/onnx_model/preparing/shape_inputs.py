"""Inputs whose values decide shapes: a module of static shapes has to know them when it is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.walk import names_read, subgraphs
from sartor.onnx_model.preparing.bindings import make_constant

# Larger tensors are data, whatever is computed from them.
_MAX_ELEMENTS = 64

# Operands that are shapes, axes, sizes, lengths, steps, counts or choices, by operator.
_DECIDING: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "LSTM": (4,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "RNN": (4,),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
# Of these operands, those that shapes do not depend on.
_NOT_SIZING = frozenset(
    {
        *(("CumProd", 1), ("CumSum", 1), ("DFT", 2), ("Dropout", 1), ("Dropout", 2), ("GRU", 4), ("If", 0)),
        *(("LSTM", 4), ("MelWeightMatrix", 2), ("MelWeightMatrix", 3), ("MelWeightMatrix", 4)),
        *(("NonMaxSuppression", 2), ("RNN", 4), ("SequenceAt", 1), ("SequenceErase", 1), ("SequenceInsert", 2)),
        ("Trilu", 1),
    }
)
OF_SHAPES = frozenset({"Shape", "Size"})
"""What they compute is known from shapes alone."""
# Up to opset 10 the second operand of Resize are its scales.
_SCALES_LAST = 2


def shape_inputs(model: ModelProto) -> tuple[str, ...]:
    """The inputs of a model that its shapes, or the branches it takes, depend on, in the model's order.

    Only vectors and single values count, of 64 elements at most.
    """
    return tuple(deciding_operands(model))


def deciding_operands(model: ModelProto) -> dict[str, tuple[NodeProto, int]]:
    """The inputs of ``shape_inputs``, each with a node that it decides and the index of the operand."""
    wanted = _deciding_names(model.graph)
    return {value.name: wanted[value.name] for value in model.graph.input if value.name in wanted and is_small(value)}


def with_values(model: ModelProto, values: Mapping[str, Array]) -> ModelProto:
    """A copy of a model in which inputs have become constants."""
    copy = ModelProto()
    copy.CopyFrom(model)
    make_constant(copy, values)
    return copy


def sizing_operands(node: NodeProto) -> list[tuple[int, str]]:
    """The operands by whose values a node decides the shape of its results: their indices and names."""
    return [
        (index, name)
        for index, name in _operands(node)
        if (node.op_type, index) not in _NOT_SIZING and not _is_region(node, index)
    ]


def _is_region(node: NodeProto, index: int) -> bool:
    """Whether an operand of a Resize says what is resized, and not to which size."""
    return node.op_type == "Resize" and index == 1 and len(node.input) > _SCALES_LAST


def _deciding_names(graph: GraphProto) -> dict[str, tuple[NodeProto, int]]:
    """Every value from which an operand that decides a shape is computed, with one such operand."""
    nodes = list(_all_nodes(graph))
    producers = {name: node for node in nodes for name in node.output if name}
    pending = [(name, (node, index)) for node in nodes for index, name in _operands(node)]
    deciding: dict[str, tuple[NodeProto, int]] = {}
    while pending:
        name, operand = pending.pop()
        if name in deciding:
            continue
        deciding[name] = operand
        node = producers.get(name)
        if node is not None and node.op_type not in OF_SHAPES:
            pending.extend((name, operand) for name in names_read(node))
    return deciding


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for body in subgraphs(node):
            yield from _all_nodes(body)


def _operands(node: NodeProto) -> list[tuple[int, str]]:
    indices = _DECIDING.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
    return [(index, node.input[index]) for index in indices if index < len(node.input) and node.input[index]]


def is_small(value: ValueInfoProto) -> bool:
    """Whether an input is a vector or single value that may be a setting, and not data."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return False
    dims = tensor.shape.dim
    return len(dims) <= 1 and all(dim.dim_value <= _MAX_ELEMENTS for dim in dims)
