"""Writes ONNX Runtime's GroupQueryAttention over caches that grow as nodes: what appends to a cache is one of them.

A call of one new position, the last of all, sees every key, and lengths only place it. Of several each sees the keys up
to its own, which what is added to scores hides from it. Definition:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

OPERATOR = "GroupQueryAttention"
_MICROSOFT = "com.microsoft"
_KEY, _PAST_KEY, _PAST_VALUE, _LENGTHS, _COSINES, _SINES, _POSITIONS = 1, 3, 4, 5, 7, 8, 9
_LAST_USUAL = 10
_ATTRIBUTES = frozenset({"do_rotary", "kv_num_heads", "num_heads", "rotary_interleaved", "scale"})
# Of norms whose weights are inputs that are absent.
_UNREAD = frozenset({"k_norm_epsilon", "q_norm_epsilon", "qk_norm_epsilon"})
# Values that say that the node does nothing else, as exporters write them out. A window of 0 hides all before.
_OFF: dict[str, tuple[float | str, ...]] = {
    "causal": (1,),
    "k_quant_type": ("NONE",),
    "kv_cache_bit_width": (0,),
    "local_window_size": (-1,),
    "qk_output": (0,),
    "sliding_window_cache": (0,),
    "smooth_softmax": (-1, 0),
    "softcap": (0.0,),
    "v_quant_type": ("NONE",),
}
_RANK = 4


def append_explicitly(model: ModelProto, *, several: bool = False) -> tuple[str, ...]:
    """Replace attentions over caches that are inputs of open length; returns the names of their nodes.

    Args:
        model: changed in place.
        several: whether a call has several new positions.
    """
    editor, hidden = GraphEditor(model.graph), dict[tuple[str, int], str]()
    return editor.rewrite(lambda node: _explicit(node, editor, hidden if several else None))


def _explicit(
    node: NodeProto, editor: GraphEditor, hidden: dict[tuple[str, int], str] | None
) -> list[NodeProto] | None:
    if node.op_type != OPERATOR or node.domain != _MICROSOFT or not _is_usual(node):
        return None
    dims = [_dims(optional_input(node, index), editor) for index in (_PAST_KEY, _PAST_VALUE)]
    if any(len(each) != _RANK or each[2] or not each[3] for each in dims):
        return None
    return (_Attention if hidden is None else partial(_SeveralPositions, hidden))(node, editor, dims[0][3]).nodes()


def _is_usual(node: NodeProto) -> bool:
    """Whether the node has nothing beside rotary embedding and a scale."""
    found = attributes(node)
    named = all(name in _ATTRIBUTES | _UNREAD or value in _OFF.get(name, ()) for name, value in found.items())
    others = any(node.input[_LAST_USUAL:]) or any(node.output[3:])
    return named and not others and all(len(node.output) > index for index in (1, 2))


def _dims(name: str, editor: GraphEditor) -> list[int]:
    """Sizes of an input, 0 where they are open; none of what is no input."""
    kind = editor.type(name) if name and editor.producer(name) is None else None
    return [] if kind is None else [max(0, dim.dim_value) for dim in kind.tensor_type.shape.dim]


class _Attention:
    """Attention of one new position."""

    def __init__(self, node: NodeProto, editor: GraphEditor, width: int) -> None:
        self._node, self._emit, self._width = node, Emitter(editor, node), width
        self._found = attributes(node)
        self._heads, self._groups = int(self._found["num_heads"]), int(self._found["kv_num_heads"])

    def nodes(self) -> list[NodeProto]:
        """The nodes: heads that share keys are rows of one product."""
        emit, node = self._emit, self._node
        query, key, value = self._operands()
        if self._found.get("do_rotary"):
            query, key = (self._turned(name, count) for name, count in ((query, self._heads), (key, self._groups)))
        keys = self._appended(key, node.input[_PAST_KEY], node.output[1], "keys")
        values = self._appended(value, node.input[_PAST_VALUE], node.output[2], "values")
        grouped = emit("Reshape", self._by_head(query), self._shape(0, self._groups, -1, self._width), part="group")
        turned = emit("Transpose", keys, part="turn_keys", perm=[0, 1, 3, 2])
        scores = emit("MatMul", grouped, turned, part="scores")
        scale = self._found.get("scale") or 1 / math.sqrt(self._width)
        scores = emit("Mul", scores, emit.like(scale, node.input[_PAST_KEY], "scale"), part="scale")
        context = emit("MatMul", emit("Softmax", self._shown(scores, keys), part="softmax", axis=-1), values)
        flat = self._shape(0, self._length, self._heads * self._width)
        emit("Reshape", self._by_position(context), flat, part="flatten_heads", output=node.output[0])
        return emit.nodes

    _length = 1

    def _by_head(self, query: str) -> str:
        """Queries with heads before positions, which are one."""
        return query

    def _by_position(self, context: str) -> str:
        return context

    def _shown(self, scores: str, keys: str) -> str:
        """Scores of the keys that a query sees, which are all; keys are [batch, groups, positions, width]."""
        del keys
        return scores

    def _operands(self) -> list[str]:
        names = [optional_input(self._node, index) for index in range(3)]
        if names[_KEY]:
            return names
        sizes = [count * self._width for count in (self._heads, self._groups, self._groups)]
        parts = self._emit.constant(sizes, "sizes")
        return list(self._emit.many("Split", names[0], parts, part="unpack", outputs=("", "", ""), axis=-1))

    def _turned(self, name: str, count: int) -> str:
        """Rotary embedding of the call's positions."""
        emit, node = self._emit, self._node
        positions = optional_input(node, _POSITIONS) or self._positions()
        table = emit.editor.shape(node.input[_COSINES])
        # Told only of heads that are turned in part.
        turned = 2 * table[1] if table is not None and 2 * table[1] < self._width else None
        return emit(
            "RotaryEmbedding",
            name,
            positions,
            node.input[_COSINES],
            node.input[_SINES],
            part="turn",
            domain=_MICROSOFT,
            interleaved=int(self._found.get("rotary_interleaved", 0)),
            num_heads=None if turned is None else count,
            rotary_embedding_dim=turned,
        )

    def _positions(self) -> str:
        """The call's positions, [batch, positions]: the last one is told."""
        column = self._emit("Reshape", self._node.input[_LENGTHS], self._shape(-1, 1), part="positions")
        return self._emit("Cast", column, part="positions", to=TensorProto.INT64)

    def _appended(self, new: str, past: str, present: str, part: str) -> str:
        """The cache with the new positions, [batch, groups, positions, width]."""
        split = self._emit(
            "Reshape", new, self._shape(0, self._length, self._groups, self._width), part=f"{part}_heads"
        )
        by_head = self._emit("Transpose", split, part=f"{part}_by_head", perm=[0, 2, 1, 3])
        return self._emit("Concat", past, by_head, part=part, output=present, axis=2)

    def _shape(self, *sizes: int) -> str:
        return self._emit.constant(list(sizes), "shape")


class _SeveralPositions(_Attention):
    """Attention of several new positions.

    Args:
        hidden: what is added to scores, by what tells lengths and by the heads that share keys: layers have it in
            common.
    """

    # As many as there are.
    _length = 0

    def __init__(self, hidden: dict[tuple[str, int], str], node: NodeProto, editor: GraphEditor, width: int) -> None:
        super().__init__(node, editor, width)
        self._hidden = hidden

    def _by_head(self, query: str) -> str:
        split = self._emit("Reshape", query, self._shape(0, 0, self._heads, self._width), part="heads")
        return self._emit("Transpose", split, part="by_head", perm=[0, 2, 1, 3])

    def _by_position(self, context: str) -> str:
        by_head = self._emit("Reshape", context, self._shape(0, self._heads, -1, self._width), part="ungroup")
        return self._emit("Transpose", by_head, part="merge_heads", perm=[0, 2, 1, 3])

    def _positions(self) -> str:
        emit, count = self._emit, self._count(self._node.input[0], 1)
        last = super()._positions()
        first = emit("Sub", last, emit("Sub", count, emit.constant([1], "one"), part="others"), part="first_position")
        return emit("Add", first, self._range(count), part="own_positions")

    def _shown(self, scores: str, keys: str) -> str:
        shared = self._heads // self._groups
        key = self._node.input[_LENGTHS], shared
        if key not in self._hidden:
            self._hidden[key] = self._hiding(keys, shared)
        return self._emit("Add", scores, self._hidden[key], part="visible")

    def _hiding(self, keys: str, shared: int) -> str:
        """What hides later positions, [batch, 1, rows, positions]: of the rows of a product heads come first."""
        emit, table = self._emit, self._node.input[_PAST_KEY]
        own = emit("Unsqueeze", self._positions(), emit.constant([2], "axis"), part="own_column")
        is_seen = emit("LessOrEqual", self._range(self._count(keys, 2)), own, part="is_seen")
        limits: Any = ml_dtypes.finfo(emit.dtype(table))  # type: ignore[no-untyped-call]
        least, nothing = (emit.like(value, table, "added") for value in (float(limits.min), 0.0))
        added = emit("Where", is_seen, nothing, least, part="added")
        raised = emit("Unsqueeze", added, emit.constant([1, 2], "axes"), part="added_per_head")
        spread = emit("Expand", raised, self._shape(1, 1, shared, 1, 1), part="added_to_heads")
        total = emit("Shape", keys, part="whole")
        rows = emit("Gather", total, emit.constant([2], "axis"), part="whole", axis=0)
        shape = emit("Concat", self._shape(0, 1, -1), rows, part="rows", axis=0)
        return emit("Reshape", spread, shape, part="added_to_rows")

    def _count(self, name: str, axis: int) -> str:
        """The size of a value along an axis, of shape [1]."""
        emit = self._emit
        return emit("Gather", emit("Shape", name, part="shape"), emit.constant([axis], "axis"), part="count", axis=0)

    def _range(self, count: str) -> str:
        """Numbers from zero on."""
        emit = self._emit
        none, one = (emit.constant(np.array(each, np.int64), "bound") for each in (0, 1))
        scalar = emit("Squeeze", count, emit.constant([0], "axis"), part="count")
        return emit("Range", none, scalar, one, part="numbers")
