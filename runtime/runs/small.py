"""Runs of small models, through memory that the session keeps for their inputs and outputs.

An ordinary run allocates its outputs and describes every tensor to IREE anew, which takes longer than copying them if
they are small, and longer than a small network. Fresh memory of some hundred kilobytes is filled with zeros by the
system page by page, so keeping it pays there too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sartor.runtime.driver.signature import Array, Signature, TensorSpec, check_array, check_names, plain_array
from sartor.runtime.runs.row_limits import RowLimits

MOST_INPUT_BYTES = 1 << 22
"""Inputs are copied once in any case: the limit is on the memory that is kept."""

MOST_OUTPUT_BYTES = 1 << 20
"""These are copied; a copy of as much was found to take as long as fresh memory."""


def is_small(signature: Signature) -> bool:
    """Whether the sizes of all inputs and outputs are known, and so small that keeping memory for them pays."""
    inputs, outputs = _bytes(signature.inputs), _bytes(signature.outputs)
    return inputs is not None and outputs is not None and inputs <= MOST_INPUT_BYTES and outputs <= MOST_OUTPUT_BYTES


def _bytes(specs: Sequence[TensorSpec]) -> int | None:
    sizes = [size for spec in specs for size in spec.shape]
    if None in sizes:
        return None
    return sum(math.prod(size or 0 for size in spec.shape) * spec.numpy_dtype.itemsize for spec in specs)


def known_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a tensor whose sizes are all known."""
    return tuple(size or 0 for size in spec.shape)


class SmallRuns:
    """Runs a model on arrays of its caller by copying them into and out of memory that stays. One at a time."""

    def __init__(
        self,
        call: Callable[[], None],
        specs: Sequence[TensorSpec],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        limits: RowLimits,
    ) -> None:
        """What runs the model, which reads and writes this memory, and what its inputs are."""
        self._call = call
        self._specs = specs
        self._limits = limits
        self._names = {spec.name for spec in specs}
        self._inputs = inputs
        self._outputs = outputs

    def arrays(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The inputs in order.

        Raises:
            UsageError: if they are not those of the model.
        """
        if feeds.keys() != self._names:
            check_names(self._specs, list(feeds))
        arrays = [plain_array(feeds[spec.name], f"input '{spec.name}'") for spec in self._specs]
        for spec, array in zip(self._specs, arrays, strict=True):
            check_array(spec, array.dtype, array.shape)
        self._limits.check(zip((spec.name for spec in self._specs), arrays, strict=True))
        return arrays

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
