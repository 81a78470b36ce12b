"""Inputs to run a model on when the user has given none: values that the model could meet."""

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

# Operators that hand values on unchanged as far as their range goes.
_PASSING = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
_INDEXING = ("Gather", "GatherElements")
_ONE_IN_TEN = 0.1


class Indices(Enum):
    """What integers are, within their bounds."""

    RANDOM = "random"
    ONES = "ones"
    RISING = "rising"


@dataclass(frozen=True)
class Style:
    """A way to draw inputs.

    Attributes:
        deviation: of normal floats.
        limits: of uniform floats, instead.
        indices: what integers are; with ones booleans are all true.
    """

    deviation: float = 1.0
    limits: tuple[float, float] | None = None
    indices: Indices = Indices.RANDOM

    def floats(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Floats in this style."""
        if self.limits is not None:
            return random.uniform(*self.limits, shape)
        return random.standard_normal(shape) * self.deviation


USUAL = Style()
"""What models are run on unless some output says nothing then."""

OTHERS = (
    Style(limits=(0.0, 1.0), indices=Indices.ONES),
    Style(limits=(0.0, 255.0), indices=Indices.RISING),
    Style(deviation=0.1, indices=Indices.RISING),
    Style(deviation=10.0, indices=Indices.ONES),
    Style(deviation=0.01),
    Style(deviation=100.0),
)


def sample_inputs(model: ModelProto, seed: int, style: Style = USUAL) -> dict[str, Array]:
    """Random inputs by name, the same for the same seed.

    Floats are standard normal, or uniform over the representable range where they are quantised first. Integers stay
    inside the tables they index and the constants they are compared with; without such a bound they are 0 or 1, 8-bit
    ones anything. Booleans are mostly true, as masks are. Other styles than the usual one say what differs.

    Raises:
        UsageError: an input has a dimension that is not bound.
    """
    editor = GraphEditor(model.graph)
    samples = {}
    for value in model.graph.input:
        if editor.is_constant(value.name):
            continue
        shape = static_shape(value.type)
        if shape is None:
            raise UsageError(f"input '{value.name}' has a free dimension; bind it with --shape {value.name}=...")
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        random = np.random.default_rng([seed, zlib.crc32(value.name.encode())])
        # What numpy computes of arrays without dimensions is no array.
        samples[value.name] = np.asarray(_sample(random, editor, value.name, shape, dtype, style))
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
        return random.random(shape) >= (0.0 if style.indices is Indices.ONES else _ONE_IN_TEN)
    if not np.issubdtype(dtype, np.integer):
        low, high = _quantised_range(editor, name)
        if low < high and style == USUAL:
            return random.uniform(low, high, shape).astype(dtype)
        return style.floats(random, shape).astype(dtype)
    if dtype.itemsize == 1:
        limits = np.iinfo(np.dtype(dtype.str))
        return random.integers(limits.min, limits.max, shape, dtype=np.dtype(dtype.str), endpoint=True)
    return _indices(random, _index_bound(editor, name), shape, style.indices).astype(dtype)


def _indices(random: np.random.Generator, bound: int, shape: tuple[int, ...], kind: Indices) -> Array:
    if kind is Indices.ONES:
        return np.full(shape, min(1, bound - 1))
    if kind is Indices.RISING:
        return np.broadcast_to(np.arange(shape[-1] if shape else 1) % bound, shape or (1,)).reshape(shape)
    return random.integers(0, bound, shape)


def _readers(editor: GraphEditor, name: str) -> Iterator[tuple[NodeProto, str]]:
    """Nodes that read ``name``, directly or through operators that hand it on, with the name they read."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        for node in editor.consumers(current):
            yield node, current
            if (node.op_type in _PASSING and node.input[0] == current) or node.op_type == "Concat":
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                pending.extend(fresh)


def _quantised_range(editor: GraphEditor, name: str) -> tuple[float, float]:
    """Range that the quantiser reading ``name`` can represent; empty where there is none."""
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
    """Values of a constant; None also for one whose values were left out, as those of weights are."""
    tensor = editor.tensor(name)
    if tensor is not None and tensor.data_location != TensorProto.EXTERNAL and not _has_values(tensor):
        return None
    return editor.constant(name)


def _has_values(tensor: TensorProto) -> bool:
    return not math.prod(tensor.dims) or any(field.name.endswith("_data") for field, _ in tensor.ListFields())


def _index_bound(editor: GraphEditor, name: str) -> int:
    """One more than the largest value that every reader of ``name`` takes."""
    bounds = [bound for node, read in _readers(editor, name) if (bound := _bound_of(node, read, editor))]
    return max(1, min(bounds, default=2))


def _bound_of(node: NodeProto, read: str, editor: GraphEditor) -> int:
    if node.op_type in _INDEXING and node.input[1] == read:
        table = editor.shape(node.input[0])
        return table[attributes(node).get("axis", 0)] if table else 0
    if node.op_type == "OneHot" and node.input[0] == read:
        depth = _known(editor, node.input[1])
        return int(depth.item()) if depth is not None else 0
    if node.op_type == "Equal":
        values = [_known(editor, other) for other in node.input if other != read]
        known = [value for value in values if value is not None and value.size > 1]
        return int(known[0].max()) + 1 if known else 0
    return 0
