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
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.files.open_sizes import GivenSize, OpenSize
from sartor.runtime.runs.row_limits import RowLimits
from sartor.runtime.runs.small import MOST_INPUT_BYTES, MOST_OUTPUT_BYTES, SmallRuns

# Views of one size take about a kilobyte.
_MOST_SIZES = 1024
_LEAST_BYTES = 1 << 16

Shapes = tuple[tuple[int, ...], ...]
"""Of tensors in their order."""


class OpenShapes:
    """The shapes of what a call gives, by those of what it takes."""

    def __init__(self, signature: Signature, sizes: Sequence[OpenSize], given: Sequence[GivenSize]) -> None:
        """For a model with this signature, some of whose sizes are None, those that callers choose, and those of
        outputs that follow from them."""
        self._specs = signature.inputs
        numbers = {spec.name: number for number, spec in enumerate(signature.inputs)}
        self._chosen = [
            (size, [(numbers[place.input], place.axis, place.offset) for place in size.places]) for size in sizes
        ]
        follows, names = {(size.output, size.axis): size for size in given}, {size.name for size in sizes}
        self._given = [
            [follows.get((spec.name, axis)) if size is None else size for axis, size in enumerate(spec.shape)]
            for spec in signature.outputs
        ]
        self.are_known = all(
            isinstance(size, int) or (size is not None and names.issuperset(size.sizes))
            for dims in self._given
            for size in dims
        )
        """Whether a call's sizes tell those of all outputs."""

    def outputs(self, inputs: Shapes) -> Shapes | None:
        """The shapes of outputs for those of inputs; None if the model does not take these."""
        if not all(map(TensorSpec.accepts_shape, self._specs, inputs)):
            return None
        chosen = dict[str, int]()
        for size, places in self._chosen:
            for number, axis, offset in places:
                taken = inputs[number][axis] - offset
                if chosen.setdefault(size.name, taken) != taken:
                    return None
            if not size.allows(taken):
                return None
        return tuple([tuple([_size(dim, chosen) for dim in dims]) for dims in self._given])


def _size(dim: int | GivenSize | None, chosen: Mapping[str, int]) -> int:
    return dim.at(chosen) if isinstance(dim, GivenSize) else dim or 0


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
        self._types = [spec.numpy_dtype for spec in (*signature.inputs, *signature.outputs)]
        self._shapes = shapes
        self._device = device
        self._prepare = prepare
        self._limits = limits
        self._kept: dict[Shapes, SmallRuns] = {}
        self._memories: list[_Memory] = []

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
        shapes, types, count = (*inputs, *outputs), self._types, len(inputs)
        needed = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, types, strict=True)]
        if sum(needed[:count]) > MOST_INPUT_BYTES or sum(needed[count:]) > MOST_OUTPUT_BYTES:
            return None
        self._make_room(needed)
        described = [*zip(self._memories, types, shapes, strict=True)]
        call = self._prepare([buffer_view(memory.buffer, dtype, shape) for memory, dtype, shape in described])
        arrays = [np.ndarray(shape, dtype, memory.contents) for memory, dtype, shape in described]
        if len(self._kept) == _MOST_SIZES:
            del self._kept[next(iter(self._kept))]
        runs = self._kept[inputs] = SmallRuns(call, self._inputs, arrays[:count], arrays[count:], self._limits)
        return runs

    def _make_room(self, needed: Sequence[int]) -> None:
        """Make memory hold so many bytes of each tensor: more than are needed, as the next size may be larger."""
        held = [memory.contents.nbytes for memory in self._memories] or [0] * len(needed)
        if self._memories and all(map(operator.le, needed, held)):
            return
        # What has views of the memory before would hold it.
        self._kept.clear()
        self._memories = []
        for size, before in zip(needed, held, strict=True):
            array = upload(np.zeros(max(before, _LEAST_BYTES, 1 << size.bit_length()), np.uint8), self._device)
            self._memories.append(_Memory(array.view.get_buffer(), array.to_host()))
