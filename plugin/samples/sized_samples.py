"""The user's samples for a network of any size, which have sizes of their own, as samples of one of its sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.samples.given_samples import Samples
from sartor.tuning.records.signature import open_sizes, value_spec

_NEAREST = 8
"""So many samples, of the nearest sizes, are taken for one size."""
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SizedSamples:
    """Samples of the nearest sizes, cut or repeated to one size.

    Attributes:
        given: the user's.
        indices: of those that are taken.
        shapes: of the inputs.
    """

    given: Samples
    indices: tuple[int, ...]
    shapes: Shapes

    @staticmethod
    def open(path: Path, inputs: Sequence[NetworkValue], shapes: Shapes) -> SizedSamples:
        """Open samples for a network, as ``Samples.open`` does.

        Args:
            path: file or directory.
            inputs: of the network of any size.
            shapes: of its inputs with one size.

        Raises:
            UsageError: if a file does not fit, or has sizes that the network does not take.
        """
        given = Samples.open(path, [*map(value_spec, inputs)])
        sizes = open_sizes(inputs)
        for number, own in enumerate(given.shapes):
            try:
                for size in sizes:
                    size.check(own)
            except UsageError as error:
                raise UsageError(f"sample {number} of '{path}': {error}") from None
        distances = [_distance(own, shapes) for own in given.shapes]
        nearest = sorted(range(len(distances)), key=distances.__getitem__)[:_NEAREST]
        return SizedSamples(given, tuple(sorted(nearest)), shapes)

    def __len__(self) -> int:
        return len(self.indices)

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` on.

        Raises:
            UsageError: as ``Samples.since``.
        """
        for index in self.indices[start:]:
            for sample in islice(self.given.since(index), 1):
                yield {name: _fitted(array, self.shapes[name]) for name, array in sample.items()}


def _distance(own: Shapes, wanted: Shapes) -> float:
    """How far the numbers of elements are apart, whichever is larger."""
    pairs = ((math.prod(shape), math.prod(own[name])) for name, shape in wanted.items())
    return sum(abs(math.log(max(one, 1) / max(other, 1))) for one, other in pairs)


def _fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """The beginning of an array along each axis, or the array once more behind itself as often as it takes."""
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return np.ascontiguousarray(array)
