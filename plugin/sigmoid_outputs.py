"""Which outputs are values of Sigmoid: ONNX Runtime's own error hides what small ones are."""

from __future__ import annotations

from onnx import ModelProto, TensorProto

from sartor.onnx_model.graph import GraphEditor

# docs/accuracy.md derives it: ONNX Runtime's float32 Sigmoid is off by up to 1.7e-7, whatever the value.
SIGMOID_FLOOR = 2.0**-22
# They move values, and compute none.
_MOVES = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})


def output_floors(model: ModelProto) -> tuple[float, ...]:
    """The absolute difference, of each output in order, below which ONNX Runtime says nothing: 0 but for Sigmoid.

    Args:
        model: the original or the prepared one.
    """
    editor = GraphEditor(model.graph)
    return tuple(
        SIGMOID_FLOOR
        if output.type.tensor_type.elem_type == TensorProto.FLOAT and _is_sigmoid(output.name, editor)
        else 0.0
        for output in model.graph.output
    )


def _is_sigmoid(name: str, editor: GraphEditor) -> bool:
    """Whether all elements of a value were computed by Sigmoid, and only moved since."""
    pending, seen = [name], {name}
    while pending:
        node = editor.producer(pending.pop())
        if node is None or node.domain or node.op_type not in {"Sigmoid", *_MOVES}:
            return False
        if node.op_type in _MOVES:
            sources = set(node.input) if node.op_type == "Concat" else {node.input[0]}
            pending.extend(sources - seen)
            seen |= sources
    return True
