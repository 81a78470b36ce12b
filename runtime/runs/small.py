"""Runs of small models, through memory that the session keeps for their inputs and outputs.

An ordinary run allocates its outputs and describes every tensor to IREE anew, which takes longer than copying them if
they are small, and longer than a small network. Fresh memory of some hundred kilobytes is filled with zeros by the
system page by page, so keeping it pays there too.

A model of any size has such memory for each of the sizes that it was called with lately.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array, Signature, TensorSpec, check_array, check_names, plain_array
from sartor.runtime.runs.row_limits import RowLimits

MOST_INPUT_BYTES = 1 << 22
"""Inputs are copied once in any case: the limit is on the memory that is kept."""

MOST_OUTPUT_BYTES = 1 << 20
"""These are copied; a copy of as much was found to take as long as fresh memory."""

_MOST_SIZES, _MOST_BYTES = 64, 1 << 23
Shapes = tuple[tuple[int, ...], ...]
"""Of the inputs, in their order."""


def is_small(signature: Signature) -> bool:
    """Whether the sizes of all inputs and outputs are known, and so small that keeping memory for them pays."""
    inputs, outputs = _bytes(signature.inputs), _bytes(signature.outputs)
    return inputs is not None and outputs is not None and inputs <= MOST_INPUT_BYTES and outputs <= MOST_OUTPUT_BYTES


def _bytes(specs: Sequence[TensorSpec]) -> int | None:
    sizes = [size for spec in specs for size in spec.shape]
    if None in sizes:
        return None
    return sum(math.prod(size or 0 for size in spec.shape) * spec.numpy_dtype.itemsize for spec in specs)


def _all_bytes(signature: Signature) -> int:
    """Of inputs and outputs whose sizes are known."""
    return _bytes((*signature.inputs, *signature.outputs)) or 0


def known_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a tensor whose sizes are all known."""
    return tuple(size or 0 for size in spec.shape)


class SmallRuns:
    """Runs a model on arrays of its caller by copying them into and out of memory that stays. One at a time."""

    def __init__(
        self,
        call: Callable[[], None],
        specs: Sequence[TensorSpec],
        inputs: Sequence[DeviceArray],
        outputs: Sequence[DeviceArray],
        limits: RowLimits,
    ) -> None:
        """What runs the model on these device arrays, which are the host's memory, and what its inputs are."""
        self._call = call
        self._specs = specs
        self._limits = limits
        self._names = {spec.name for spec in specs}
        self._inputs = [each.to_host() for each in inputs]
        self._outputs = [output.to_host() for output in outputs]

    def arrays(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The inputs in order.

        Raises:
            UsageError: if they are not those of the model.
        """
        if feeds.keys() != self._names:
            check_names(self._specs, list(feeds))
        found = [plain_array(feeds[spec.name], f"input '{spec.name}'") for spec in self._specs]
        for spec, array in zip(self._specs, found, strict=True):
            check_array(spec, array.dtype, array.shape)
        self._limits.check(zip((spec.name for spec in self._specs), found, strict=True))
        return found

    def run(self, arrays: Sequence[Array], selected: Sequence[int]) -> list[Array]:
        """The selected outputs, in memory of their own.

        Raises:
            UsageError: if the process cannot use the device.
            DeviceError: if the device fails.
        """
        for kept, array in zip(self._inputs, arrays, strict=True):
            kept[...] = array
        self._call()
        return [self._outputs[index].copy() for index in selected]


@dataclass
class _Kept:
    """Runs with what memory they take, and when they were used last."""

    runs: SmallRuns
    nbytes: int
    used: int


class SizedRuns:
    """Small runs of a model of any size, by the shapes of its inputs. They are added by one thread at a time."""

    def __init__(self, signature: Signature) -> None:
        """For a model with this signature, some of whose sizes are None."""
        self._signature = signature
        self._names = [spec.name for spec in signature.inputs]
        self._kept: dict[Shapes, _Kept] = {}
        self._last: dict[Shapes, int] = {}
        self._clock = itertools.count()

    def of(self, feeds: Mapping[str, Array]) -> SmallRuns | None:
        """What runs the model on inputs of these shapes, if there is such."""
        shapes = self._shapes(feeds)
        kept = None if shapes is None else self._kept.get(shapes)
        if kept is None:
            return None
        kept.used = next(self._clock)
        return kept.runs

    def met(self, feeds: Mapping[str, Array], outputs: Sequence[DeviceArray]) -> Signature | None:
        """Note the sizes of a run; returns the signature with them if keeping memory pays: if they are small, were met
        before, and there is room beside those that were used since."""
        shapes = self._shapes(feeds)
        if shapes is None:
            return None
        pairs = zip(self._signature.inputs, shapes, strict=True)
        inputs = tuple(replace(spec, shape=shape) for spec, shape in pairs)
        given = zip(self._signature.outputs, outputs, strict=True)
        found = Signature(
            self._signature.entry, inputs, tuple(replace(spec, shape=array.shape) for spec, array in given)
        )
        if not is_small(found):
            return None
        last = self._last.pop(shapes, None)
        if len(self._last) == _MOST_SIZES:
            del self._last[next(iter(self._last))]
        self._last[shapes] = next(self._clock)
        if last is None:
            return None
        # Sizes in turn that are too many together would drop each other before any is used.
        return found if self._has_room(found, [each for each in self._kept.values() if each.used > last]) else None

    def add(self, signature: Signature, runs: SmallRuns) -> None:
        """Keep what runs the model with the sizes of a signature, in place of what was not used for longest where there
        is too much."""
        while self._kept and not self._has_room(signature, [*self._kept.values()]):
            oldest = min(self._kept, key=lambda shapes: self._kept[shapes].used)
            del self._kept[oldest]
            self._last.pop(oldest, None)
        shapes = tuple(map(known_shape, signature.inputs))
        self._kept[shapes] = _Kept(runs, _all_bytes(signature), next(self._clock))

    @staticmethod
    def _has_room(signature: Signature, beside: Sequence[_Kept]) -> bool:
        held = sum(each.nbytes for each in beside)
        return len(beside) < _MOST_SIZES and held + _all_bytes(signature) <= _MOST_BYTES

    def _shapes(self, feeds: Mapping[str, Array]) -> Shapes | None:
        if len(feeds) != len(self._names):
            return None
        shapes = tuple(each.shape for name in self._names if type(each := feeds.get(name)) is np.ndarray)
        return shapes if len(shapes) == len(self._names) else None
