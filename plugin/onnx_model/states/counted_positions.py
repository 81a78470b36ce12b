"""Has what a decoder computes from the length of its caches computed from an input, the number of positions before the
call: positions that are counted, and masks of which each size would have values of its own.

Sizes stay sizes. But numbers that follow from them, and are read as values, become constants when sizes are bound,
others for each size: rows of a table of positions, or what hides keys. The model is evaluated with a few numbers of
positions, so what of it is constant then, and how that changes, is seen and not guessed. What neither changes, nor is
the beginning or the end of what the largest number gives, is computed anew: whole numbers that grow evenly follow from
the input, and what follows from these is computed as before. That is done with two lengths of what an encoder gave, so
that no number of one length becomes a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.infer import forget_shapes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import REDUCTIONS, WITH_BODIES
from sartor.onnx_model.operator_types.moving import RESHAPING
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants

ShapesAt = Callable[[int], Mapping[str, tuple[int, ...]]]
"""Shapes of all inputs with a number of positions, those of the call included."""
Values = Mapping[str, Array]

# Operands that say how large results are, or which of an operand's elements they have.
_SIZES = {
    **dict.fromkeys(RESHAPING - {"Flatten", "Identity"}, (1,)),
    **dict.fromkeys(("CumSum", "Expand", "OneHot", "Split", "Tile", "TopK"), (1,)),
    **dict.fromkeys(REDUCTIONS, (1,)),
    "ConstantOfShape": (0,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Trilu": (1,),
}
# Of these another size means more of the same.
_ONLY_LARGER = frozenset({"ConstantOfShape", "Expand", "Reshape", "Tile"})
# Their results are as large as values say, so they cannot be computed from an input.
_SHAPED_BY_VALUES = WITH_BODIES | {"Compress", "NonMaxSuppression", "NonZero", "Range", "Unique"}
# Numbers that are a prime apart, which tells what grows from what does not, and from what comes again.
_NEAR, _APART = 40, 17


class _Sizes(NamedTuple):
    """A number of positions, and which of the lengths of what an encoder gave; the first is the largest."""

    number: int
    length: int


def count_positions(model: ModelProto, name: str, shapes_at: Sequence[ShapesAt], new: int, most: int) -> bool:
    """Add an input with the number of positions before a call, int64 of shape [1], if values follow from that number.

    Args:
        model: whose caches are inputs with all positions; changed in place.
        name: of the input.
        shapes_at: of the model's inputs, for each of some lengths of what an encoder gave, the largest first.
        new: positions of a call.
        most: positions that there is room for.

    Raises:
        UnsupportedModelError: if a value follows from the number in a way that cannot be written so.
    """
    editor = GraphEditor(model.graph)
    if not _reads_sizes(editor):
        return False
    near = min(most, new + _NEAR)

    def constants(*numbers: int) -> dict[_Sizes, Values]:
        return {
            _Sizes(number, length): _constants(model, shapes(number))
            for length, shapes in enumerate(shapes_at)
            for number in dict.fromkeys(numbers)
        }

    known = constants(near, max(new, near - _APART))
    wanted = [*_Counted(editor, name, known, new).wanted()]
    if not wanted:
        return False
    known |= constants(*{new, most} - {number for number, _ in known})
    counted = _Counted(editor, name, known, new)
    counted.replace(wanted)
    model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1]))
    return True


def _reads_sizes(editor: GraphEditor) -> bool:
    """Whether what is computed from sizes is read as values."""
    sizes = set[str]()
    for node in editor.nodes:
        read = [name for name in node.input if name and not editor.is_constant(name)]
        if node.op_type in ("Shape", "Size") or (read and sizes.issuperset(read)):
            sizes.update(node.output)
        elif not sizes.isdisjoint(_read_as_values(node)):
            return True
    return False


def _read_as_values(node: NodeProto) -> list[str]:
    return [name for index, name in enumerate(node.input) if name and not _is_size(node, index)]


def _is_size(node: NodeProto, index: int) -> bool:
    return not node.domain and index in _SIZES.get(node.op_type, ())


def _constants(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """What the model computes that is constant with these shapes, by name."""
    work = ModelProto()
    work.CopyFrom(model)
    forget_shapes(work)
    for value in work.graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shapes[value.name]))
    fold_constants(work)
    before, editor = {tensor.name for tensor in model.graph.initializer}, GraphEditor(work.graph)
    names = [tensor.name for tensor in work.graph.initializer if tensor.name not in before]
    return {name: array for name in names if (array := editor.constant(name)) is not None}


class _Counted:
    """Values by the number of positions before a call.

    Args:
        editor: of the graph.
        input: the name of what has the number.
        known: constants for each number of positions, those of the call included, with each length.
        new: positions of a call.
    """

    def __init__(self, editor: GraphEditor, input: str, known: Mapping[_Sizes, Values], new: int) -> None:
        self._editor, self._input, self._new, self._known = editor, input, new, known
        self._written = dict[str, str]()

    def wanted(self) -> Iterator[tuple[NodeProto, int]]:
        """Nodes that are computed in each call, with the place of an operand whose value depends on the number."""
        for node in self._editor.nodes:
            if any(name in values for name in node.output for values in self._known.values()):
                continue
            for index, name in enumerate(node.input):
                if name and not _is_size(node, index) and self._depends(name):
                    yield node, index

    def replace(self, wanted: Sequence[tuple[NodeProto, int]]) -> None:
        """Have these operands computed from the input."""
        by_node = dict[str, list[int]]()
        for node, index in wanted:
            by_node.setdefault(node.output[0], []).append(index)

        def rule(node: NodeProto) -> list[NodeProto] | None:
            nodes = list[NodeProto]()
            places = by_node.get(node.output[0] if node.output else "", [])
            for index in places:
                emit = Emitter(self._editor, node)
                node.input[index] = self._value(node.input[index], emit)
                nodes += emit.nodes
            return [*nodes, node] if places else None

        self._editor.rewrite(rule)

    def _values(self, name: str) -> dict[_Sizes, Array]:
        return {sizes: values[name] for sizes, values in self._known.items() if name in values}

    def _at(self, name: str, sizes: _Sizes) -> Array:
        """What is constant with such sizes, or with any."""
        array = self._known[sizes].get(name)
        array = self._editor.constant(name) if array is None else array
        if array is None:
            raise self._unknown(name)
        return array

    def _depends(self, name: str) -> bool:
        """Whether a value is another one for each number, and not a part of what it is for the largest."""
        values = self._values(name)
        lengths = {length for _, length in values}
        return any(_differ({at.number: values[at] for at in values if at.length == one}) for one in lengths)

    def _varies(self, name: str) -> bool:
        """Whether a value is another one for each length of what an encoder gave, as for a number in ``_depends``."""
        values = self._values(name)
        numbers = {number for number, _ in values}
        return any(_differ({-at.length: values[at] for at in values if at.number == one}) for one in numbers)

    def _value(self, name: str, emit: Emitter) -> str:
        """The name of a value that is computed from the input."""
        if not self._depends(name):
            if self._varies(name):
                raise self._unknown(name)
            return name
        if name not in self._written:
            self._written[name] = self._evenly(name, emit) or self._as_before(name, emit)
        return self._written[name]

    def _evenly(self, name: str, emit: Emitter) -> str:
        """Whole numbers that grow by the same for each position, of one shape; empty if they do not."""
        arrays = self._values(name)
        if not all(array.dtype.kind == "i" for array in arrays.values()):
            return ""
        line = self._line(arrays)
        if line is None:
            return ""
        steps, start = line
        dtype = next(iter(arrays.values())).dtype
        count = emit("Reshape", self._input, emit.constant([1] * start.ndim, "shape"), part="counted")
        if not start.ndim:
            count = emit("Squeeze", self._input, part="counted")
        if np.any(steps != 1):
            count = emit("Mul", count, emit.constant(steps, "steps"), part="counted")
        total = emit("Add", count, emit.constant(start, "start"), part="counted")
        return (
            total
            if dtype == np.int64
            else emit("Cast", total, part="counted", to=helper.np_dtype_to_tensor_dtype(dtype))
        )

    def _line(self, arrays: Mapping[_Sizes, Array]) -> tuple[Array, Array] | None:
        """By how much each element grows for a position, and what it is without earlier ones; None if unevenly."""
        one, other = (choose(arrays, key=lambda at: at.number) for choose in (max, min))
        array, twin = arrays[one], arrays[other]
        if one.number == other.number or any(array_at.shape != array.shape for array_at in arrays.values()):
            return None
        steps, rest = np.divmod(array.astype(np.int64) - twin, one.number - other.number)
        start = array - steps * (one.number - self._new)
        fits = all(np.array_equal(array, start + steps * (at.number - self._new)) for at, array in arrays.items())
        return (steps, start) if fits and not rest.any() else None

    def _as_before(self, name: str, emit: Emitter) -> str:
        """What the node computes, from operands that are computed from the input."""
        node = self._editor.producer(name)
        if node is None or node.domain or node.op_type in _SHAPED_BY_VALUES:
            raise self._unknown(name)
        if node.op_type == "Slice":
            return self._taken(node, emit)
        given = [
            operand if _is_size(node, index) or not operand else self._value(operand, emit)
            for index, operand in enumerate(node.input)
        ]
        changed = [operand for index, operand in enumerate(node.input) if operand and _is_size(node, index)]
        if node.op_type not in _ONLY_LARGER and any(map(self._depends, changed)):
            raise self._unknown(name)
        own = Emitter(self._editor, node)
        names = own.many(node.op_type, *given, part="counted", outputs=("",) * len(node.output), **attributes(node))
        emit.nodes += own.nodes
        self._written |= dict(zip(node.output, names, strict=True))
        return self._written[name]

    def _taken(self, node: NodeProto, emit: Emitter) -> str:
        """As many elements of an operand as a slice has, which begin where the number says."""
        result, taken = self._values(node.output[0]), self._value(node.input[0], emit)
        whole, starts = ({sizes: self._at(operand, sizes) for sizes in result} for operand in node.input[:2])
        given = [self._editor.constant(optional_input(node, index)) for index in (3, 4)]
        count = next(iter(starts.values())).size
        axes, steps = (range(count) if given[0] is None else given[0].tolist(), given[1])
        if steps is not None and np.any(steps != 1):
            raise self._unknown(node.output[0])
        for place, axis in enumerate(axes):
            line = self._line(
                {
                    sizes: np.arange(array.shape[axis]) + _begin(starts[sizes][place], whole[sizes].shape[axis])
                    for sizes, array in result.items()
                }
            )
            if line is not None:
                growth, first = (emit.constant(array, "places") for array in line)
                places = emit("Add", emit("Mul", self._input, growth, part="places"), first, part="places")
                taken = emit("Gather", taken, places, part="taken", axis=int(axis))
            elif len({int(array[place]) for array in starts.values()}) > 1:
                raise self._unknown(node.output[0])
            else:
                at = emit.constant([place], "place")
                bounds = (emit("Gather", node.input[index], at, part="bound", axis=0) for index in (1, 2))
                taken = emit("Slice", taken, *bounds, emit.constant([int(axis)], "axis"), part="taken")
        return taken

    def _unknown(self, name: str) -> UnsupportedModelError:
        node, varies = self._editor.producer(name), self._varies(name)
        what = f"'{name}'" if node is None else f"what {describe_node(node)} computes"
        return UnsupportedModelError(
            f"{what} follows from the number of positions{', and the length of what an encoder gave,' * varies} in a "
            "way that no input can tell, so that the module cannot keep the caches; with --no-state callers pass them"
        )


def _begin(start: int, size: int) -> int:
    return max(0, min(int(start) + (size if start < 0 else 0), size))


def _differ(arrays: Mapping[int, Array]) -> bool:
    """Whether arrays are no parts of the one with the largest number: all its beginning, or all its end."""
    whole = arrays[max(arrays)]
    return not any(all(_is_part(whole, part, at_end=at_end) for part in arrays.values()) for at_end in (False, True))


def _is_part(whole: Array, part: Array, *, at_end: bool) -> bool:
    """Whether an array is the beginning, or the end, of another along all axes."""
    if whole.ndim != part.ndim or not all(map(int.__ge__, whole.shape, part.shape)):
        return False
    sizes = zip(whole.shape, part.shape, strict=True)
    places = tuple(slice(size - length, size) if at_end else slice(length) for size, length in sizes)
    return whole[places].tobytes() == part.tobytes()
