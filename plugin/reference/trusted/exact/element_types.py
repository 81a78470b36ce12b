"""Which values of a model are signed integers of 8 bits."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, checker, shape_inference

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, optional_input
from sartor.onnx_model.graphs.guarded_slices import inferred_types
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.graphs.walk import describe_node, graphs
from sartor.reference.trusted.exact.operands import PRODUCTS, Quantised, key_of, product_of

_FAILURES = (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError)


def complete_types(model: ModelProto) -> None:
    """Add the types that ONNX infers, in place, if operands of products lack them."""
    if all(_is_typed(node, editor) for editor in editors(model.graph) for node in editor.nodes):
        return
    try:
        inferred = inferred_types(without_weights(model))
    except _FAILURES:
        return
    for graph, typed in zip(graphs(model.graph), graphs(inferred.graph), strict=True):
        _add_types(graph, typed)


def _add_types(graph: GraphProto, typed: GraphProto) -> None:
    known = {value.name for value in (*graph.value_info, *graph.output)}
    graph.value_info.extend(value for value in typed.value_info if value.name not in known)


def _is_typed(node: NodeProto, editor: GraphEditor) -> bool:
    product = product_of(node, editor)
    return product is None or all(
        any(editor.element_type(optional_input(node, index)) for index in (operand.zero, operand.index))
        for operand in product.read
    )


def is_signed(node: NodeProto, operand: Quantised, editor: GraphEditor) -> bool:
    """Whether an operand of a node is of signed integers of 8 bits.

    Raises:
        UnsupportedModelError: if its type cannot be found.
    """
    value, zero = optional_input(node, operand.index), optional_input(node, operand.zero)
    kind = element_type(zero, editor) or element_type(value, editor)
    if not kind:
        raise UnsupportedModelError(
            f"{describe_node(node)} multiplies '{value}', whose type is not known; "
            "declare the types of all values, as onnx.shape_inference does"
        )
    return bool(kind == TensorProto.INT8)


def writes_signed(node: NodeProto, written: Quantised, editor: GraphEditor) -> bool:
    """Whether the result of a node is of signed integers of 8 bits."""
    zero = optional_input(node, written.zero)
    kind = element_type(zero, editor) if zero else attributes(node).get("output_dtype")
    return bool(kind == TensorProto.INT8)


def element_type(name: str, editor: GraphEditor) -> int:
    """ONNX element type of a value, or 0 if it is not known. Results of unknown operators have their operand's."""
    while name:
        known, node = editor.element_type(name), editor.producer(name)
        if known or node is None:
            return known
        match key_of(node)[1]:
            case "Constant":
                return int(
                    next((attribute.t.data_type for attribute in node.attribute if attribute.name == "value"), 0)
                )
            case "Cast":
                return int(attributes(node)["to"])
            case "DynamicQuantizeLinear":
                return int(TensorProto.FLOAT if name == node.output[1] else TensorProto.UINT8)
            case "QuantizeLinear" if not optional_input(node, 2):
                return int(attributes(node).get("output_dtype") or TensorProto.UINT8)
        product = PRODUCTS.get(key_of(node))
        name = optional_input(node, product.written.zero if product and product.written else 0)
    return 0
