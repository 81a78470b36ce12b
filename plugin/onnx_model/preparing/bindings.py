"""Fixes the values of inputs: they become constants, so that what depends on them alone is computed at compile time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.infer import forget_shapes
from sartor.onnx_model.preparing.shapes import Shapes, model_inputs
from sartor.runtime.driver.bound_input import Bindings, BoundInput, Number, typed, values_text
from sartor.runtime.driver.signature import SESSION_TYPES, TensorSpec

_NUMBERS = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
_RECORD = "sartor.bound."


def bound_inputs(model: ModelProto, bindings: Bindings) -> tuple[BoundInput, ...]:
    """The bound inputs with the types and shapes that the model declares, in the model's order.

    One open dimension takes the size that the number of values determines. An input without a declared shape is a
    scalar for one value, and has one dimension for several.

    Raises:
        UsageError: an input is unknown, its values are not of its type, or their number does not fit its shape.
    """
    inputs = model_inputs(model.graph)
    for name in bindings:
        if name not in inputs:
            known = ", ".join(f"'{known}'" for known in inputs) or "none"
            raise UsageError(f"--bind names the input '{name}', which the model does not have; its inputs are {known}")
    return tuple(_bound(value, bindings[name]) for name, value in inputs.items() if name in bindings)


def free_shapes(shapes: Shapes, bound: Sequence[BoundInput]) -> Shapes:
    """``shapes`` without those of bound inputs.

    Raises:
        UsageError: a bound input has another shape.
    """
    given = {value.spec.name: value.spec.shape for value in bound}
    for name in shapes:
        if shapes[name] != given.get(name, shapes[name]):
            text = ",".join(map(str, shapes[name]))
            raise UsageError(f"--shape {name}={text} does not fit the values that --bind gives that input")
    return {name: shape for name, shape in shapes.items() if name not in given}


def bind_values(model: ModelProto, bound: Sequence[BoundInput]) -> tuple[str, ...]:
    """Replace inputs by constants, in place; returns their names.

    A symbolic dimension (``batch``) of a bound input is bound in all inputs. Shapes of computed values are removed,
    so that inference derives them anew.

    Raises:
        UsageError: two bound inputs give a symbolic dimension different sizes.
    """
    if not bound:
        return ()
    arrays = {value.spec.name: value.array for value in bound}
    symbols = _symbols([value for value in model.graph.input if value.name in arrays], bound)
    make_constant(model, arrays)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
    forget_shapes(model)
    return tuple(arrays)


def make_constant(model: ModelProto, values: Mapping[str, Array]) -> None:
    """Replace inputs by initialisers, in place; an input's default value stays."""
    kept = [value for value in model.graph.input if value.name not in values]
    defaults = {tensor.name for tensor in model.graph.initializer}
    # Copies: what is kept belongs to the list that is emptied.
    copies = [ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del model.graph.input[:]
    model.graph.input.extend(copies)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in values.items() if name not in defaults
    )


def record_bound(model: ModelProto, bound: Sequence[BoundInput]) -> None:
    """Write the values to the model's metadata, so that its hash depends on them even where nothing reads them."""
    for value in bound:
        model.metadata_props.add(key=_RECORD + value.spec.name, value=value.text)


def _bound(value: ValueInfoProto, values: tuple[Number, ...]) -> BoundInput:
    kind = value.type.tensor_type.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(kind) if kind in _NUMBERS else np.dtype(object)
    if dtype.name not in SESSION_TYPES:
        raise UsageError(
            f"--bind cannot fix input '{value.name}': it takes neither booleans nor numbers of 8 bits or more"
        )
    if typed(values, dtype) is None:
        raise UsageError(
            f"--bind {value.name}={values_text(values)} does not fit the input's element type {dtype.name}; "
            f"give {_EXPECTED.get(dtype.kind, 'numbers within its range')}"
        )
    return BoundInput(TensorSpec(value.name, dtype.name, _shape(value, values)), values)


_EXPECTED = {
    "b": "true or false",
    "i": "integers within its range",
    "u": "integers of 0 or more, within its range",
}


def _shape(value: ValueInfoProto, values: tuple[Number, ...]) -> tuple[int, ...]:
    """The input's shape, which must have as many elements as there are values; a size of 0 counts as open."""
    tensor, count = value.type.tensor_type, len(values)
    if not tensor.HasField("shape"):
        return () if count == 1 else (count,)
    sizes = [max(0, dim.dim_value) for dim in tensor.shape.dim]
    known = math.prod(size for size in sizes if size)
    if sizes.count(0) > 1 or count % known or (0 not in sizes and count != known):
        shown = ", ".join(str(max(0, dim.dim_value) or dim.dim_param or "?") for dim in tensor.shape.dim)
        raise UsageError(
            f"--bind gives {count} {'value' if count == 1 else 'values'} for input '{value.name}' of shape [{shown}]; "
            "give one value per element, and bind no input with several open dimensions"
        )
    return tuple(size or count // known for size in sizes)


def _symbols(inputs: Sequence[ValueInfoProto], bound: Sequence[BoundInput]) -> dict[str, int]:
    """Sizes of symbolic dimensions of bound inputs."""
    shapes = {value.spec.name: value.spec.shape for value in bound}
    symbols: dict[str, int] = {}
    for value in inputs:
        # Shapes differ in length for an input without a declared shape, which has no symbols.
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=False):
            if dim.dim_param and symbols.setdefault(dim.dim_param, size or 0) != size:
                raise UsageError(
                    f"--bind gives the dimension '{dim.dim_param}' the sizes {symbols[dim.dim_param]} and {size}; "
                    "give it one size"
                )
    return symbols
