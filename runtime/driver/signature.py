"""Signatures of compiled models: names, element types and shapes of inputs and outputs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.files.json_fields import Fields, checked, listed, optional, text, whole

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]

# ONNX Runtime's name of each element type, by numpy's name.
_ONNX_RUNTIME_TYPES = {
    "bool": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
    "int4": "int4",
    "uint4": "uint4",
    "int2": "int2",
    "uint2": "uint2",
}
# The types that few models pass are left to a library that takes as long to import as a small network to run.
_NUMPY_TYPES = frozenset(
    {"bool", "float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)
SESSION_TYPES = frozenset(_ONNX_RUNTIME_TYPES)
"""Numpy's names of the element types that a session can pass."""

_MLIR_TYPES = {
    "i1": "bool",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    **{f"{prefix}{bits}": f"int{bits}" for bits in (8, 16, 32, 64) for prefix in ("i", "si")},
    **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
SIGNATURE_EXAMPLE = "func @main(%x: tensor<1x3xf32>) -> (%y: tensor<1x10xf32>)"
HOW_TO_GIVE = f"pass the signature, with --signature '{SIGNATURE_EXAMPLE}' or as Session(signature=...)"
"""What to do where a module does not say what it takes and gives."""

# What numpy's arrays can have.
_MOST_DIMS, _MOST_DIGITS = 64, 18
_DECLARATION = r"func @(?P<entry>[^(]+)\((?P<inputs>.*)\) -> \((?P<outputs>.*)\)"
_VALUE = r"%(?P<name>[\w.$-]+): (?P<type>\w+(?:<[^>]*>)?)"
_VALUES = r"(?:%[\w.$-]+: \w+(?:<[^>]*>)?(?:, (?!\Z))?)*"
_TENSOR = r"tensor<(?P<dims>(?:(?:\d+|\?)x)*)(?P<element>\w+)>"


def _check_dtype(name: str) -> None:
    if name not in _ONNX_RUNTIME_TYPES:
        raise ValueError(f"'{name}' is not an element type a session can pass")


def _check_size(size: int | None) -> None:
    if size is not None and size < 0:
        raise ValueError(f"{size} is not the size of a dimension")


_SHAPE = listed(checked(optional(whole), _check_size))


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: its name, numpy's name of its element type, and its shape with None for dynamic sizes.

    Raises:
        ValueError: if a session cannot pass the element type, or a size is negative.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        """Check the values, as they may come from a model."""
        _check_dtype(self.dtype)
        for size in self.shape:
            _check_size(size)

    @staticmethod
    def read(content: object, where: str = "") -> TensorSpec:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a tensor.
        """
        fields = Fields(content, where)
        name, dtype = fields.take("name", text), fields.take("dtype", checked(text, _check_dtype))
        shape = fields.take("shape", _SHAPE)
        fields.end()
        return TensorSpec(name, dtype, shape)

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The element type as a numpy type; types that numpy lacks are those of ml_dtypes."""
        if self.dtype in _NUMPY_TYPES:
            return np.dtype(self.dtype)
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.dtype))
        return dtype

    @property
    def onnx_runtime_type(self) -> str:
        """The type's name in ONNX Runtime, for example ``tensor(float)``."""
        return f"tensor({_ONNX_RUNTIME_TYPES[self.dtype]})"

    def accepts_shape(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape may be passed."""
        return shape == self.shape or (
            len(shape) == len(self.shape)
            and all(want is None or want == have for want, have in zip(self.shape, shape, strict=True))
        )

    def __str__(self) -> str:
        dims = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{dims}]"


class Signature(NamedTuple):
    """The entry function of a module with its inputs and outputs, in order."""

    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def parse_declaration(text: str) -> Signature:
    """Read IREE's ``iree.abi.declaration``: ``sync func @f(%x: tensor<2x3xf32>) -> (%y: tensor<2xi64>)``.

    Raises:
        UsageError: if the text cannot be parsed, or a value is not a tensor of an element type known to numpy.
    """
    match = re.search(_DECLARATION, text)
    if match is None or len(re.findall(_VALUE, text)) < text.count("%"):
        raise UsageError(f"the declaration '{text}' in the module cannot be read; {HOW_TO_GIVE}")
    return Signature(match["entry"], _parse_values(match["inputs"]), _parse_values(match["outputs"]))


def parse_signature(text: str) -> Signature:
    """Read what a user writes in the form of a declaration: ``func @f(%x: tensor<2x3xf32>) -> (%y: tensor<2xi64>)``.

    Raises:
        UsageError: if it has another form, or a value is not a tensor of an element type known to numpy.
    """
    match = re.fullmatch(_DECLARATION, text.strip().removeprefix("sync "))
    if match is None or not all(re.fullmatch(_VALUES, match[part]) for part in ("inputs", "outputs")):
        raise UsageError(f"the signature '{text}' cannot be read, expected the form {SIGNATURE_EXAMPLE}")
    signature = parse_declaration(text)
    for specs in (signature.inputs, signature.outputs):
        if len({spec.name for spec in specs}) < len(specs):
            raise UsageError(f"the signature '{text}' gives two tensors the same name")
    return signature


def _parse_values(text: str) -> tuple[TensorSpec, ...]:
    return tuple(_parse_value(match["name"], match["type"]) for match in re.finditer(_VALUE, text))


def _parse_value(name: str, type_text: str) -> TensorSpec:
    match = re.fullmatch(_TENSOR, type_text)
    if match is None or match["element"] not in _MLIR_TYPES:
        raise UsageError(f"'{name}' has the type {type_text}, but a session passes dense tensors only")
    dims = match["dims"].split("x")[:-1]
    if len(dims) > _MOST_DIMS or any(len(dim) > _MOST_DIGITS for dim in dims):
        raise UsageError(f"'{name}' has more dimensions, or larger ones, than a tensor can have")
    return TensorSpec(name, _MLIR_TYPES[match["element"]], tuple(None if size == "?" else int(size) for size in dims))


def check_names(specs: Sequence[TensorSpec], given: Sequence[str]) -> None:
    """Check that exactly the named inputs are given.

    Raises:
        UsageError: if inputs are missing or unknown; the message names them.
    """
    expected = [spec.name for spec in specs]
    if unknown := sorted(map(str, set(given) - set(expected))):
        raise UsageError(f"the model has no input {_quoted(unknown)}; its inputs are {_quoted(expected)}")
    if missing := [name for name in expected if name not in given]:
        raise UsageError(f"no value is given for {'inputs' if len(missing) > 1 else 'input'} {_quoted(missing)}")


def plain_array(value: object, what: str) -> Array:
    """A value as an array.

    Args:
        value: what a caller gives.
        what: names it.

    Raises:
        UsageError: if it is a masked array, whose elements under the mask mean nothing, or no array at all.
    """
    # Most programs never load numpy's masked arrays, which takes time.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise UsageError(f"{what} is a masked array; pass its filled() with the value that stands for masked elements")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise UsageError(f"{what} is no array: {error}") from None


def check_array(spec: TensorSpec, dtype: np.dtype[Any], shape: Sequence[int], kind: str = "input") -> None:
    """Check that a value has the element type and shape of an input, or of what ``kind`` says.

    Raises:
        UsageError: if not; the message names the tensor, the expected and the given type.
    """
    if dtype != spec.numpy_dtype:
        raise UsageError(f"{kind} '{spec.name}' expects {spec}, but got element type {dtype}")
    if not spec.accepts_shape(shape):
        raise UsageError(f"{kind} '{spec.name}' expects {spec}, but got shape {list(shape)}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def passed(array: Array, dtype: np.dtype[np.generic], shape: tuple[int | None, ...]) -> Array:
    """The elements in the type and shape of the other side: IREE's integers have no sign, and reals may be narrower."""
    raw = array.dtype.kind in "iu" and dtype.kind in "iu" and array.dtype.itemsize == dtype.itemsize
    return (array.view(dtype) if raw else array.astype(dtype)).reshape([size or 0 for size in shape])


def merged(signatures: Sequence[Sequence[TensorSpec]]) -> tuple[TensorSpec, ...]:
    """The inputs or the outputs of several signatures, with None for sizes in which they differ."""
    return tuple(_merged_spec(specs) for specs in zip(*signatures, strict=True))


def _merged_spec(specs: Sequence[TensorSpec]) -> TensorSpec:
    sizes = [set(axis) for axis in zip(*(spec.shape for spec in specs), strict=True)]
    return replace(specs[0], shape=tuple(size.pop() if len(size) == 1 else None for size in sizes))
