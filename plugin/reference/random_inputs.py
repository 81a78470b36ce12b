"""Random inputs for a model if the user gives none, in plausible ranges."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, static_shape
from sartor.onnx_model.graphs.noise import noise_of
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.onnx_model.states.place_names import are_places, rising

# Operators that do not change the range of values, or as Mod make it no larger.
_PASSING = MOVING - {"DepthToSpace", "SpaceToDepth"} | {"Cast", "Mod", "Pad"}
# Their results are elements of all operands.
_JOINING = ("Concat", "Where")
_INDEXING = ("Gather", "GatherElements", "ScatterElements")
_INDEXING_ALL = ("GatherND", "ScatterND")
_DIVIDING = ("Div", "Mod")
_WITHIN = ("Min", "Mod")
_SUMMING = ("CumSum", "ReduceSum")
_COMPARING = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_ONE_IN_TEN = 0.1
# A loop that goes on as it should does so by its third step.
_MOST_STEPS = 4
# Of numbers that are 0 or 1 a division by 1 says nothing.
_DIVISORS = 4
# Larger integers are not drawn to be equal to a constant.
_MOST_EQUAL = 2**30


class Indices(Enum):
    """How integers are drawn, within their bounds."""

    RANDOM = "random"
    ONES = "ones"
    ZEROS = "zeros"
    RISING = "rising"


@dataclass(frozen=True)
class Style:
    """A distribution of inputs.

    Attributes:
        deviation: standard deviation of normal floats.
        limits: of uniform floats; None for normal floats.
        indices: how integers are drawn; with ones, booleans are all true, and with zeros all false.
    """

    deviation: float = 1.0
    limits: tuple[float, float] | None = None
    indices: Indices = Indices.RANDOM

    def floats(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Random floats in this style."""
        if self.limits is not None:
            return random.uniform(*self.limits, shape)
        return random.standard_normal(shape) * self.deviation


USUAL = Style()
"""The default style, used unless an output cannot be checked on it."""

UNSET = Style(indices=Indices.ZEROS)
"""Conditions are false, and integers within any table, also for readers whose bound is not found."""

OTHERS = (
    Style(limits=(0.0, 1.0), indices=Indices.ONES),
    Style(limits=(0.0, 255.0), indices=Indices.RISING),
    Style(deviation=0.1, indices=Indices.RISING),
    Style(deviation=10.0, indices=Indices.ONES),
    Style(deviation=0.01),
    Style(deviation=100.0),
    UNSET,
)


def sample_inputs(model: ModelProto, seed: int, style: Style = USUAL) -> dict[str, Array]:
    """Random inputs by name, the same for the same seed.

    In the default style, floats are standard normal, or uniform over the representable range if they are quantised
    first. Integers are within the tables that they index and the constants that they are compared with. Without such a
    bound they are 0 or 1, or any number if they have 8 bits, and places of tokens count up. Those by which integers are
    divided are above 0. A mask of integers that a model adds up hides nothing, as the sums may be places of tokens.
    Booleans are mostly true, as in masks. Inputs that stand for random operators have their distribution in every
    style.

    Raises:
        UsageError: if an input has an unbound dimension.
    """
    return InputSampler(model)(seed, style)


class InputSampler:
    """Draws samples of one model, as ``sample_inputs`` does, and finds the readers of its inputs once only."""

    def __init__(self, model: ModelProto) -> None:
        self._inputs = model.graph.input
        self._editor = GraphEditor(model.graph)
        self._noise = {drawn.name: drawn for drawn in noise_of(model)}

    def __call__(self, seed: int, style: Style = USUAL) -> dict[str, Array]:
        """Random inputs by name, the same for the same seed.

        Raises:
            UsageError: if an input has an unbound dimension, or does not fit into memory.
        """
        samples = {}
        for value in self._inputs:
            if self._editor.is_constant(value.name):
                continue
            shape = static_shape(value.type)
            if shape is None:
                raise UsageError(f"input '{value.name}' has a free dimension; bind it with --shape {value.name}=...")
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            random = np.random.default_rng([seed, zlib.crc32(value.name.encode())])
            try:
                if value.name in self._noise:
                    samples[value.name] = self._noise[value.name].draw(random, shape)
                    continue
                drawn = _sample(random, self._editor, value.name, shape, dtype, style)
            except MemoryError:
                raise UsageError(
                    f"input '{value.name}' has {math.prod(shape)} elements, for which there is not enough memory; "
                    "export the model with a smaller input"
                ) from None
            # numpy returns a scalar, not an array, for arrays without dimensions.
            samples[value.name] = np.asarray(drawn)
        return samples


def _sample(
    random: np.random.Generator,
    editor: GraphEditor,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    style: Style,
) -> Array:
    if dtype == np.bool_:
        if style.indices is Indices.ZEROS:
            return np.zeros(shape, np.bool_)
        return random.random(shape) >= (0.0 if style.indices is Indices.ONES else _ONE_IN_TEN)
    if not np.issubdtype(dtype, np.integer):
        low, high = _quantised_range(editor, name)
        if low < high and style == USUAL:
            return random.uniform(low, high, shape).astype(dtype)
        return style.floats(random, shape).astype(dtype)
    if "mask" in name and any(_sums(node, read, editor) for node, read in _readers(editor, name)):
        return np.ones(shape, dtype)
    divides = any(_divides(node, read, editor) for node, read in _readers(editor, name))
    if dtype.itemsize == 1:
        limits = np.iinfo(np.dtype(dtype.str))
        # The least number divided by -1 is none of its type.
        low = 1 if divides else limits.min
        return random.integers(low, limits.max, shape, dtype=np.dtype(dtype.str), endpoint=True)
    bounds = _index_bounds(editor, name)
    if not bounds and are_places(name):
        return rising(shape).astype(dtype)
    if not bounds:
        bounds_of_readers = (_bound_among_positions(node, read, editor) for node, read in _readers(editor, name))
        bounds = [bound for bound in bounds_of_readers if bound]
    drawn = _indices(random, max(1, min(bounds, default=2)), shape, style.indices)
    return np.maximum(drawn, int(divides)).astype(dtype)


def _indices(random: np.random.Generator, bound: int, shape: tuple[int, ...], kind: Indices) -> Array:
    if kind is Indices.ZEROS:
        return np.zeros(shape, np.int64)
    if kind is Indices.ONES:
        return np.full(shape, min(1, bound - 1))
    if kind is Indices.RISING:
        return rising(shape) % bound
    return random.integers(0, bound, shape)


def _readers(editor: GraphEditor, name: str) -> Iterator[tuple[NodeProto, str]]:
    """Yield nodes that read ``name``, directly or after operators that keep its range, with the name that they read."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        for node in editor.consumers(current):
            yield node, current
            if (node.op_type in _PASSING and node.input[0] == current) or node.op_type in _JOINING:
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                pending.extend(fresh)


def _quantised_range(editor: GraphEditor, name: str) -> tuple[float, float]:
    """The range that a quantiser which reads ``name`` can represent; empty if there is none."""
    for node, _ in _readers(editor, name):
        if node.op_type != "QuantizeLinear":
            continue
        scale = _known(editor, node.input[1])
        zero = _known(editor, node.input[2]) if len(node.input) > 2 else np.zeros((), np.uint8)
        if scale is not None and scale.size == 1 and zero is not None and zero.dtype in (np.int8, np.uint8):
            limits, step, center = np.iinfo(zero.dtype), float(scale.item()), int(zero.item())
            return (limits.min - center) * step, (limits.max - center) * step
    return 0.0, 0.0


def _known(editor: GraphEditor, name: str) -> Array | None:
    """Values of a constant; None if they are unknown, as those of weights in a model's skeleton."""
    tensor = editor.tensor(name)
    if tensor is not None and tensor.data_location != TensorProto.EXTERNAL and not _has_values(tensor):
        return None
    return editor.constant(name)


def _has_values(tensor: TensorProto) -> bool:
    return not math.prod(tensor.dims) or any(field.name.endswith("_data") for field, _ in tensor.ListFields())


def _index_bounds(editor: GraphEditor, name: str) -> list[int]:
    """Exclusive upper bounds of the values that readers of ``name`` accept, where they are known."""
    return [bound for node, read in _readers(editor, name) if (bound := _bound_of(node, read, editor))]


def _sums(node: NodeProto, read: str, editor: GraphEditor) -> bool:
    """Whether a node adds up integers."""
    return node.op_type in _SUMMING and node.input[0] == read and _are_integers(read, editor)


def _divides(node: NodeProto, read: str, editor: GraphEditor) -> bool:
    """Whether a node divides integers by what it reads, which ONNX Runtime refuses to do by 0."""
    return node.op_type in _DIVIDING and node.input[1] == read and _are_integers(read, editor)


def _are_integers(name: str, editor: GraphEditor) -> bool:
    kind = editor.element_type(name)
    return bool(kind) and np.issubdtype(helper.tensor_dtype_to_np_dtype(kind), np.integer)


def _bound_of(node: NodeProto, read: str, editor: GraphEditor) -> int:
    if node.op_type in _INDEXING and node.input[1] == read:
        table = editor.shape(node.input[0])
        return table[attributes(node).get("axis", 0)] if table else 0
    if node.op_type in _INDEXING_ALL and node.input[1] == read:
        # Each index has a number for each of some dimensions.
        table, indices = editor.shape(node.input[0]), editor.shape(node.input[1])
        first = attributes(node).get("batch_dims", 0)
        return min(table[first : first + indices[-1]], default=0) if table and indices else 0
    if node.op_type == "Loop" and node.input[0] == read:
        return _MOST_STEPS
    if _divides(node, read, editor):
        return _DIVISORS
    if node.op_type == "RoiAlign" and node.input[2] == read:
        return (editor.shape(node.input[0]) or (0,))[0]
    if node.op_type == "OneHot" and node.input[0] == read:
        depth = _known(editor, node.input[1])
        return int(depth.item()) if depth is not None else 0
    return _most_of(_numbers_beside(node, read, editor)) + 1 if node.op_type == "Equal" else 0


def _bound_among_positions(node: NodeProto, read: str, editor: GraphEditor) -> int:
    """The bound of what tells how many of some positions live, which are compared with it, or where something begins
    among them: up to the last place where all of it fits, or in the first half if it is subtracted from positions.
    Numbers that are all the same, as the ones that a mask is subtracted from, are no positions."""
    if node.op_type in _WITHIN and node.input[0] == read:
        return _most_within(node, editor)
    numbers = _numbers_beside(node, read, editor)
    most = _most_of(numbers)
    if node.op_type in _COMPARING and most >= 0:
        return most + 2
    begins = node.op_type == "Sub" and node.input[1] == read and _are_integers(read, editor)
    return most // 2 + 1 if begins and len(np.unique(numbers)) > 1 else 0


def _most_within(node: NodeProto, editor: GraphEditor) -> int:
    """One more than the largest integer that a node leaves as it is; 0 if that is not known."""
    limits = _known(editor, node.input[1]) if len(node.input) > 1 and _are_integers(node.input[0], editor) else None
    if limits is None or not limits.size:
        return 0
    return min(max(0, int(limits.min()) + int(node.op_type == "Min")), _MOST_EQUAL)


def _numbers_beside(node: NodeProto, read: str, editor: GraphEditor) -> Array:
    """Finite numbers that a node reads beside a tensor, if these are several."""
    values = [_known(editor, other) for other in node.input if other != read]
    known = [value for value in values if value is not None and value.size > 1 and value.dtype.kind in "iuf"]
    return known[0][np.isfinite(known[0])] if known else np.zeros(0)


def _most_of(numbers: Array) -> int:
    """The largest number; -1 if there is none that is not negative."""
    return max(min(int(numbers.max()), _MOST_EQUAL), -1) if numbers.size else -1
