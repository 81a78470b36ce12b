"""Forgets declared shapes of computed values that the inputs' shapes contradict.

ONNX Runtime warns of them and computes what the nodes say, and so do exporters' own runtimes; an output that was
declared for another batch is common.
"""

from __future__ import annotations

import logging

from onnx import ModelProto, ValueInfoProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.infer import forget_shapes, infer_shapes, without_weights
from sartor.onnx_model.graphs.walk import drop_named

_LOG = logging.getLogger(__name__)
_MOST_NAMED = 3


def forget_contradicted(model: ModelProto) -> tuple[str, ...]:
    """Forget declared shapes of values and outputs that inference contradicts, in place; returns the values' names.

    A warning names them. Element types that contradict each other are left: nothing says which one is meant.
    """
    declared = [value for value in (*model.graph.value_info, *model.graph.output) if _dimensions(value) is not None]
    if not declared:
        return ()
    computed = without_weights(model)
    forget_shapes(computed)
    infer_shapes(computed)
    editor = GraphEditor(computed.graph)
    wrong = {value.name: said for value in declared if (said := _contradiction(value, editor))}
    if wrong:
        more = f", and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        said = "; ".join(list(wrong.values())[:_MOST_NAMED])
        _LOG.warning("the model declares shapes that its nodes contradict, which are ignored: %s%s", said, more)
        _forget(model, set(wrong))
    return tuple(wrong)


def _contradiction(value: ValueInfoProto, editor: GraphEditor) -> str:
    """A phrase that says how a declared shape differs from what is computed; empty if it does not."""
    kind, dims = editor.type(value.name), _dimensions(value)
    if kind is None or not kind.tensor_type.HasField("shape") or dims is None:
        return ""
    computed = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim]
    pairs = zip(dims, computed, strict=False)
    if len(dims) == len(computed) and all(one is None or other is None or one == other for one, other in pairs):
        return ""
    return f"'{value.name}' is {_written(computed)} and not {_written(dims)}"


def _written(dims: list[int | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _dimensions(value: ValueInfoProto) -> list[int | None] | None:
    """The declared sizes, None where one is open; None if no shape is declared."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def _forget(model: ModelProto, names: set[str]) -> None:
    drop_named(model.graph.value_info, names.__contains__)
    for value in model.graph.output:
        if value.name in names:
            value.type.tensor_type.ClearField("shape")
