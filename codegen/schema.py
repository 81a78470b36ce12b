"""Schemas: where a tensor lives, in which type, and how its elements are laid out.

A schema reads ``device:dtype@layout``, for example ``cpu:f32@nhwc`` (SoftNeuro, section III-A, extended by
NeoCPU's layouts). Two layers can be joined without an adapt exactly when the schemas on the edge are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
