"""Products by weights in blocks of small integers, as nodes that the importer passes on.

These nodes are of a domain of their own: ``codegen/subgraphs/encoded_products.py`` replaces them before and after
IREE's importer lowers the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_quantised import is_kept, may_round
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import split_points
from sartor.onnx_model.rewrites.recurrence.recurrent_calls import DOMAIN

OPERATOR = "EncodedProduct"
"""The name of the nodes that stand for products."""


def with_encoded_products(model: ModelProto) -> ModelProto:
    """A copy in which products whose weights stay encoded are nodes that stand for them; the model itself if it has
    none."""
    editor = GraphEditor(model.graph)
    if not any(is_kept(node, editor) for node in editor.nodes):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    editor, types = GraphEditor(copy.graph), dict[str, TypeProto]()

    def replaced(node: NodeProto) -> Sequence[NodeProto] | None:
        if not is_kept(node, editor):
            return None
        known = editor.type(node.output[0])
        if known is not None:
            types[node.output[0]] = known
        return _product(Emitter(editor, node))

    editor.rewrite(replaced)
    described = {value.name for value in (*copy.graph.value_info, *copy.graph.output)}
    copy.graph.value_info.extend(
        ValueInfoProto(name=name, type=kind) for name, kind in types.items() if name not in described
    )
    if all(item.domain != DOMAIN for item in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


def _product(emit: Emitter) -> list[NodeProto]:
    node, found = emit.node, attributes(emit.node)
    of = BlockEncoding(found["bits"], found["block_size"], found["K"], found["N"])
    parts = [
        emit.constant(_values(emit, 1).reshape(of.codes.shape), "codes"),
        emit.constant(_values(emit, 2).reshape(of.columns, of.blocks), "scales"),
    ]
    if optional_input(node, 3):
        points = split_points(_values(emit, 3), of)
        assert points is not None
        parts.append(emit.constant(points, "points"))
    values: dict[str, Any] = {"encoding": str(of), **({"may_round": 1} if may_round(node) else {})}
    emit(OPERATOR, node.input[0], *parts, output=node.output[0], domain=DOMAIN, **values)
    return emit.nodes


def _values(emit: Emitter, index: int) -> Array:
    values = emit.editor.constant(emit.node.input[index])
    assert values is not None
    return values
