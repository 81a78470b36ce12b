"""Finds what is odd about the user's samples: 8-bit ranges on such are of no use, and right and wrong look alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sartor.runtime.driver.signature import Array

# Nothing that a network sees is measured in units this far from its numbers. A mistake in a unit is smaller.
_LARGE, _SMALL = 1e12, 1e-12


@dataclass(frozen=True)
class Extent:
    """The least and the largest number of an input.

    Attributes:
        least: of the numbers.
        most: of the numbers.
    """

    least: float
    most: float

    def __or__(self, other: Extent) -> Extent:
        return Extent(min(self.least, other.least), max(self.most, other.most))

    @property
    def oddity(self) -> str:
        """What is odd about it, as the rest of a sentence about the input; empty if nothing is."""
        if self.least == self.most:
            # Added to zero, -0 is 0.
            return f"is {self.least + 0.0:g} everywhere"
        size = max(-self.least, self.most)
        if size > _LARGE or size < _SMALL:
            return f"has numbers up to {size:.2g}"
        return ""


def extents(feeds: Mapping[str, Array]) -> dict[str, Extent]:
    """Of all inputs of one sample that hold several floats; one alone may be a setting, and integers may be a mask."""
    return {
        name: Extent(float(array.min()), float(array.max()))
        for name, array in feeds.items()
        if array.size > 1 and _is_float(array)
    }


def united(samples: Sequence[Mapping[str, Extent]]) -> dict[str, Extent]:
    """The extents of inputs over all samples."""
    whole: dict[str, Extent] = {}
    for sample in samples:
        whole |= {name: whole.get(name, extent) | extent for name, extent in sample.items()}
    return whole


def oddities(
    inputs: Mapping[str, Extent], outputs: Mapping[str, Sequence[Array]], known: Collection[str]
) -> tuple[str, ...]:
    """What is odd about samples, a sentence each; that outputs do not vary is not, where inputs do not.

    Args:
        inputs: of all samples.
        outputs: what ONNX Runtime computes on each of them.
        known: outputs of which the user hears otherwise.
    """
    odd = [f"input '{name}' {extent.oddity}" for name, extent in inputs.items() if extent.oddity]
    return tuple(odd) or tuple(
        f"output '{name}' is always the same"
        for name, values in outputs.items()
        if name not in known and _is_same(values)
    )


def _is_same(values: Sequence[Array]) -> bool:
    first, *others = values
    return bool(others and first.size and _is_float(first)) and all(
        other.shape == first.shape and other.tobytes() == first.tobytes() for other in others
    )


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"
