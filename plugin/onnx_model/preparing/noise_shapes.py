"""Gives inputs that stand for random operators the shapes that the model computes for them."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.noise import noise_of


def declare_noise(model: ModelProto) -> tuple[str, ...]:
    """Declare the shapes of noise that are known by now, in place; returns the inputs' names.

    What reshapes such an input, or cuts it to as many elements as there are, becomes an Identity.
    """
    open_names = {noise.name for noise in noise_of(model)} & _without_shape(model)
    if not open_names:
        return ()
    infer_shapes(model)
    shapes = dict[str, tuple[int, ...]]()

    def plain(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        shape = _given_shape(node, editor) if node.input and node.input[0] in open_names else None
        if shape is None:
            return None
        shapes[node.input[0]] = shape
        return [helper.make_node("Identity", node.input[:1], node.output, name=node.name)]

    rewrite_nodes(model, plain)
    for value in model.graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type
            kind.CopyFrom(helper.make_tensor_type_proto(kind.elem_type, shapes[value.name]).tensor_type)
    return tuple(shapes)


def _given_shape(node: NodeProto, editor: GraphEditor) -> tuple[int, ...] | None:
    """The shape that a node gives noise, if it is known: of a slice its ends, which are constant then."""
    if node.op_type == "Slice":
        ends = editor.constant(node.input[2])
        return None if ends is None else tuple(map(int, ends))
    return editor.shape(node.output[0]) if node.op_type == "Reshape" else None


def _without_shape(model: ModelProto) -> set[str]:
    return {value.name for value in model.graph.input if not value.type.tensor_type.HasField("shape")}
