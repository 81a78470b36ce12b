"""Schemas: where a tensor lives, in which type, and how its elements are laid out.

A schema reads ``device:dtype@layout``, for example ``cpu:f32@nhwc`` (SoftNeuro, section III-A, extended by
NeoCPU's layouts). Two layers can be joined without an adapt exactly when the schemas on the edge are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import form_of, split_form

_SCHEMA = re.compile(r"(?P<device>[a-z]+):(?P<dtype>[a-z][a-z0-9]*)@(?P<layout>[a-z][a-z0-9]*)")


@dataclass(frozen=True, order=True)
class Schema:
    """Device, element type and layout of one tensor."""

    device: str
    dtype: str
    layout: str

    def __str__(self) -> str:
        return f"{self.device}:{self.dtype}@{self.layout}"

    def with_layout(self, layout: str) -> Schema:
        """The same device and element type in another layout."""
        return replace(self, layout=layout)

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


def schema_of(device: str, logical: TensorType, form: str) -> Schema:
    """The schema of a tensor of ONNX type ``logical`` in a form."""
    dtype, layout = split_form(form)
    return Schema(device, dtype or logical.dtype, layout)


def form_in(schema: Schema, logical: TensorType) -> str:
    """The form of a tensor of ONNX type ``logical`` in a schema."""
    return form_of(schema.layout, None if schema.dtype == logical.dtype else schema.dtype)
