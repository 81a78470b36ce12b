"""Writes ONNX's Attention over caches that are inputs of open length as ONNX Runtime's operator for grouped queries.

So both are written out alike. Definition: https://onnx.ai/onnx/operators/onnx__Attention.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

OPERATOR = "Attention"
_PAST_KEY, _PAST_VALUE, _FIRST_OTHER = 4, 5, 6
_MASK, _FLOATS = 3, frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Of the grouped operator.
_LAST_PLACE, _BIAS = 5, 10
_MATRIX = 2
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

    def grouped(
        self, node: NodeProto, editor: GraphEditor
    ) -> tuple[list[NodeProto], NodeProto, list[NodeProto]] | None:
        """The operator for grouped queries, with nodes that compute what it reads, and those that read what it gives;
        None for what it cannot say."""
        if node.op_type != OPERATOR or node.domain or not self._is_usual(node, editor):
            return None
        settings, emit = attributes(node), Emitter(editor, node)
        last = self._last_position(emit, node) if self._several and not self._last else self._last
        values = {"num_heads": settings["q_num_heads"], "kv_num_heads": settings["kv_num_heads"]}
        values |= {name: settings[name] for name in ("scale", "softcap") if settings.get(name)}
        # The number of all positions, which the operator takes too, is not read.
        operands = [*node.input[:3], node.input[_PAST_KEY], node.input[_PAST_VALUE], last, ""]
        results, after = list(node.output), Emitter(editor, node)
        if optional_input(node, _MASK):
            mask = _Mask(emit, node, self._visible(emit, node) if self._several and settings.get("is_causal") else "")
            operands += [*[""] * (_BIAS - len(operands)), mask.added()]
            values["causal"] = 0
            results[0] = editor.fresh(f"{node.output[0]}/attended")
            mask.drop_blind(after, results[0])
        made = helper.make_node(
            "GroupQueryAttention", operands, results, name=node.name, domain="com.microsoft", **values
        )
        return emit.nodes, made, after.nodes

    def keep(self, made: NodeProto) -> None:
        """Let later nodes read the last place that one reads, as the graph has the nodes that compute it."""
        self._last = made.input[_LAST_PLACE]

    def _is_usual(self, node: NodeProto, editor: GraphEditor) -> bool:
        """Whether heads lie side by side, and nothing else is taken or given than caches."""
        settings: dict[str, Any] = attributes(node)
        has_caches = all(optional_input(node, place) for place in (_PAST_KEY, _PAST_VALUE))
        mask = optional_input(node, _MASK)
        others = any((*node.input[_FIRST_OTHER:], *node.output[3:])) or not self._is_whole(mask, editor)
        named = all(name in _READ or value in _OFF.get(name, ()) for name, value in settings.items())
        has_heads = {"q_num_heads", "kv_num_heads"} <= settings.keys()
        return (
            has_caches
            and has_heads
            and named
            and not others
            and (not self._several or bool(mask or settings.get("is_causal")))
        )

    @staticmethod
    def _is_whole(mask: str, editor: GraphEditor) -> bool:
        """Whether a mask is of a known type, and as long as the keys: one of fixed length may be shorter."""
        kind = editor.type(mask) if mask else None
        if kind is None:
            return not mask
        dims = kind.tensor_type.shape.dim
        return editor.element_type(mask) in {TensorProto.BOOL, *_FLOATS} and bool(dims) and not dims[-1].dim_value

    def _visible(self, emit: Emitter, node: NodeProto) -> str:
        """Whether a call's positions, one a row, see each key that their places allow."""
        past, new = self._counts(emit, node)
        none, one = (emit.constant(np.array(bound, np.int64), "bound") for bound in (0, 1))
        axis = emit.constant([0], "axis")
        total = emit("Squeeze", emit("Add", past, new, part="total"), axis, part="total")
        own = emit("Range", emit("Squeeze", past, axis, part="past"), total, one, part="own")
        column = emit("Unsqueeze", own, emit.constant([1], "axis"), part="own_column")
        return emit("LessOrEqual", emit("Range", none, total, one, part="places"), column, part="visible")

    def _counts(self, emit: Emitter, node: NodeProto) -> tuple[str, str]:
        """The number of positions before the call, and of its own, of shape [1]."""
        is_stacked = node.input[_PAST_KEY] == node.input[_PAST_VALUE]
        axes = (node.input[_PAST_KEY], 3 if is_stacked else 2), (self._tokens or node.input[0], 1)
        past, new = (
            emit("Gather", emit("Shape", name, part="shape"), emit.constant([axis], "axis"), part="count", axis=0)
            for name, axis in axes
        )
        return past, new

    def _last_position(self, emit: Emitter, node: NodeProto) -> str:
        """The place of the call's last token, of shape [1]."""
        total = emit("Add", *self._counts(emit, node), part="total")
        return emit("Sub", total, emit.constant([1], "one"), part="last")


class _Mask:
    """The mask of a node.

    A token that sees no key gives zeros, as ONNX and ONNX Runtime have it, and not the mean of values that remains of
    scores which are all lowered alike.

    Args:
        emit: collects nodes before the attention.
        node: it.
        visible: what the places of tokens allow to see; empty if they hide nothing.
    """

    def __init__(self, emit: Emitter, node: NodeProto, visible: str) -> None:
        self._emit, self._node, self._visible = emit, node, visible
        self._mask = str(node.input[_MASK])
        self._is_truth = emit.editor.element_type(self._mask) == TensorProto.BOOL
        limits: Any = ml_dtypes.finfo(emit.dtype(node.input[_PAST_KEY]))  # type: ignore[no-untyped-call]
        self._least = self._like(float(limits.min))
        self._seen = self._whole()

    def _like(self, value: float) -> str:
        return self._emit.like(value, self._node.input[_PAST_KEY], "added")

    def _whole(self) -> str:
        """The mask with what places hide: truth values, or what is added, which may be minus infinity."""
        if not self._visible:
            return self._mask
        if self._is_truth:
            return self._emit("And", self._mask, self._visible, part="is_seen")
        return self._emit("Where", self._visible, self._mask, self._like(-math.inf), part="seen")

    def added(self) -> str:
        """What is added to scores: no infinite numbers, as those of a token that sees no key would become NaN, in the
        caches too, and then what every later layer gives."""
        emit = self._emit
        if self._is_truth:
            return emit("Where", self._seen, self._like(0.0), self._least, part="added_by_mask")
        added = emit("Max", self._seen, self._least, part="added_by_mask")
        kind = emit.editor.type(self._mask)
        if kind is not None and not self._visible:
            # By its shape it may be added to all heads at once.
            emit.editor.set_type(added, kind)
        return added

    def drop_blind(self, emit: Emitter, result: str) -> None:
        """Nodes that give what the node does of ``result``, [batch, positions, all heads]: zeros for tokens that see
        no key, by each head."""
        node, rank = self._node, len(self._dims)
        sees = self._sees(emit)
        if rank > _MATRIX:
            sees = emit("Transpose", sees, part="sees", perm=[*range(rank - 3), rank - 2, rank - 3, rank - 1])
        else:
            sees = emit("Unsqueeze", sees, emit.constant([-1], "axis"), part="sees")
        heads = int(attributes(node)["q_num_heads"])
        split = emit("Reshape", result, emit.constant([0, 0, heads, -1], "by_head"), part="by_head")
        shown = emit("Where", sees, split, self._like(0.0), part="shown")
        emit("Reshape", shown, emit.constant([0, 0, -1], "flat"), part="flat", output=node.output[0])

    @property
    def _dims(self) -> Sequence[Any]:
        kind = self._emit.editor.type(self._mask)
        return () if kind is None else kind.tensor_type.shape.dim

    def _sees(self, emit: Emitter) -> str:
        """Whether tokens see any key, with an axis of one in place of the keys."""
        last = emit.constant([-1], "axis")
        if not self._is_truth:
            highest = emit("ReduceMax", self._seen, last, part="highest", keepdims=1)
            return emit("GreaterOrEqual", highest, self._least, part="sees")
        whole = emit("Cast", self._seen, part="seen", to=TensorProto.INT32)
        count = emit("ReduceMax", whole, last, part="seen", keepdims=1)
        return emit("Cast", count, part="sees", to=TensorProto.BOOL)
