"""Bounds of sizes for a model whose user names none: from tables of the model, else usual ones.

A table of positions ends where the model does: it is sliced up to a length that is computed, or its rows are taken by
numbers that are computed from lengths alone. Other lengths, batches and sides of images have bounds that are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto

from sartor.errors import UsageError
from sartor.onnx_model.dynamic.suggested_shapes import (
    Free,
    contradicted,
    free_inputs,
    is_image_side,
    is_sum,
    shapes_of,
    terms_of,
)
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.walk import describe_node
from sartor.settings.size_range import OpenShapes, SizeRange

_BATCHES, _LENGTHS, _SIDES = SizeRange(1, 8), SizeRange(1, 512), SizeRange(32, 640, 32)
# What tells a size, whatever the values of its operand are.
_SIZE_OPS = frozenset({"Shape", "Size"})
_COUNTING_OPS = frozenset({"CumSum", "NonZero", "Range"})
_TABLE_RANK = 2


@dataclass(frozen=True)
class OpenBounds:
    """Ranges of all free dimensions of a model.

    Attributes:
        shapes: of the inputs that have any.
        sources: where bounds come from, a sentence for each symbol.
    """

    shapes: OpenShapes
    sources: tuple[str, ...]


class UnboundSizesError(UsageError):
    """Dimensions of inputs have no sizes.

    Attributes:
        bounds: that they may have; None if none can be told.
    """

    bounds: OpenBounds | None = None

    @staticmethod
    def of(message: str, bounds: OpenBounds | None) -> UnboundSizesError:
        """The error with bounds."""
        error = UnboundSizesError(message)
        error.bounds = bounds
        return error


@dataclass
class _Bounds:
    """Ranges and sizes by symbol, as they are found; symbols that others are sums of are lengths."""

    table: tuple[str, int] | None
    summed: frozenset[str]
    sizes: dict[str, int | SizeRange] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)

    def note(self, free: Free, axis: int, symbol: str) -> None:
        """Bound the symbol of a dimension, unless it is bound already."""
        if symbol in self.sizes:
            return
        if axis in free.asked:
            # Weights have room for this size alone.
            self.sizes[symbol] = free.asked[axis]
            return
        sizes, source = (_LENGTHS, "the usual bound") if symbol in self.summed else self._range(free, axis)
        self.sizes[symbol] = sizes
        self.sources.append(f"{symbol}={sizes}, {source}")

    def begin_sides(self, least: int, node: str) -> None:
        """Begin the usual ranges of sides there, because of a node that needs it."""
        if least == _SIDES.least:
            return
        raised = SizeRange(least, _SIDES.most, _SIDES.multiple)
        self.sizes |= {symbol: raised for symbol, size in self.sizes.items() if size == _SIDES}
        usual = f"={_SIDES}, the usual bounds"
        told = f"={raised}, the usual bounds but for sides of {_SIDES.least}, which are too small for {node}"
        self.sources = [source.replace(usual, told) for source in self.sources]

    def _range(self, free: Free, axis: int) -> tuple[SizeRange, str]:
        if axis == 0 and len(free.dims) > 1:
            return _BATCHES, "the usual bound"
        if is_image_side(free, axis):
            return _SIDES, "the usual bounds"
        if self.table is None:
            return _LENGTHS, "the usual bound"
        name, length = self.table
        return SizeRange(1, length), f"as long as the table '{name}'"


def open_bounds(model: ModelProto) -> OpenBounds | None:
    """Ranges of the model's free dimensions; None if it has inputs of unknown rank, or sizes that follow from others in
    another way than as their sum. An input with such a sum is left out, as what it has follows.

    Args:
        model: whose bound dimensions are numbers; it is not changed.
    """
    inputs = free_inputs(model)
    declared = {value.name for value in model.graph.input if value.type.tensor_type.HasField("shape")}
    symbols = [dim for input_ in inputs for dim in input_.dims if isinstance(dim, str)]
    sums = [symbol for symbol in symbols if is_sum(symbol)]
    if any(input_.name not in declared for input_ in inputs) or not all(terms_of(symbol, symbols) for symbol in sums):
        return None
    table = min(_tables(GraphEditor(model.graph)), key=lambda table: table[1], default=None)
    if sums and table is not None:
        # What is read there are the places of all terms, of which none may be all of it.
        return None
    inputs = [input_ for input_ in inputs if not {*sums}.intersection(map(str, input_.dims))]
    bounds = _Bounds(table, frozenset(term for symbol in sums for term in terms_of(symbol, symbols)))
    for input_ in inputs:
        for axis, dim in enumerate(input_.dims):
            if isinstance(dim, str):
                bounds.note(input_, axis, dim)
    bounds.begin_sides(*_least_side(model, inputs, bounds.sizes))
    shapes = {input_.name: tuple(bounds.sizes.get(str(dim), dim) for dim in input_.dims) for input_ in inputs}
    known = {name: tuple(size for size in shape if not isinstance(size, str)) for name, shape in shapes.items()}
    return OpenBounds(known, tuple(bounds.sources))


def _least_side(model: ModelProto, inputs: list[Free], sizes: Mapping[str, int | SizeRange]) -> tuple[int, str]:
    """The least side of images, by doubling the usual one, that leaves each window something to read, and the first
    node for which half of it is too small.

    It is the usual one, without a node, if none is enough, or there are no sides.
    """
    least, node = _SIDES.least, ""
    while _SIDES in sizes.values() and least < _SIDES.most:
        known = {
            symbol: size if isinstance(size, int) else least if size == _SIDES else size.least
            for symbol, size in sizes.items()
        }
        index = contradicted(model, shapes_of(inputs, known))
        if index is None:
            return least, node
        node, least = describe_node(model.graph.node[index]), 2 * least
    return _SIDES.least, ""


def _tables(editor: GraphEditor) -> Iterator[tuple[str, int]]:
    """Weights that are read up to a length, with the largest that they have."""
    for node in editor.nodes:
        if node.domain or not node.input or (shape := editor.shape(node.input[0])) is None:
            continue
        if not editor.is_constant(node.input[0]):
            continue
        if node.op_type == "Slice" and len(node.input) > 2 and not _is_known(node.input[2], editor):
            length = shape[_axis(node, editor) % len(shape)]
        elif node.op_type == "Gather" and len(shape) == _TABLE_RANK and _follows_from_sizes(node.input[1], editor):
            length = shape[0]
        else:
            continue
        if length > 1:
            yield node.input[0], length


def _axis(node: NodeProto, editor: GraphEditor) -> int:
    values = editor.constant(node.input[3]) if len(node.input) > 3 else None
    return 0 if values is None or not values.size else int(values.flat[0])


def _is_known(name: str, editor: GraphEditor) -> bool:
    producer = editor.producer(name)
    return editor.is_constant(name) or (producer is not None and producer.op_type == "Constant")


def _follows_from_sizes(name: str, editor: GraphEditor) -> bool:
    """Whether a value counts up to sizes of inputs, and follows from no values of theirs.

    What has the size of an input without counting, as zeros for the types of tokens, tells no position.
    """
    pending, seen, has_sizes, counts = [name], {name}, False, False
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is None and not editor.is_constant(current):
            return False
        if node is None:
            counts = counts or _counts(editor.constant(current))
            continue
        counts = counts or node.op_type in _COUNTING_OPS
        if node.op_type in _SIZE_OPS and not node.domain:
            has_sizes = True
            continue
        new = [name for name in node.input if name and name not in seen]
        seen.update(new)
        pending += new
    return has_sizes and counts


def _counts(values: Array | None) -> bool:
    """Whether a constant holds positions from 0 on."""
    return values is not None and values.size > 1 and values.dtype.kind in "iu" and int(values.max()) == values.size - 1
