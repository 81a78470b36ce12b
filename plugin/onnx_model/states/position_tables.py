"""How many positions a model's tables have rows for: what their rows are taken by is computed for more and more.

A table of learnt positions may be read at an offset, and one of relative positions by numbers that no longer grow. So
the nodes between a model's inputs and an index are evaluated, which are few and small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.operator_types.moving import MOVING

Feed = Callable[[str, int, int], Array | None]
"""The value of an input, or of a cache with the call's positions, when there are so many positions, those of the call
included, and all tokens have a number; None if its name tells nothing."""

# Nodes that compute indices. Others, as products, may take long.
_LIGHT = MOVING - {"DepthToSpace", "SpaceToDepth"} | {
    *("Abs", "Add", "And", "ArgMax", "Cast", "Ceil", "Clip", "Constant", "ConstantOfShape", "CumSum", "Div", "Equal"),
    *(
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
    ),
    *("Range", "ReduceMax", "ReduceMin", "ReduceSum", "Relu", "Round", "Shape", "Sign", "Size", "Sqrt", "Sub"),
    *("Trilu", "Where", "Xor"),
}
_MICROSOFT = "com.microsoft"
_GATHER, _SLICING, _TURNING = "Gather", "Slice", "RotaryEmbedding"
# Operand of the table of cosines, and of the positions, of rotary embedding by domain.
_ROTARY = {_MICROSOFT: (2, 1), "": (1, 3)}
_MOST_BYTES = 2**24
# Tables are not longer; an index that stays inside until then is bound by none.
_MOST_POSITIONS = 2**20
# An index that is inside, and the same for half as many, so far beyond a table's length no longer grows.
_FAR = 4
_TOKENS = (0, 1)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableBound:
    """How many positions a table has rows for.

    Attributes:
        table: its name.
        most: None if that cannot be told.
        is_ample: whether exporters write it for more positions than models are used with, as cosines of rotary
            embedding, and what is read up to a length.
    """

    table: str
    most: int | None
    is_ample: bool


class _Read(NamedTuple):
    """Rows that a node takes of a table, or the end up to which it reads it, which may be behind the last row."""

    table: str
    rows: int
    taken_by: str
    operator: str

    @property
    def is_rotary(self) -> bool:
        return self.operator == _TURNING


def table_bounds(model: ModelProto, editor: GraphEditor, feed: Feed, new: int) -> list[TableBound]:
    """The tables whose rows are taken by position, of which there is not one for any number.

    Args:
        model: as it was read.
        editor: of its graph.
        feed: gives inputs their values.
        new: positions of a call, the fewest that there are.
    """
    versions = [opset for opset in model.opset_import if not opset.domain]
    bounds = (_bound(read, _Index.of(read.taken_by, editor, versions, feed, new), editor) for read in _reads(editor))
    return [bound for bound in bounds if bound is not None]


def _bound(read: _Read, index: _Index | None, editor: GraphEditor) -> TableBound | None:
    if index is not None:
        try:
            most = index.most_inside(read.rows, is_first=read.is_rotary)
        except (*EVALUATOR_ERRORS, MemoryError):
            _LOG.debug("the rows that are taken of '%s' cannot be computed", read.table, exc_info=True)
        else:
            return None if most is None else TableBound(read.table, most, read.operator != _GATHER)
    is_unknown = read.is_rotary or (read.operator == _GATHER and _tells_positions(read.taken_by, editor))
    return TableBound(read.table, None, read.is_rotary) if is_unknown else None


def _reads(editor: GraphEditor) -> Iterator[_Read]:
    """Where rows of weights are taken by numbers that are computed."""
    for node in editor.nodes:
        table = index = ""
        axis = 0
        if node.op_type == _TURNING and node.domain in _ROTARY:
            table, index = (optional_input(node, place) for place in _ROTARY[node.domain])
        elif node.op_type == _GATHER and not node.domain and not attributes(node).get("axis", 0):
            table, index = node.input
        elif node.op_type == _SLICING and not node.domain and (axes := _only_axis(node, editor)) is not None:
            (table, index), axis = (node.input[0], node.input[2]), axes
        shape = editor.shape(table) if index and editor.is_constant(table) else None
        if shape is not None and len(shape) > 1 and shape[axis] > 1 and not editor.is_constant(index):
            yield _Read(table, shape[axis] + (node.op_type == _SLICING), index, node.op_type)


def _only_axis(node: NodeProto, editor: GraphEditor) -> int | None:
    """The axis along which a slice is cut, if it is one."""
    axes = editor.constant(optional_input(node, 3))
    return None if axes is None or axes.size != 1 else int(axes.flat[0])


@dataclass(frozen=True)
class _Index:
    """What rows are taken by, as a function of the number of positions."""

    evaluator: ReferenceEvaluator
    inputs: tuple[str, ...]
    feed: Feed
    new: int

    @staticmethod
    def of(
        name: str, editor: GraphEditor, versions: Sequence[OperatorSetIdProto], feed: Feed, new: int
    ) -> _Index | None:
        """The nodes that compute an index; None if it follows from more than positions, sizes and tokens."""
        wanted, nodes = {name}, list[NodeProto]()
        for node in reversed(editor.nodes):
            if wanted.isdisjoint(node.output):
                continue
            if any(feed(output, new, 0) is not None for output in wanted.intersection(node.output)):
                continue
            if node.domain or node.op_type not in _LIGHT:
                return None
            nodes.insert(0, node)
            wanted.update(filter(None, node.input))
        leaves = sorted(wanted - {output for node in nodes for output in node.output})
        inputs = tuple(leaf for leaf in leaves if not editor.is_constant(leaf))
        arrays = {leaf: editor.constant(leaf) for leaf in leaves if leaf not in inputs}
        held = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
        if sum(array.nbytes for array in arrays.values() if array is not None) > _MOST_BYTES:
            return None
        if any(feed(input_, new, 0) is None for input_ in inputs):
            return None
        given, taken = ([helper.make_value_info(value, TypeProto()) for value in names] for names in (inputs, (name,)))
        graph = helper.make_graph(nodes, "index", given, taken, held)
        return _Index(ReferenceEvaluator(helper.make_model(graph, opset_imports=versions)), inputs, feed, new)

    def most_inside(self, rows: int, *, is_first: bool) -> int | None:
        """The most positions of which all indices are rows; None if any number has such.

        Args:
            rows: of the table.
            is_first: whether a vector has the first position of a call, which others follow.
        """
        if self._is_same(self.new + 1, self.new + 2):
            return None
        low, high, before = self.new - 1, self.new, (0, 0)
        while _is_inside(now := self._extremes(high, is_first=is_first), rows):
            if high > _MOST_POSITIONS or (high > _FAR * rows and now == before):
                return None
            low, high, before = high, 2 * high, now
        while high - low > 1:
            middle = (low + high) // 2
            if _is_inside(self._extremes(middle, is_first=is_first), rows):
                low = middle
            else:
                high = middle
        return low

    def _is_same(self, one: int, other: int) -> bool:
        """Whether inputs do not tell numbers of positions apart."""
        return all(
            np.array_equal(np.asarray(self.feed(input_, one, 0)), np.asarray(self.feed(input_, other, 0)))
            for input_ in self.inputs
        )

    def _extremes(self, positions: int, *, is_first: bool) -> tuple[int, int]:
        """The smallest and the largest index."""
        least = most = 0
        for token in _TOKENS:
            given = {input_: self.feed(input_, positions, token) for input_ in self.inputs}
            with np.errstate(all="ignore"):
                (indices,) = self.evaluator.run(None, given)
            index = np.asarray(indices)
            later = self.new - 1 if is_first and index.ndim == 1 else 0
            least, most = min(least, int(index.min(initial=0))), max(most, int(index.max(initial=0)) + later)
        return least, most


def _is_inside(extremes: tuple[int, int], rows: int) -> bool:
    """Whether all between are rows; negative ones count from the end."""
    return -rows <= extremes[0] and extremes[1] < rows


def _tells_positions(name: str, editor: GraphEditor) -> bool:
    """Whether a value follows from positions or masks that callers give, or from sizes, and from nothing else."""
    pending, seen, is_told = [name], {name}, False
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is None and not editor.is_constant(current):
            if "position" not in current and "mask" not in current:
                return False
            is_told = True
        if node is None or node.op_type in ("Shape", "Size", "Constant"):
            is_told = is_told or (node is not None and node.op_type != "Constant")
            continue
        new = [operand for operand in node.input if operand and operand not in seen]
        seen.update(new)
        pending += new
    return is_told
