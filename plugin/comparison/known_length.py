"""A model that computes a length from data, as it is on inputs whose length ONNX Runtime has told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from sartor.errors import UsageError
from sartor.onnx_model.dynamic.computed_length import computed_length
from sartor.onnx_model.dynamic.cut_length import LENGTH, cut_length, keep_length
from sartor.onnx_model.graphs.held_data import serialised
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array


@dataclass(frozen=True)
class KnownLength:
    """A model on some inputs.

    Attributes:
        model: without a length that it computes.
        feeds: of which noise is as long as it is read.
        shapes: of inputs with open dimensions.
    """

    model: ModelProto
    feeds: Mapping[str, Array]
    shapes: Mapping[str, tuple[int, ...]]


def at_length(
    model: ModelProto,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    bound: Mapping[str, Array],
) -> KnownLength:
    """The model as it is on inputs, in which its length is a constant; as it was if it computes none.

    Args:
        model: as it was read; it is not changed.
        feeds: one array per input.
        shapes: of inputs with open dimensions.
        bound: further inputs, whose value was fixed.

    Raises:
        UsageError: if ONNX Runtime does not run it on these inputs, or noise is shorter than it is read.
    """
    length = computed_length(model, bound)
    if length is None:
        return KnownLength(model, feeds, shapes)
    alone, part = ModelProto(), ModelProto()
    alone.CopyFrom(model)
    part.CopyFrom(model)
    keep_length(alone, length)
    reference = ReferenceModel(b"".join(serialised(alone)))
    given = {name: array for name, array in {**feeds, **bound}.items() if name in reference.input_names}
    outputs = dict(zip(reference.output_names, reference(given), strict=True))
    size, cut = int(outputs[LENGTH].item()), cut_length(part, length)
    part.graph.output.remove(next(value for value in part.graph.output if value.name == LENGTH))
    taken, known = dict(feeds), dict(shapes)
    for name, axis in cut.places:
        if taken[name].shape[axis] < size:
            raise UsageError(
                f"'{name}' has the size {taken[name].shape[axis]} along axis {axis}, and {cut.node} says that {size} "
                f"are read; give more, as with --size {cut.symbol}={size}"
            )
        taken[name] = np.ascontiguousarray(taken[name].take(range(size), axis))
        known[name] = taken[name].shape
        (value,) = (value for value in part.graph.input if value.name == name)
        value.type.CopyFrom(helper.make_tensor_type_proto(value.type.tensor_type.elem_type, known[name]))
    if cut.unread:
        part.graph.input.remove(next(value for value in part.graph.input if value.name == cut.unread))
        part.graph.initializer.append(numpy_helper.from_array(np.zeros(size, np.int8), cut.unread))
    return KnownLength(part, taken, known)
