"""Finds a length that a model computes from data, as the number of frames that durations of sounds add up to.

It is an integer of one element that says how long other values are: what ``Range`` counts up to, or ``Expand`` and
``ConstantOfShape`` make. What follows from sizes of inputs is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.infer import infer_shapes, without_weights
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.operator_types.moving import RESHAPING

# Which operand is a size.
_SIZED = {"Range": 1, "ConstantOfShape": 0, "Expand": 1, "Tile": 1}
_SIZE_OPS = frozenset({"Shape", "Size"})
# Sizes are computed from sizes by these, element by element, or put together.
_COMBINING = frozenset({"Add", "Sub", "Mul", "Div", "Concat", "Gather", "Slice"})
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_ROUNDING = frozenset({"Ceil", "Floor", "Round"})


@dataclass(frozen=True)
class ComputedLength:
    """A length that follows from data.

    Attributes:
        value: its name, of an integer of one element.
        dtype: its ONNX type.
        rank: its number of dimensions.
        rounded: names of what is rounded on the way to it.
    """

    value: str
    dtype: int
    rank: int
    rounded: tuple[str, ...]


def computed_length(model: ModelProto, bound: Collection[str] = ()) -> ComputedLength | None:
    """The length that a model computes from data; None if it computes none, or several, or callers give it.

    Args:
        model: the model.
        bound: inputs whose value is fixed, which are no data.
    """
    editor = GraphEditor(model.graph)
    sized = [(node, _SIZED[node.op_type]) for node in editor.nodes if not node.domain and node.op_type in _SIZED]
    if not any(_follows_from_data(node.input[operand], editor, bound) for node, operand in sized):
        return None
    known = without_weights(model)
    infer_shapes(known)
    values = {value.name: value.type.tensor_type for value in (*known.graph.value_info, *known.graph.input)}
    types = {name: tensor.elem_type for name, tensor in values.items()}
    sources = {name for node, operand in sized for name in _sources(node.input[operand], editor, types)}
    lengths = [name for name in sources if _follows_from_data(name, editor, bound)]
    if len(lengths) != 1 or editor.producer(lengths[0]) is None or (length := values.get(lengths[0])) is None:
        return None
    if length.elem_type not in _INTEGERS or not length.HasField("shape"):
        return None
    rounded = tuple(_rounded(lengths[0], editor))
    return ComputedLength(lengths[0], length.elem_type, len(length.shape.dim), rounded)


def data_sized(model: ModelProto) -> frozenset[str]:
    """The values whose size, or whose elements, follow from a size that is computed from data."""
    editor = GraphEditor(model.graph)
    values = set[str]()
    for node in editor.nodes:
        operand = None if node.domain else _SIZED.get(node.op_type)
        is_sized = operand is not None and _follows_from_data(node.input[operand], editor)
        if is_sized or not values.isdisjoint(node.input):
            values.update(node.output)
    return frozenset(values)


def constant_of(name: str, editor: GraphEditor) -> Array | None:
    """The values of a constant, which may be a node; None if it is none."""
    node = editor.producer(name)
    if node is None or node.op_type != "Constant":
        return editor.constant(name)
    tensor = attributes(node).get("value")
    return None if tensor is None else to_array(tensor)


def forwarded(name: str, editor: GraphEditor) -> str:
    """What a value of one element is a copy of, in another shape or integer type."""
    node = editor.producer(name)
    while node is not None and not node.domain and node.op_type in RESHAPING | {"Cast"}:
        name = node.input[0]
        node = editor.producer(name)
    return name


def _sources(name: str, editor: GraphEditor, types: Mapping[str, int]) -> Iterator[str]:
    """The values that a size follows from, which are computed otherwise than sizes of sizes are."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        operands = _operands(current, editor, types)
        if operands is None:
            yield current
            continue
        pending += [operand for operand in operands if operand not in seen]
        seen.update(operands)


def _operands(name: str, editor: GraphEditor, types: Mapping[str, int]) -> list[str] | None:
    """The sizes that a size is computed from, none for one of an input; None if it is computed otherwise."""
    node = editor.producer(name)
    if node is None or node.domain:
        return None
    if node.op_type in _SIZE_OPS or node.op_type == "Constant":
        return []
    is_integer = node.op_type == "Cast" and types.get(node.input[0]) in _INTEGERS
    if is_integer or node.op_type in RESHAPING:
        return [node.input[0]]
    if node.op_type in _COMBINING and types.get(name) in _INTEGERS:
        return [operand for operand in filter(None, node.input) if constant_of(operand, editor) is None]
    return None


def _follows_from_data(name: str, editor: GraphEditor, bound: Collection[str] = ()) -> bool:
    """Whether a value follows from elements of inputs: not from their sizes alone, nor from values that are fixed."""
    inputs = {value.name for value in editor.graph.input}.difference(bound)
    return any(name in inputs and not editor.is_constant(name) for name in _ancestors(name, editor))


def _rounded(name: str, editor: GraphEditor) -> Iterator[str]:
    for ancestor in _ancestors(name, editor):
        node = editor.producer(ancestor)
        if node is not None and not node.domain and node.op_type in _ROUNDING:
            yield node.input[0]


def _ancestors(name: str, editor: GraphEditor) -> Iterator[str]:
    """A value, and what its elements are computed from."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        yield current
        node: NodeProto | None = editor.producer(current)
        if node is None or (not node.domain and node.op_type in _SIZE_OPS):
            continue
        new = [operand for operand in node.input if operand and operand not in seen]
        seen.update(new)
        pending += new
