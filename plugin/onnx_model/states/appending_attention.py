"""The nodes of an attention over caches that grow, in place of an operator for grouped queries.

A call of one new position, the last of all, sees every key, and lengths only place it. Of several each sees the keys up
to its own; what is added to scores hides those behind it, and those before a window. Caches of keys and of values may
be one, in which both are stacked. Definition:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.operator_sets.contrib.cached_codes import CachedCodes, has_codes
from sartor.onnx_model.states.attention_forms import MICROSOFT

KEY, PAST_KEY, PAST_VALUE, LENGTHS, COSINES, SINES, POSITIONS = 1, 3, 4, 5, 7, 8, 9
"""Places of the operator's inputs."""
COMPUTED = 0, COSINES
"""Those that have the element type in which it computes."""
_BIAS, _SINK = 10, 11
_POSITIONS_RANK, _HEADS_FROM_LAST = 2, 3


Hidden = dict[tuple[str, int, int], str]
"""What is added to scores, by what tells lengths, how many heads share keys, and the window."""


class Attention:
    """Attention of one new position.

    Args:
        hidden: what is added to scores, which layers have in common.
        tokens: an input with the call's tokens along its second axis; empty if none is known.
        node: the operator.
        editor: of the graph.
        width: of a head.
    """

    def __init__(self, hidden: Hidden, tokens: str, node: NodeProto, editor: GraphEditor, width: int) -> None:
        self._hidden, self._tokens = hidden, tokens or str(node.input[0])
        self._node, self._emit, self._width = node, Emitter(editor, node), width
        self._found = attributes(node)
        self._heads, self._groups = int(self._found["num_heads"]), int(self._found["kv_num_heads"])
        self._window = int(self._found.get("local_window_size", -1))

    def nodes(self) -> list[NodeProto]:
        """The nodes: heads that share keys are rows of one product."""
        emit, node = self._emit, self._node
        query, key, value = self._operands()
        if self._found.get("do_rotary"):
            query, key = (self._turned(name, count) for name, count in ((query, self._heads), (key, self._groups)))
        keys, values = self._joined(key, value)
        grouped = emit("Reshape", self._by_head(query), self._shape(0, self._groups, -1, self._width), part="group")
        turned = emit("Transpose", keys, part="turn_keys", perm=[0, 1, 3, 2])
        scores = emit("MatMul", grouped, turned, part="scores")
        scale = self._found.get("scale") or 1 / math.sqrt(self._width)
        scores = emit("Mul", scores, emit.like(scale, self._table, "scale"), part="scale")
        scores = self._biased(self._capped(scores), keys)
        if self._hides:
            scores = emit("Add", scores, self._hiding(keys), part="visible")
        context = emit("MatMul", self._weights(scores, query), values)
        flat = self._shape(0, self._length, self._heads * self._width)
        emit("Reshape", self._by_position(context), flat, part="flatten_heads", output=node.output[0])
        return emit.nodes

    _length = 1

    def _by_head(self, query: str) -> str:
        """Queries with heads before positions, which are one."""
        return query

    def _by_position(self, context: str) -> str:
        return context

    @property
    def _hides(self) -> bool:
        """Whether a position does not see all keys."""
        return self._window > 0

    def _biased(self, scores: str, keys: str) -> str:
        """The scores with what is added to them by heads: rows of the product are heads, and their positions."""
        emit, bias = self._emit, optional_input(self._node, _BIAS)
        if not bias:
            return scores
        if self._length == 1 and self._is_of_all_heads(bias):
            return emit("Add", scores, bias, part="bias")
        count = self._count(keys, 2)
        by_head = emit("Concat", self._shape(0, self._heads, -1), count, part="by_head_shape", axis=0)
        grouped = emit("Concat", self._shape(0, self._groups, -1), count, part="by_group_shape", axis=0)
        biased = emit("Add", emit("Reshape", scores, by_head, part="scores_by_head"), bias, part="bias")
        return emit("Reshape", biased, grouped, part="scores_by_group")

    def _is_of_all_heads(self, bias: str) -> bool:
        """Whether what is added is known to be the same for all heads."""
        kind = self._emit.editor.type(bias)
        dims = () if kind is None else kind.tensor_type.shape.dim
        return len(dims) == _POSITIONS_RANK or (len(dims) > _POSITIONS_RANK and dims[-_HEADS_FROM_LAST].dim_value == 1)

    def _capped(self, scores: str) -> str:
        if not (softcap := self._found.get("softcap")):
            return scores
        emit = self._emit
        cap = emit.like(softcap, self._table, "softcap")
        return emit("Mul", emit("Tanh", emit("Div", scores, cap, part="below_cap"), part="bend"), cap, part="softcap")

    def _weights(self, scores: str, query: str) -> str:
        """The weights of the keys; a sink takes part in the sum, and is no key."""
        emit, sink, table = self._emit, optional_input(self._node, _SINK), self._table
        if not sink and int(self._found.get("smooth_softmax", 0)) <= 0:
            return emit("Softmax", scores, part="softmax", axis=-1)
        name = sink or emit.constant(np.zeros(self._heads, emit.dtype(table)), "smooth")
        shared = self._heads // self._groups
        column = emit("Reshape", name, self._shape(1, self._groups, shared, 1), part="sink")
        size = emit("Concat", self._shape(1, 1, 1), self._count(query, 1), part="sink_shape", axis=0)
        rows = emit(
            "Reshape", emit("Expand", column, size, part="sinks"), self._shape(1, self._groups, -1, 1), part="sinks"
        )
        batch = emit("Concat", self._count(query, 0), self._shape(1, 1, 1), part="sink_batch", axis=0)
        joined = emit("Concat", scores, emit("Expand", rows, batch, part="sinks"), part="with_sink", axis=-1)
        weights = emit("Softmax", joined, part="softmax", axis=-1)
        bounds = [emit.constant([value], "bound") for value in (0, -1, 3)]
        return emit("Slice", weights, *bounds, part="without_sink")

    def _hiding(self, keys: str) -> str:
        """What hides keys, [batch, 1, rows, positions]; the keys are [batch, groups, positions, width]."""
        shared = self._heads // self._groups
        key = self._node.input[LENGTHS], shared, self._window
        if key not in self._hidden:
            self._hidden[key] = self._spread(self._added(keys), keys, shared)
        return self._hidden[key]

    def _added(self, keys: str) -> str:
        """What is added to the scores of the call's positions, [batch, positions of the call, positions]."""
        emit, table = self._emit, self._table
        own = emit("Unsqueeze", self._positions(), emit.constant([2], "axis"), part="own_column")
        places = self._range(self._count(keys, 2))
        is_seen = emit("LessOrEqual", places, own, part="is_seen")
        if self._window > 0:
            begin = emit("Sub", own, emit.constant([self._window], "window"), part="window")
            is_seen = emit("And", is_seen, emit("Greater", places, begin, part="in_window"), part="is_near")
        limits: Any = ml_dtypes.finfo(emit.dtype(table))  # type: ignore[no-untyped-call]
        least, nothing = (emit.like(value, table, "added") for value in (float(limits.min), 0.0))
        return emit("Where", is_seen, nothing, least, part="added")

    def _spread(self, added: str, keys: str, shared: int) -> str:
        """The same for the rows of a product, which are heads of one position."""
        del keys, shared
        return self._emit("Unsqueeze", added, self._emit.constant([1], "axes"), part="added_to_heads")

    def _operands(self) -> list[str]:
        names = [optional_input(self._node, index) for index in range(3)]
        if names[KEY]:
            return names
        sizes = [count * self._width for count in (self._heads, self._groups, self._groups)]
        parts = self._emit.constant(sizes, "sizes")
        return list(self._emit.many("Split", names[0], parts, part="unpack", outputs=("", "", ""), axis=-1))

    def _turned(self, name: str, count: int) -> str:
        """Rotary embedding of the call's positions."""
        emit, node = self._emit, self._node
        positions = optional_input(node, POSITIONS) or self._positions()
        table = emit.editor.shape(node.input[COSINES])
        # Told only of heads that are turned in part.
        turned = 2 * table[1] if table is not None and 2 * table[1] < self._width else None
        return emit(
            "RotaryEmbedding",
            name,
            positions,
            node.input[COSINES],
            node.input[SINES],
            part="turn",
            domain=MICROSOFT,
            interleaved=int(self._found.get("rotary_interleaved", 0)),
            num_heads=None if turned is None else count,
            rotary_embedding_dim=turned,
        )

    def _positions(self) -> str:
        """The call's positions, [batch, positions]: the last one is told."""
        column = self._emit("Reshape", self._node.input[LENGTHS], self._shape(-1, 1), part="positions")
        return self._emit("Cast", column, part="positions", to=TensorProto.INT64)

    @property
    def _table(self) -> str:
        """What has the element type that attention computes in; that of scales need not be known."""
        node, editor = self._node, self._emit.editor
        if not has_codes(node):
            return str(node.input[PAST_KEY])
        names = (optional_input(node, index) for index in COMPUTED)
        return next(name for name in names if name and editor.element_type(name))

    def _joined(self, key: str, value: str) -> tuple[str, str]:
        """The caches of keys and of values with the new positions, [batch, groups, positions, width]."""
        emit, past = self._emit, self._node.input[PAST_KEY]
        new = [self._heads_of(key, "keys"), self._heads_of(value, "values")]
        if past != self._node.input[PAST_VALUE]:
            return self._appended(new[0], 0, "keys"), self._appended(new[1], 1, "values")
        first = emit.constant([0], "first")
        rows = emit("Concat", *(emit("Unsqueeze", rows, first, part="raised") for rows in new), part="rows", axis=0)
        whole = emit("Concat", past, rows, part="append", output=self._node.output[1], axis=3)
        places = (emit.constant(np.array(place, np.int64), "place") for place in (0, 1))
        keys, values = (emit("Gather", whole, place, part="half", axis=0) for place in places)
        return keys, values

    def _heads_of(self, new: str, part: str) -> str:
        split = self._emit(
            "Reshape", new, self._shape(0, self._length, self._groups, self._width), part=f"{part}_heads"
        )
        return self._emit("Transpose", split, part=f"{part}_by_head", perm=[0, 2, 1, 3])

    def _appended(self, by_head: str, index: int, part: str) -> str:
        """The cache of keys, ``index`` 0, or values with the new positions."""
        node, past, present = self._node, self._node.input[PAST_KEY + index], self._node.output[1 + index]
        if not has_codes(node):
            return self._emit("Concat", past, by_head, part=part, output=present, axis=2)
        codes = CachedCodes.of(self._emit, index, self._groups, self._width, self._table)
        whole = self._emit("Concat", past, codes.stored(codes.rounded(by_head)), part=part, output=present, axis=2)
        return codes.values(codes.read(whole))

    def _shape(self, *sizes: int) -> str:
        return self._emit.constant(list(sizes), "shape")

    def _count(self, name: str, axis: int) -> str:
        """The size of a value along an axis, of shape [1]."""
        emit = self._emit
        return emit("Gather", emit("Shape", name, part="shape"), emit.constant([axis], "axis"), part="count", axis=0)

    def _range(self, count: str) -> str:
        """Numbers from zero on."""
        emit = self._emit
        none, one = (emit.constant(np.array(bound, np.int64), "bound") for bound in (0, 1))
        scalar = emit("Squeeze", count, emit.constant([0], "axis"), part="count")
        return emit("Range", none, scalar, one, part="numbers")


class SeveralPositions(Attention):
    """Attention of several new positions."""

    # As many as there are.
    _length = 0

    def _by_head(self, query: str) -> str:
        split = self._emit("Reshape", query, self._shape(0, 0, self._heads, self._width), part="heads")
        return self._emit("Transpose", split, part="by_head", perm=[0, 2, 1, 3])

    def _by_position(self, context: str) -> str:
        by_head = self._emit("Reshape", context, self._shape(0, self._heads, -1, self._width), part="ungroup")
        return self._emit("Transpose", by_head, part="merge_heads", perm=[0, 2, 1, 3])

    def _positions(self) -> str:
        emit, count = self._emit, self._count(self._tokens, 1)
        last = super()._positions()
        first = emit("Sub", last, emit("Sub", count, emit.constant([1], "one"), part="others"), part="first_position")
        return emit("Add", first, self._range(count), part="own_positions")

    @property
    def _hides(self) -> bool:
        return bool(self._found.get("causal", 1))

    def _spread(self, added: str, keys: str, shared: int) -> str:
        """The same for the rows of a product, in which heads come first."""
        emit = self._emit
        raised = emit("Unsqueeze", added, emit.constant([1, 2], "axes"), part="added_per_head")
        spread = emit("Expand", raised, self._shape(1, 1, shared, 1, 1), part="added_to_heads")
        shape = emit("Concat", self._shape(0, 1, -1), self._count(keys, 2), part="rows", axis=0)
        return emit("Reshape", spread, shape, part="added_to_rows")
