"""Writes attention over caches of open length in one form, ONNX's Attention over heads that lie side by side: ONNX
Runtime's MultiHeadAttention and Attention, whose caches may be stacked, and ONNX's own over heads apart.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, and
https://onnx.ai/onnx/operators/onnx__Attention.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from onnx import NodeProto, TensorProto, TypeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

MICROSOFT = "com.microsoft"
_STANDARD, _HEADS_RANK, _STACKED_RANK, _MATRIX = "Attention", 4, 5, 2
_EXCLUDED = -10000.0
_Read = dict[str, Any]


class Form(NamedTuple):
    """A node in the common form, with nodes before it and behind it."""

    before: list[NodeProto]
    node: NodeProto
    after: list[NodeProto]


def common_form(node: NodeProto, editor: GraphEditor) -> Form | None:
    """The node in the common form; None if it is none of these, has it, or does more."""
    write = _FORMS.get((node.domain, node.op_type))
    return None if write is None else write(node, editor)


def _multi_head(node: NodeProto, editor: GraphEditor) -> Form | None:
    """``MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value)``."""
    given, operands = attributes(node), [optional_input(node, index) for index in range(3)]
    pasts = [optional_input(node, index) for index in (6, 7)]
    dims = [_dims(name, editor) for name in pasts]
    is_usual = all(len(shape) == _HEADS_RANK and shape[1] and shape[3] for shape in dims) and len(node.output) > 2
    if not is_usual or not all(operands) or any((*node.input[8:], *node.output[3:])) or dims[0][3] != dims[1][3]:
        return None
    emit, heads, width = Emitter(editor, node), int(given["num_heads"]), dims[0][3]
    if bias := optional_input(node, 3):
        sizes = emit.constant([heads * width] * 3, "sizes")
        parts = emit.many("Split", bias, sizes, part="split_bias", outputs=("", "", ""), axis=0)
        operands = [emit("Add", name, part, part="bias") for name, part in zip(operands, parts, strict=True)]
    return _written(emit, operands, pasts, (optional_input(node, 4), optional_input(node, 5)), list(node.output[:3]))


def _contributed(node: NodeProto, editor: GraphEditor) -> Form | None:
    """``Attention(input, weights, bias, mask_index, past, attention_bias)``, whose caches lie in one input."""
    given, past = attributes(node), optional_input(node, 4)
    dims, flags = _dims(past, editor), ("do_rotary", "past_present_share_buffer", "qkv_hidden_sizes")
    is_usual = len(dims) == _STACKED_RANK and bool(dims[4]) and len(node.output) > 1
    if not is_usual or any(node.input[6:]) or any(given.get(flag) for flag in flags):
        return None
    emit, count = Emitter(editor, node), int(given["num_heads"]) * dims[4]
    projected = emit("MatMul", node.input[0], node.input[1], part="project")
    if bias := optional_input(node, 2):
        projected = emit("Add", projected, bias, part="bias")
    sizes = emit.constant([count] * 3, "sizes")
    operands = emit.many("Split", projected, sizes, part="split", outputs=("", "", ""), axis=-1)
    results = [node.output[0], node.output[1], node.output[1]]
    return _written(emit, list(operands), [past] * 2, (optional_input(node, 3), optional_input(node, 5)), results)


def _written(
    emit: Emitter, operands: list[str], pasts: list[str], masks: tuple[str, str], results: list[str]
) -> Form | None:
    """A node of ONNX's operator that attends as one of ONNX Runtime's does."""
    given = attributes(emit.node)
    added = _added(emit, *masks, pasts[0])
    if added is None:
        return None
    heads = int(given["num_heads"])
    values: _Read = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(given.get("unidirectional", 0))}
    if given.get("scale"):
        values["scale"] = given["scale"]
    inputs = [*operands, added, *pasts]
    return Form(emit.nodes, helper.make_node(_STANDARD, inputs, results, name=emit.node.name, **values), [])


def _added(emit: Emitter, mask: str, bias: str, past: str) -> str | None:
    """What is added to scores, empty for nothing; None for a mask that says where keys end."""
    editor = emit.editor
    if not mask:
        return bias
    rank = editor.rank(mask)
    if rank not in (_MATRIX, _MATRIX + 1):
        return None
    whole = emit("Cast", mask, part="mask", to=TensorProto.INT64)
    is_valid = emit("Greater", whole, emit.constant([0], "nothing"), part="valid")
    excluded = float(attributes(emit.node).get("mask_filter_value", _EXCLUDED))
    both = (emit.like(value, past, "excluded") for value in (0.0, excluded))
    added = emit("Where", is_valid, *both, part="excluded")
    axes = [1, 2] if rank == _MATRIX else [1]
    added = emit("Unsqueeze", added, emit.constant(axes, "mask_axes"), part="mask_align")
    if bias:
        added = emit("Add", added, bias, part="mask_and_bias")
    dims = [0, 0 if bias else 1, 0, 0]
    editor.set_type(added, _open_type(editor.element_type(past), dims))
    return added


def _open_type(kind: int, dims: list[int]) -> TypeProto:
    """A tensor's type with sizes that are not known where they are zero."""
    return helper.make_tensor_type_proto(kind, [size or None for size in dims])


def _apart(node: NodeProto, editor: GraphEditor) -> Form | None:
    """ONNX's operator over queries, keys and values ``[batch, heads, positions, width]``."""
    given = attributes(node)
    heads = [_dims(name, editor)[1:2] for name in node.input[:2]]
    ranks = {editor.rank(name) for name in node.input[:3]}
    if "q_num_heads" in given or ranks != {_HEADS_RANK} or not all(count and count[0] for count in heads):
        return None
    emit, after = Emitter(editor, node), Emitter(editor, node)
    flat = emit.constant([0, 0, -1], "flat")
    operands = [
        emit("Reshape", emit("Transpose", name, part="side_by_side", perm=[0, 2, 1, 3]), flat, part="side_by_side")
        for name in node.input[:3]
    ]
    result = editor.fresh(f"{node.output[0]}/side_by_side")
    split = after("Reshape", result, after.constant([0, 0, heads[0][0], -1], "apart"), part="apart")
    after("Transpose", split, part="apart", perm=[0, 2, 1, 3], output=node.output[0])
    values = {**given, "q_num_heads": heads[0][0], "kv_num_heads": heads[1][0]}
    inputs, results = [*operands, *node.input[3:]], [result, *node.output[1:]]
    return Form(emit.nodes, helper.make_node(_STANDARD, inputs, results, name=node.name, **values), after.nodes)


def _dims(name: str, editor: GraphEditor) -> list[int]:
    """Sizes of a value, 0 where they are open."""
    kind = editor.type(name) if name else None
    return [] if kind is None else [max(0, dim.dim_value) for dim in kind.tensor_type.shape.dim]


_FORMS: Mapping[tuple[str, str], Callable[[NodeProto, GraphEditor], Form | None]] = {
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, _STANDARD): _contributed,
    ("", _STANDARD): _apart,
}
