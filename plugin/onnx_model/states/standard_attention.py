"""Writes ONNX's Attention over caches that are inputs of open length as ONNX Runtime's operator for grouped queries.

So both are written out alike. Definition: https://onnx.ai/onnx/operators/onnx__Attention.html
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

OPERATOR = "Attention"
_PAST_KEY, _PAST_VALUE, _FIRST_OTHER = 4, 5, 6
_MASK, _FLOATS = 3, frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Of the grouped operator.
_LAST_PLACE, _BIAS = 5, 10
_READ = frozenset({"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap"})
_OFF: dict[str, tuple[int, ...]] = {"qk_matmul_output_mode": (0,), "softmax_precision": (0, TensorProto.FLOAT)}


class StandardAttention:
    """Nodes of a graph as the grouped operator.

    Args:
        tokens: an input with the call's tokens along its second axis, or empty.
        several: whether a call has several tokens.
    """

    def __init__(self, tokens: str, *, several: bool) -> None:
        self._tokens, self._several = tokens, several
        self._last = ""

    def grouped(self, node: NodeProto, editor: GraphEditor) -> tuple[list[NodeProto], NodeProto] | None:
        """The operator for grouped queries with nodes that compute what it reads; None for what it cannot say."""
        if node.op_type != OPERATOR or node.domain or not self._is_usual(node, editor):
            return None
        found, emit = attributes(node), Emitter(editor, node)
        last = self._last_position(emit, node) if self._several and not self._last else self._last
        values = {"num_heads": found["q_num_heads"], "kv_num_heads": found["kv_num_heads"]}
        values |= {name: found[name] for name in ("scale", "softcap") if found.get(name)}
        # The number of all positions, which the operator takes too, is not read.
        operands = [*node.input[:3], node.input[_PAST_KEY], node.input[_PAST_VALUE], last, ""]
        if optional_input(node, _MASK):
            operands += [*[""] * (_BIAS - len(operands)), self._added(emit, node)]
            values["causal"] = found.get("is_causal", 0)
        made = helper.make_node(
            "GroupQueryAttention", operands, node.output, name=node.name, domain="com.microsoft", **values
        )
        return emit.nodes, made

    def keep(self, made: NodeProto) -> None:
        """Let later nodes read the last place that one reads, as the graph has the nodes that compute it."""
        self._last = made.input[_LAST_PLACE]

    def _is_usual(self, node: NodeProto, editor: GraphEditor) -> bool:
        """Whether heads lie side by side, and nothing else is taken or given than caches."""
        found: dict[str, Any] = attributes(node)
        has_caches = all(optional_input(node, place) for place in (_PAST_KEY, _PAST_VALUE))
        mask = optional_input(node, _MASK)
        others = any((*node.input[_FIRST_OTHER:], *node.output[3:])) or not self._is_whole(mask, editor)
        named = all(name in _READ or value in _OFF.get(name, ()) for name, value in found.items())
        has_heads = {"q_num_heads", "kv_num_heads"} <= found.keys()
        return (
            has_caches
            and has_heads
            and named
            and not others
            and (not self._several or bool(mask or found.get("is_causal")))
        )

    @staticmethod
    def _is_whole(mask: str, editor: GraphEditor) -> bool:
        """Whether a mask is of a known type, and as long as the keys: one of fixed length may be shorter."""
        kind = editor.type(mask) if mask else None
        if kind is None:
            return not mask
        dims = kind.tensor_type.shape.dim
        return editor.element_type(mask) in {TensorProto.BOOL, *_FLOATS} and bool(dims) and not dims[-1].dim_value

    @staticmethod
    def _added(emit: Emitter, node: NodeProto) -> str:
        """What the mask adds to scores: no infinite numbers, as those of a token that sees no key would become NaN, in
        the caches too, and then what every later layer gives."""
        mask, table, editor = node.input[_MASK], node.input[_PAST_KEY], emit.editor
        limits: Any = ml_dtypes.finfo(emit.dtype(table))  # type: ignore[no-untyped-call]
        least, nothing = (emit.like(value, table, "added") for value in (float(limits.min), 0.0))
        kind = editor.type(mask)
        if kind is not None and kind.tensor_type.elem_type != TensorProto.BOOL:
            added = emit("Max", mask, least, part="added_by_mask")
            # By its shape it may be added to all heads at once.
            editor.set_type(added, kind)
            return added
        return emit("Where", mask, nothing, least, part="added_by_mask")

    def _last_position(self, emit: Emitter, node: NodeProto) -> str:
        """The place of the call's last token, of shape [1]."""
        axes = (node.input[_PAST_KEY], 2), (self._tokens or node.input[0], 1)
        past, new = (
            emit("Gather", emit("Shape", name, part="shape"), emit.constant([axis], "axis"), part="count", axis=0)
            for name, axis in axes
        )
        total = emit("Add", past, new, part="total")
        return emit("Sub", total, emit.constant([1], "one"), part="last")
