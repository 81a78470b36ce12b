"""Inputs of a model whose values were fixed when it was compiled, so that its module does not take them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.files.json_fields import FieldError, Fields, listed, number

Number = bool | int | float
Bindings = Mapping[str, tuple[Number, ...]]
"""Input name to the values of its elements, as the user gave them."""


@dataclass(frozen=True)
class BoundInput:
    """An input of the model with a fixed value.

    Attributes:
        spec: name, element type and static shape.
        values: of its elements in row-major order, as the user gave them.
    """

    spec: TensorSpec
    values: tuple[Number, ...]

    def __post_init__(self) -> None:
        """Check the values, as manifests come from files.

        Raises:
            ValueError: if they do not fit the type and shape.
        """
        sizes = [size or 0 for size in self.spec.shape]
        if math.prod(sizes) != len(self.values) or typed(self.values, self.spec.numpy_dtype) is None:
            raise ValueError(f"{self.text} is not a value of {self.spec}")

    @staticmethod
    def read(content: object, where: str = "") -> BoundInput:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of an input with a value that fits.
        """
        fields = Fields(content, where)
        spec, values = fields.take("spec", TensorSpec.read), fields.take("values", listed(number))
        fields.end()
        try:
            return BoundInput(spec, values)
        except ValueError as error:
            raise FieldError(where, str(error)) from None

    @property
    def array(self) -> Array:
        """The value, for runtimes that run the original model."""
        array = typed(self.values, self.spec.numpy_dtype)
        assert array is not None
        return array.reshape([size or 0 for size in self.spec.shape])

    @property
    def text(self) -> str:
        """The values, in the syntax of ``--bind``."""
        return values_text(self.values)


def typed(values: Sequence[Number], dtype: np.dtype[Any]) -> Array | None:
    """The values in an element type, which may round reals; None if a value is not of that type or not in its range."""
    if dtype.kind == "b":
        return np.array(values, dtype) if all(value in (0, 1) for value in values) else None
    if any(isinstance(value, bool) for value in values):
        return None
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        inside = all(isinstance(value, int) and limits.min <= value <= limits.max for value in values)
        return np.array(values, dtype) if inside else None
    try:
        with np.errstate(over="ignore"):
            array = np.array([float(value) for value in values]).astype(dtype)
    except OverflowError:
        return None
    return array if np.isfinite(array).all() else None


def values_text(values: Sequence[Number]) -> str:
    """Values in the syntax of ``--bind``."""
    return ",".join(str(value).lower() for value in values)


def bound_feeds(bound: Sequence[BoundInput]) -> dict[str, Array]:
    """The values by name, to be fed to the original model."""
    return {value.spec.name: value.array for value in bound}
