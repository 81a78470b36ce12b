"""A copy of a model whose products of 8-bit integers ONNX Runtime computes exactly on every CPU.

On x86-64 CPUs with AVX2 or AVX-512 and without VNNI, ONNX Runtime multiplies unsigned by signed integers with an
instruction that adds two products in 16 bits and saturates (vpmaddubsw): 255 * 127 twice is 32,767 and not 64,770.
Signed operands on both sides become such a product. Unsigned ones are widened to 16 bits and summed in 32
(vpmaddwd), which is exact, so in the copy all operands are unsigned: 128 is added to numbers and zero points, which
leaves their differences as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor, Replacement, editors, optional_input
from sartor.onnx_model.graphs.walk import drop_named, names_read, nodes
from sartor.onnx_model.reading.outside_weights import outside_weights
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from sartor.reference.trusted.exact.element_types import complete_types, is_signed, writes_signed
from sartor.reference.trusted.exact.operands import ROUNDING, is_quantised, key_of, product_of
from sartor.reference.trusted.exact.stored_values import StoredValues
from sartor.reference.trusted.exact.unsigned_values import UnsignedValues

_LEVEL, _SORTED = "accuracy_level", "sorted"


def exact_copy(model: Path | bytes) -> bytes | None:
    """The copy of a model, whose weights that are not multiplied as integers stay in their files.

    Args:
        model: path or content of an ONNX file.

    Returns:
        The content of the copy. None if it would be equal to the model, or if there is no model to read: ONNX Runtime
        will say why.

    Raises:
        SartorError: if weights in another file cannot be read, or the model is malformed.
    """
    try:
        content = model if isinstance(model, bytes) else model.read_bytes()
        # Few models are concerned, and their weights may be gigabytes.
        if not _concerns(nodes(ModelProto.FromString(outside_weights(content)))):
            return None
        copy = ModelProto.FromString(content)
    except (DecodeError, OSError):
        return None
    if any(_concerns(nodes(function)) for function in copy.functions):
        inline_functions(copy)
    complete_types(copy)
    stored = StoredValues(copy, None if isinstance(model, bytes) else model)
    # Not by a generator that stops at the first change.
    changed = [_make_exact(editor, stored) for editor in editors(copy.graph)]
    return copy.SerializeToString() if any(changed) else None


def _concerns(nodes: Iterable[NodeProto]) -> bool:
    return any(is_quantised(node) or key_of(node) in ROUNDING or _is_unsorted(node) for node in nodes)


def _is_unsorted(node: NodeProto) -> bool:
    """Whether a node leaves the order of what it selects open, which a reference may not."""
    return key_of(node) == ("", "TopK") and any(
        attribute.name == _SORTED and not attribute.i for attribute in node.attribute
    )


def _make_exact(editor: GraphEditor, stored: StoredValues) -> bool:
    """Rewrite one graph, in place; returns whether it changed."""
    values = UnsignedValues(editor, stored)
    signed = _signed_results(editor)
    for name in signed:
        values.reserve(name)
    read_signed = _read_signed(editor)
    rule = partial(_exact, editor=editor, values=values, again=signed & read_signed)
    changed = editor.rewrite(rule)
    _drop_unread(editor, values.replaced)
    return bool(changed)


def _signed_results(editor: GraphEditor) -> set[str]:
    """Signed results of nodes that will write unsigned ones."""
    products = ((node, product_of(node, editor)) for node in editor.nodes)
    return {
        node.output[written.index]
        for node, product in products
        if product and (written := product.written) and writes_signed(node, written, editor)
    }


def _read_signed(editor: GraphEditor) -> set[str]:
    """The values that are read as they are, not by their unsigned copies."""
    read = {value.name for value in editor.graph.output}
    for node in editor.nodes:
        product = product_of(node, editor)
        replaced = {operand.index for operand in product.read} if product else set()
        read.update(name for index, name in enumerate(node.input) if index not in replaced)
        if node.attribute:
            read |= names_read(node) - set(node.input)
    return read


def _exact(node: NodeProto, editor: GraphEditor, values: UnsignedValues, again: set[str]) -> Replacement:
    """The nodes in place of one that may multiply signed integers, or round what it multiplies."""
    if key_of(node) in ROUNDING and any(attribute.name == _LEVEL and attribute.i for attribute in node.attribute):
        return [_without(node, _LEVEL)]
    if _is_unsorted(node):
        return [_without(node, _SORTED)]
    product = product_of(node, editor)
    if product is None:
        return None
    copy, before, after = NodeProto(), list[NodeProto](), list[NodeProto]()
    copy.CopyFrom(node)
    for operand in product.read:
        if is_signed(node, operand, editor):
            copy.input[operand.index] = values.of(node.input[operand.index], before)
            _set_zero(copy, operand.zero, operand.scale, values, before)
    if product.written and writes_signed(node, product.written, editor):
        result = node.output[product.written.index]
        copy.output[product.written.index] = values.of(result, before)
        _set_zero(copy, product.written.zero, product.written.scale, values, before)
        _forget_type(copy)
        after = values.signed_again(result) if result in again else []
    return None if copy == node else [*before, copy, *after]


def _set_zero(node: NodeProto, index: int, scale: int | None, values: UnsignedValues, nodes: list[NodeProto]) -> None:
    """Make a zero point of a node unsigned."""
    zero = optional_input(node, index)
    if zero:
        node.input[index] = values.of(zero, nodes)
        return
    node.input.extend([""] * (index + 1 - len(node.input)))
    node.input[index] = values.zero() if scale is None else values.zero_like(node.input[scale], nodes)


def _forget_type(node: NodeProto) -> None:
    drop_named(node.attribute, "output_dtype".__eq__)


def _without(node: NodeProto, attribute: str) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    drop_named(copy.attribute, attribute.__eq__)
    return copy


def _drop_unread(editor: GraphEditor, replaced: set[str]) -> None:
    """Remove constants whose unsigned copies are read in their place: a file may have 2 GB."""
    read = {value.name for value in (*editor.graph.input, *editor.graph.output)}
    for node in editor.nodes:
        read |= names_read(node)
    drop_named(editor.graph.initializer, lambda name: name in replaced and name not in read)
