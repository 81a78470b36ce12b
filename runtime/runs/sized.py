"""Runs of a model of any size through memory that the session keeps, if inputs and outputs are small.

The same memory serves all sizes, and grows with them. For each size there are views of it, which a first call makes in
less time than memory is allocated in. So the first call with a size takes hardly longer than later ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.native_device import NativeDevice, buffer_view
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.files.open_sizes import GivenSize, OpenSize, Place
from sartor.runtime.runs.row_limits import RowLimits
from sartor.runtime.runs.small import MOST_INPUT_BYTES, MOST_OUTPUT_BYTES, SmallRuns

# Views of one size take about a kilobyte.
_MOST_SIZES = 1024
_LEAST_BYTES = 1 << 16

Shapes = tuple[tuple[int, ...], ...]
"""Of tensors in their order."""


class OpenShapes:
    """The shapes of what a call gives, by those of what it takes.

    A first call computes them by code and from records that are in no cache: so these are tuples of few numbers.
    """

    def __init__(self, signature: Signature, sizes: Sequence[OpenSize], given: Sequence[GivenSize]) -> None:
        """For a model with this signature, some of whose sizes are None, those that callers choose, and those of
        outputs that follow from them."""
        self._ranks = tuple(len(spec.shape) for spec in signature.inputs)
        inputs = {spec.name: number for number, spec in enumerate(signature.inputs)}
        self._fixed = tuple(
            (inputs[spec.name], axis, size)
            for spec in signature.inputs
            for axis, size in enumerate(spec.shape)
            if size is not None
        )
        self._chosen = tuple((size.least, size.most, size.multiple, _places(size, inputs)) for size in sizes)
        numbers = {size.name: number for number, size in enumerate(sizes)}
        follows = {(size.output, size.axis): size for size in given if numbers.keys() >= {*size.sizes}}
        dims = [
            [follows.get((spec.name, axis)) if size is None else size for axis, size in enumerate(spec.shape)]
            for spec in signature.outputs
        ]
        self.are_known = all(size is not None for shape in dims for size in shape)
        """Whether a call's sizes tell those of all outputs."""
        self._given = tuple(tuple(_formula(size, numbers) for size in shape) for shape in dims)

    def outputs(self, inputs: Shapes) -> Shapes | None:
        """The shapes of outputs for those of inputs; None if the model does not take these."""
        if tuple(map(len, inputs)) != self._ranks:
            return None
        for number, axis, size in self._fixed:
            if inputs[number][axis] != size:
                return None
        chosen = list[int]()
        for least, most, multiple, ((first, axis, offset, _), *others) in self._chosen:
            size = inputs[first][axis] - offset
            if not least <= size <= most or size % multiple:
                return None
            for number, place, extra, besides in others:
                if inputs[number][place] - extra - _total(besides, inputs) != size:
                    return None
            chosen.append(size)
        return tuple([tuple([_evaluated(*expression, chosen) for expression in shape]) for shape in self._given])


_Dimension = tuple[int, int, int]
"""The number of an input, an axis of it, and what is added to a size there."""
_Place = tuple[int, int, int, tuple[_Dimension, ...]]
"""The same, and dimensions whose sizes are added there, too."""
_Formula = tuple[tuple[int, ...], int, int, int]
"""Numbers of sizes whose product is multiplied, added to, and divided by the other three."""


def _places(size: OpenSize, inputs: Mapping[str, int]) -> tuple[_Place, ...]:
    """The places of a size, one that has nothing else first."""
    return tuple(
        (*_dimension(place, inputs), tuple(_dimension(other, inputs) for other in place.besides))
        for place in sorted(size.places, key=lambda place: len(place.besides))
    )


def _dimension(place: Place, inputs: Mapping[str, int]) -> _Dimension:
    return inputs[place.input], place.axis, place.offset


def _total(dimensions: tuple[_Dimension, ...], inputs: Shapes) -> int:
    return sum(inputs[number][axis] - offset for number, axis, offset in dimensions)


def _formula(size: int | GivenSize | None, numbers: Mapping[str, int]) -> _Formula:
    if isinstance(size, GivenSize):
        return tuple(numbers[name] for name in size.sizes), size.factor, size.offset, size.divisor
    return (), size or 0, 0, 1


def _evaluated(factors: tuple[int, ...], size: int, offset: int, divisor: int, chosen: Sequence[int]) -> int:
    for number in factors:
        size *= chosen[number]
    return (size + offset) // divisor


class _Memory(NamedTuple):
    """A buffer of the device, and its bytes as the host has them."""

    buffer: Any
    contents: Array


class SizedRuns:
    """Small runs of a model of any size, by the shapes of its inputs. They are made by one thread at a time."""

    def __init__(
        self,
        signature: Signature,
        shapes: OpenShapes,
        device: NativeDevice,
        prepare: Callable[[Sequence[Any]], Callable[[], None]],
        limits: RowLimits,
    ) -> None:
        """For a model with this signature on a device; ``prepare`` makes a call of views of inputs and outputs."""
        self._inputs = signature.inputs
        self._names = [spec.name for spec in signature.inputs]
        self._types = tuple(spec.numpy_dtype for spec in (*signature.inputs, *signature.outputs))
        self._bytes = tuple(dtype.itemsize for dtype in self._types)
        self._shapes = shapes
        self._device = device
        self._prepare = prepare
        self._limits = limits
        self._kept: dict[Shapes, SmallRuns] = {}
        self._memories: list[_Memory] = []
        self._room = self._no_room()

    def shapes(self, feeds: Mapping[str, Array]) -> Shapes | None:
        """Those of inputs, if they are as many arrays as the model takes."""
        if len(feeds) != len(self._names):
            return None
        shapes = tuple(array.shape for name in self._names if type(array := feeds.get(name)) is np.ndarray)
        return shapes if len(shapes) == len(self._names) else None

    def of(self, inputs: Shapes) -> SmallRuns | None:
        """What runs the model on inputs of these shapes, if such was made."""
        return self._kept.get(inputs)

    def make(self, inputs: Shapes) -> SmallRuns | None:
        """What runs the model on inputs of these shapes; None if it does not take them, or they are not small.

        Raises:
            DeviceError: if the device has no memory left.
        """
        if (outputs := self._shapes.outputs(inputs)) is None:
            return None
        shapes, count = (*inputs, *outputs), len(inputs)
        needed = list(map(operator.mul, map(math.prod, shapes), self._bytes))
        if sum(needed[:count]) > MOST_INPUT_BYTES or sum(needed[count:]) > MOST_OUTPUT_BYTES:
            return None
        self._make_room(needed)
        described = [*zip(self._memories, self._types, shapes, strict=True)]
        call = self._prepare([buffer_view(memory.buffer, dtype, shape) for memory, dtype, shape in described])
        arrays = [np.ndarray(shape, dtype, memory.contents) for memory, dtype, shape in described]
        if len(self._kept) == _MOST_SIZES:
            del self._kept[next(iter(self._kept))]
        runs = self._kept[inputs] = SmallRuns(call, self._inputs, arrays[:count], arrays[count:], self._limits)
        return runs

    def _make_room(self, needed: Sequence[int]) -> None:
        """Make memory hold so many bytes of each tensor: more than are needed, as the next size may be larger."""
        if all(map(operator.le, needed, self._room)):
            return
        pairs = zip(needed, self._room, strict=True)
        room = [max(before, _LEAST_BYTES, 1 << size.bit_length()) for size, before in pairs]
        # What has views of the memory before would hold it.
        self._kept.clear()
        self._memories, self._room = [], self._no_room()
        for size in room:
            array = upload(np.zeros(size, np.uint8), self._device)
            self._memories.append(_Memory(array.view.get_buffer(), array.to_host()))
        self._room = room

    def _no_room(self) -> list[int]:
        """Bytes where there is no memory, not even of a tensor without elements."""
        return [-1] * len(self._types)
