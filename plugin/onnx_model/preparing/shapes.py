"""Binds the model's inputs to the static shapes for which it is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError, open_bounds
from sartor.onnx_model.dynamic.suggested_shapes import shape_advice
from sartor.onnx_model.graphs.infer import forget_shapes
from sartor.onnx_model.graphs.limits import MAX_DIMENSION
from sartor.onnx_model.graphs.noise import noise_of

Shapes = Mapping[str, tuple[int, ...]]


def bind_shapes(model: ModelProto, shapes: Shapes) -> tuple[str, ...]:
    """Give every input a static shape, in place; returns the names in ``shapes``.

    Binding a symbolic dimension (``batch``) in one input binds it in all inputs. Shapes of computed values are removed,
    so that inference derives them from the inputs.

    Raises:
        UsageError: ``shapes`` names an unknown input, has another rank, contradicts the model or itself, or leaves a
            dimension unbound, which is an ``UnboundSizesError``.
        UnsupportedModelError: an input is not a tensor.
    """
    inputs = model_inputs(model.graph)
    _check_names(inputs, shapes)
    symbols: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        _bind(inputs[name], shape, symbols)
    for value in inputs.values():
        _bind_symbols(value, symbols)
    noise = {drawn.name for drawn in noise_of(model)}
    for name, value in inputs.items():
        # The model computes the shapes of noise.
        if name not in shapes and name not in noise:
            _check_bound(value, model)
    if shapes:
        forget_shapes(model)
    for value in model.graph.output:
        if value.name in inputs:
            # Inference describes results of nodes only.
            value.type.tensor_type.shape.CopyFrom(inputs[value.name].type.tensor_type.shape)
    return tuple(shapes)


def model_inputs(graph: GraphProto) -> dict[str, ValueInfoProto]:
    """The inputs that are not initialisers with a default value, by name.

    Raises:
        UnsupportedModelError: an input is not a tensor.
    """
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    for name, value in inputs.items():
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.elem_type:
            raise UnsupportedModelError(f"input '{name}' is not a tensor; only models with tensor inputs are supported")
    return inputs


def _check_names(inputs: Mapping[str, ValueInfoProto], shapes: Shapes) -> None:
    for name in shapes:
        if name not in inputs:
            known = ", ".join(f"'{known}'" for known in inputs) or "none"
            raise UsageError(f"--shape names the input '{name}', which the model does not have; its inputs are {known}")


def _bind(value: ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> None:
    tensor = value.type.tensor_type
    text = ",".join(map(str, shape))
    if any(not 0 <= size <= MAX_DIMENSION for size in shape):
        raise UsageError(f"--shape {value.name}={text} has a dimension that is not between 0 and {MAX_DIMENSION}")
    if not tensor.HasField("shape"):
        tensor.shape.dim.extend(TensorShapeProto.Dimension() for _ in shape)
    dims = tensor.shape.dim
    if len(dims) != len(shape):
        raise UsageError(
            f"--shape {value.name}={text} has {len(shape)} dimensions, but the input has {len(dims)}: {_written(value)}"
        )
    for index, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        _bind_dimension(value, index, dim, size, symbols)


def _bind_dimension(
    value: ValueInfoProto,
    index: int,
    dim: TensorShapeProto.Dimension,
    size: int,
    symbols: dict[str, tuple[int, str]],
) -> None:
    if dim.HasField("dim_value") and dim.dim_value > 0:
        if dim.dim_value != size:
            raise UsageError(
                f"--shape binds dimension {index} of '{value.name}' to {size}, "
                f"but the model fixes it to {dim.dim_value}"
            )
        return
    symbol = dim.dim_param
    known, source = symbols.get(symbol, (size, value.name)) if symbol else (size, value.name)
    if known != size:
        raise UsageError(
            f"--shape binds '{symbol}' to {known} in '{source}' and to {size} in '{value.name}'; give it one value"
        )
    if symbol:
        symbols[symbol] = (size, value.name)
    dim.dim_value = size


def _bind_symbols(value: ValueInfoProto, symbols: Mapping[str, tuple[int, str]]) -> None:
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param in symbols:
            dim.dim_value = symbols[dim.dim_param][0]


def _check_bound(value: ValueInfoProto, model: ModelProto) -> None:
    """Refuse an input with an unbound dimension, or with size 0 unless the user gave it: some exporters write 0 for an
    unknown size.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise UsageError(f"input '{value.name}' declares no shape; bind it {shape_advice(model)}")
    for index, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value == 0:
            raise UsageError(
                f"dimension {index} of input '{value.name}' has the size 0; bind the input {shape_advice(model)}, "
                "with 0 there if the input really has no elements"
            )
        if not (dim.HasField("dim_value") and dim.dim_value > 0):
            symbol = f" ('{dim.dim_param}')" if dim.dim_param else ""
            raise UnboundSizesError.of(
                f"dimension {index}{symbol} of input '{value.name}' is not fixed; bind it {shape_advice(model)}",
                open_bounds(model),
            )


def _written(value: ValueInfoProto) -> str:
    """The shape as the model declares it, with unbound dimensions as symbols."""
    dims = value.type.tensor_type.shape.dim
    return ",".join(
        str(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else dim.dim_param or "?" for dim in dims
    )
