"""Reads a grid of pixels at computed positions, by gathers inside the grid and weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter

EXACT_IN_FLOAT = 2**24
"""Indices are computed in float32, which holds integers up to this exactly."""

# Keys 1981 with the coefficient of PyTorch, ONNX Runtime and ONNX.
_CUBIC = -0.75


@dataclass(frozen=True)
class Sampler:
    """Emits the reading of pixels. Positions are values of one shape, one per dimension, the fastest first.

    Attributes:
        emit: of the operator that is lowered.
        sizes: of the dimensions in pixels, the fastest first.
        kind: name of a value of the positions' element type.
        source: name of a value of the pixels' element type.
        read: emits the gather of pixels at flat indices.
        channel: axis of the channels in what ``read`` gives, which positions do not have.
        zeros: whether pixels outside the grid are zero; otherwise the nearest one is read.
        reflected: what cubic sampling reads for a coordinate in a dimension, by its number, in place of the nearest.
    """

    emit: Emitter
    sizes: tuple[int, ...]
    kind: str
    source: str
    read: Callable[[str], str]
    channel: int
    zeros: bool
    reflected: Callable[[str, int], str] | None = None

    def number(self, value: float) -> str:
        """A constant of the positions' type."""
        return self.emit.like(value, self.kind, "number")

    def clipped(self, position: str, size: int) -> str:
        """The nearest position inside the grid."""
        return self.emit("Clip", position, self.number(0.0), self.number(float(size - 1)), part="inside")

    def pixel(self, corner: Sequence[str]) -> str:
        """Pixels at integer positions."""
        emit = self.emit
        inside = [self.clipped(name, size) for name, size in zip(corner, self.sizes, strict=True)]
        strides = list(itertools.accumulate(self.sizes[:-1], int.__mul__, initial=1))
        terms = [
            name if stride == 1 else emit("Mul", name, self.number(float(stride)), part="row")
            for name, stride in zip(inside, strides, strict=True)
        ]
        index = reduce(lambda total, term: emit("Add", total, term, part="index"), reversed(terms))
        value = self.read(emit("Cast", index, part="index_number", to=TensorProto.INT64))
        if not self.zeros:
            return value
        hits = [emit("Equal", name, held, part="hit") for name, held in zip(corner, inside, strict=True)]
        hit = self._aligned(reduce(lambda left, right: emit("And", left, right, part="both"), hits), "hit_align")
        return emit("Where", hit, value, emit.like(0.0, self.source, "zero"), part="masked")

    def linear(self, positions: Sequence[str]) -> list[str]:
        """The neighbours of each position, weighted by the distances to their opposites; their sum is the value."""
        emit = self.emit
        below = [emit("Floor", name, part="floor") for name in positions]
        above = [emit("Add", name, self.number(1.0), part="above") for name in below]
        fractions = [emit("Sub", name, low, part="fraction") for name, low in zip(positions, below, strict=True)]
        rests = [emit("Sub", self.number(1.0), name, part="rest") for name in fractions]
        return self._weighted(
            [
                [(low, rest), (high, fraction)]
                for low, rest, high, fraction in zip(below, rests, above, fractions, strict=True)
            ]
        )

    def cubic(self, positions: Sequence[str]) -> list[str]:
        """Four neighbours per dimension with cubic weights; their sum is the value."""
        taps = []
        for index, name in enumerate(positions):
            base = self.emit("Floor", name, part="floor")
            fraction = self.emit("Sub", name, base, part="fraction")
            rows = [self.emit("Add", base, self.number(float(step)), part="tap") for step in (-1, 0, 1, 2)]
            if self.reflected is not None:
                rows = [self.reflected(row, index) for row in rows]
            taps.append(list(zip(rows, self._cubic_weights(fraction), strict=True)))
        return self._weighted(taps)

    def total(self, values: Sequence[str]) -> str:
        """The sum of values."""
        return reduce(lambda left, right: self.emit("Add", left, right, part="sum"), values)

    def _weighted(self, taps: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
        emit, values = self.emit, []
        for chosen in itertools.product(*taps):
            weight = reduce(
                lambda left, right: emit("Mul", left, right, part="weight"), (factor for _, factor in chosen)
            )
            pixel = self.pixel([name for name, _ in chosen])
            values.append(emit("Mul", pixel, self._aligned(weight, "weight_align"), part="weighted"))
        return values

    def _cubic_weights(self, fraction: str) -> list[str]:
        """Polynomials of the distances ``1 + t``, ``t``, ``1 - t`` and ``2 - t``."""
        emit = self.emit
        one = self.number(1.0)
        rest = emit("Sub", one, fraction, part="rest")
        outer = [emit("Add", distance, one, part="far") for distance in (fraction, rest)]
        a = _CUBIC
        far = [self._polynomial(distance, (a, -5 * a, 8 * a, -4 * a)) for distance in outer]
        near = [self._polynomial(distance, (a + 2, -(a + 3), 0.0, 1.0)) for distance in (fraction, rest)]
        return [far[0], near[0], near[1], far[1]]

    def _polynomial(self, value: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme, from the highest power."""
        emit = self.emit
        total = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = emit("Add", emit("Mul", total, value, part="power"), self.number(coefficient), part="polynomial")
        return total

    def _aligned(self, value: str, part: str) -> str:
        return self.emit("Unsqueeze", value, self.emit.constant([self.channel], "channel"), part=part)
