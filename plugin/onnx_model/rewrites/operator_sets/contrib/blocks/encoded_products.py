"""Products and look-ups by weights in blocks of small integers, as nodes that the importer passes on.

These nodes are of a domain of their own: ``codegen/subgraphs/encoded_products.py`` and ``encoded_look_ups.py`` replace
them before and after IREE's importer lowers the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from sartor.codegen.ir.encoding import IN_PLANES, BlockEncoding, from_planes, in_planes, packed, unpacked
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_quantised import is_kept, may_round
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import split_points
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.chosen_parts import parts_of_rows
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.looked_up_rows import LOOK_UP, encoding_of
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.narrow_codes import narrowed
from sartor.onnx_model.rewrites.recurrence.recurrent_calls import DOMAIN

PRODUCT, ROWS = "EncodedProduct", "EncodedLookUp"
"""The names of the nodes that stand for products and look-ups."""


def with_encoded_products(model: ModelProto) -> ModelProto:
    """A copy in which products and look-ups whose weights stay encoded are nodes that stand for them; the model itself
    if it has none. Parts of weights with equal numbers are one constant."""
    editor = GraphEditor(model.graph)
    if not any(is_kept(node, editor) for node in editor.nodes):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    editor, types = GraphEditor(copy.graph), dict[str, TypeProto]()
    constants = _Constants(_tables(editor))

    def replaced(node: NodeProto) -> Sequence[NodeProto] | None:
        if not is_kept(node, editor):
            return None
        known = editor.type(node.output[0])
        if known is not None:
            types[node.output[0]] = known
        emit = Emitter(editor, node)
        return _look_up(emit, constants) if node.op_type == LOOK_UP else _product(emit, constants)

    editor.rewrite(replaced)
    described = {value.name for value in (*copy.graph.value_info, *copy.graph.output)}
    copy.graph.value_info.extend(
        ValueInfoProto(name=name, type=kind) for name, kind in types.items() if name not in described
    )
    if all(item.domain != DOMAIN for item in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


@dataclass(frozen=True)
class _Constants:
    """Names of constants by what they hold, so that a table and the product that is tied to it share one.

    Attributes:
        tables: encodings of what is looked up.
        names: of constants, by type, shape and digest.
    """

    tables: frozenset[BlockEncoding | None] = frozenset()
    names: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)

    def add(self, emit: Emitter, values: Array, hint: str) -> str:
        """The name of a constant with these values, which is added if there is none."""
        held = np.ascontiguousarray(values)
        key = str(held.dtype), held.shape, hashlib.sha256(held.reshape(-1).view(np.uint8).data).digest()
        if key not in self.names:
            self.names[key] = emit.constant(held, hint)
        return self.names[key]

    def parts(self, emit: Emitter, of: BlockEncoding, codes: Array, scales: Array, points: Array | None) -> list[str]:
        """Names of the parts of a weight, in the shapes of ``BlockEncoding``."""
        reals = [array for array in (scales, points) if array is not None and array.dtype != np.uint8]
        if all(_is_half(real) for real in reals):
            scales, *others = (real.astype(np.float16) for real in reals)
            points = others[0] if others else points
        arrays = {
            "codes": _without_rest(codes.reshape(of.codes.shape), of),
            "scales": scales.reshape(of.columns, of.blocks),
        }
        if points is not None:
            arrays["points"] = points
        return [self.add(emit, values, name) for name, values in arrays.items()]


def _without_rest(codes: Array, of: BlockEncoding) -> Array:
    """Codes with zeros behind the last row, where models have anything."""
    rest = of.depth % of.block
    if not rest:
        return codes
    is_planar = of.bits == IN_PLANES
    last = from_planes(codes[:, -1]) if is_planar else unpacked(codes[:, -1], of.bits)
    kept = np.where(np.arange(of.block) < rest, last, 0)
    stored = in_planes(kept) if is_planar else packed(kept, of.bits)
    return np.concatenate([codes[:, :-1], stored[:, None]], 1)


def _tables(editor: GraphEditor) -> frozenset[BlockEncoding | None]:
    """Encodings of the tables that are looked up."""
    return frozenset(encoding_of(node, editor) for node in editor.nodes if node.op_type == LOOK_UP)


def _is_half(values: Array) -> bool:
    """Whether f16 holds all values exactly."""
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(np.float16).astype(values.dtype), values)


def _product(emit: Emitter, constants: _Constants) -> list[NodeProto]:
    node, settings = emit.node, attributes(emit.node)
    of = BlockEncoding(settings["bits"], settings["block_size"], settings["K"], settings["N"])
    points = split_points(_values(emit, 3), of) if optional_input(node, 3) else None
    codes = _values(emit, 1).reshape(of.codes.shape)
    # A table that is looked up is stored in whole bytes, and the product with it.
    narrow = None if of in constants.tables else narrowed(of, codes, points)
    of, codes = narrow or (of, codes)
    parts = constants.parts(emit, of, codes, _values(emit, 2), points)
    values: dict[str, Any] = {"encoding": str(of), **({"may_round": 1} if may_round(node) else {})}
    count = parts_of_rows(emit.editor, node.input[0])
    if count > 1 and of.depth % (count * of.block) == 0:
        values["parts"] = count
    emit(PRODUCT, node.input[0], *parts, output=node.output[0], domain=DOMAIN, **values)
    return emit.nodes


def _look_up(emit: Emitter, constants: _Constants) -> list[NodeProto]:
    node, of = emit.node, encoding_of(emit.node, emit.editor)
    assert of is not None
    codes, scales = _values(emit, 0), _values(emit, 2)
    filled = np.zeros((of.columns, of.blocks * of.block_bytes), np.uint8)
    filled[:, : codes.shape[1]] = codes
    points = split_points(_values(emit, 3), of) if optional_input(node, 3) else None
    kind = helper.np_dtype_to_tensor_dtype(scales.dtype)
    parts, is_real = constants.parts(emit, of, filled, scales, points), kind == TensorProto.FLOAT
    part, output = ("", node.output[0]) if is_real else ("wide", "")
    rows = emit(ROWS, node.input[1], *parts, part=part, output=output, domain=DOMAIN, encoding=str(of))
    if not is_real:
        emit("Cast", rows, output=node.output[0], to=kind)
    return emit.nodes


def _values(emit: Emitter, index: int) -> Array:
    values = emit.editor.constant(emit.node.input[index])
    assert values is not None
    return values
