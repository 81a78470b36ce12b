"""Schemas: where a tensor lives, in which type, and how its elements are laid out.

A schema reads ``device:dtype@layout``, for example ``cpu:f32@nhwc`` (SoftNeuro, section III-A, extended by
NeoCPU's layouts). Two layers can be joined without an adapt exactly when the schemas on the edge are equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import in_layout, layout_packing, plain_layout, same_order
from sartor.codegen.ir.packing import Packing, Round

QUANTISED = "i8"
"""Element type of quantised tensors. A tensor of another ONNX type that is stored in it holds integers that stand for
``scale * (integer - zero point)``."""

RANGE = TensorType((4,), "f32")
"""Type of the argument that describes a quantised tensor: scale, zero point, inverse of the scale, and 0."""

_SCHEMA = re.compile(r"(?P<device>[a-z]+):(?P<dtype>[a-z][a-z0-9]*)@(?P<layout>[a-z][a-z0-9]*)")


@dataclass(frozen=True, order=True)
class Schema:
    """Device, element type and layout of one tensor."""

    device: str
    dtype: str
    layout: str

    def __str__(self) -> str:
        return f"{self.device}:{self.dtype}@{self.layout}"

    @staticmethod
    def parse(text: str) -> Schema:
        """Read ``device:dtype@layout``.

        Raises:
            ValueError: if ``text`` has another form.
        """
        match = _SCHEMA.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is not a schema of the form device:dtype@layout")
        return Schema(**match.groupdict())

    @staticmethod
    def plain(logical: TensorType, device: str) -> Schema:
        """The schema of a tensor of ONNX type ``logical`` in ONNX's own layout and element type."""
        return Schema(device, logical.dtype, plain_layout(logical))

    def stored_as(self, dtype: str) -> Schema:
        """The same layout with elements of type ``dtype``."""
        return replace(self, dtype=dtype)

    def physical(self, logical: TensorType) -> TensorType:
        """Type in memory of a tensor of ONNX type ``logical``.

        Raises:
            ValueError: if the layout does not fit the tensor.
        """
        return in_layout(replace(logical, dtype=self.dtype), self.layout)

    def packing(self, logical: TensorType) -> Packing:
        """Steps from a tensor of ONNX type ``logical`` to its form in memory, without quantisation."""
        steps = layout_packing(logical, self.layout).steps
        return Packing(steps if self.dtype in (logical.dtype, QUANTISED) else (*steps, Round(self.dtype)))

    def quantises(self, logical: TensorType) -> bool:
        """Whether a tensor of ONNX type ``logical`` is stored as integers with a scale and a zero point."""
        return self.dtype == QUANTISED != logical.dtype


def schemas_of(
    tensors: Sequence[TensorType], layouts: Sequence[str], device: str, stored: str | None = None
) -> tuple[Schema, ...]:
    """The schemas of tensors in these layouts.

    Args:
        tensors: their ONNX types.
        layouts: one for each.
        device: where they live.
        stored: element type that all are stored in; None for the ONNX type of each.
    """
    return tuple(
        Schema(device, stored or tensor.dtype, layout) for tensor, layout in zip(tensors, layouts, strict=True)
    )


def physical_types(tensors: Sequence[TensorType], schemas: Sequence[Schema]) -> list[TensorType]:
    """Types in memory of tensors of these ONNX types.

    Raises:
        ValueError: if a layout does not fit its tensor.
    """
    return [schema.physical(tensor) for tensor, schema in zip(tensors, schemas, strict=True)]


def ranges_of(tensors: Sequence[TensorType], schemas: Sequence[Schema], results: int = 1) -> tuple[int | None, ...]:
    """Which ranges code takes as arguments: one for each quantised activation, and one for quantised results.

    Args:
        tensors: ONNX types of the activations, then of the results.
        schemas: one for each.
        results: how many of them are results, which share one range.

    Returns:
        Positions of activations, then None if the results are quantised.
    """
    quantised = [schema.quantises(tensor) for tensor, schema in zip(tensors, schemas, strict=True)]
    activations = len(quantised) - results
    read = tuple(position for position, is_read in enumerate(quantised[:activations]) if is_read)
    return (*read, None) if any(quantised[activations:]) else read


def same_bytes(logical: TensorType, one: Schema, other: Schema) -> bool:
    """Whether a tensor of ONNX type ``logical`` has the same bytes in two schemas, so that an adapt is a reshape."""
    same_elements = (one.device, one.dtype) == (other.device, other.dtype)
    return same_elements and same_order(logical, one.layout, other.layout)
