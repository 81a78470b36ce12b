"""Outputs whose size depends on data: a module gives them in full length, and a count of what is valid beside them.

The count is an output of its own, an int64 scalar, named after the output and the axis that it counts elements of. So
the names of a module's outputs say all, whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array, TensorSpec

_PREFIX = "sartor.count"
_MOST_DIGITS = 3


class CountedAxis(NamedTuple):
    """An axis of an output of which only the first elements are valid."""

    output: str
    axis: int


class Cut(NamedTuple):
    """How an output is cut to size.

    Attributes:
        axis: the axis that is too long.
        counted: index of the output that says how many elements along it are valid.
    """

    axis: int
    counted: int


def count_name(output: str, axis: int) -> str:
    """The name of the output that counts the valid elements of another one along an axis."""
    return f"{_PREFIX}:{axis}:{output}"


def counted_axis(name: str) -> CountedAxis | None:
    """What an output counts; None for other outputs."""
    start, _, rest = name.partition(":")
    axis, _, output = rest.partition(":")
    is_number = axis.isascii() and axis.isdecimal() and len(axis) <= _MOST_DIGITS
    is_count = start == _PREFIX and is_number and output
    return CountedAxis(output, int(axis)) if is_count else None


def find_cuts(names: Sequence[str]) -> dict[int, Cut]:
    """How outputs are cut, by index; ``names`` are those of all outputs of a module."""
    cuts = {}
    for index, name in enumerate(names):
        counted = counted_axis(name)
        if counted is not None and counted.output in names:
            cuts[names.index(counted.output)] = Cut(counted.axis, index)
    return cuts


def check_counts(specs: Sequence[TensorSpec]) -> None:
    """Make sure that what is named as a count is one.

    Raises:
        ValueError: if it is no int64 scalar, or counts along an axis that the output does not have.
    """
    for index, cut in find_cuts([spec.name for spec in specs]).items():
        count, output = specs[cut.counted], specs[index]
        if count.dtype != "int64" or count.shape:
            raise ValueError(f"'{count.name}' counts elements, but is {count} and no int64 scalar")
        if cut.axis >= len(output.shape):
            raise ValueError(f"'{count.name}' counts along an axis that '{output.name}' of {output} does not have")


def shown_outputs(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The outputs without counts; sizes that are counted are None."""
    names = [spec.name for spec in specs]
    cuts = find_cuts(names)
    hidden = {cut.counted for cut in cuts.values()}
    return tuple(
        _opened(spec, cuts[index].axis) if index in cuts else spec
        for index, spec in enumerate(specs)
        if index not in hidden
    )


def cut_outputs(names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
    """All outputs of a run without counts, cut to size."""
    cuts = find_cuts(names)
    hidden = {cut.counted for cut in cuts.values()}
    return [
        cut_output(array, cuts[index].axis, arrays[cuts[index].counted]) if index in cuts else array
        for index, array in enumerate(arrays)
        if index not in hidden
    ]


def to_host(outputs: Sequence[DeviceArray], selected: Sequence[int], cuts: Mapping[int, Cut]) -> list[Array]:
    """The selected ones of all outputs, cut to size."""
    arrays = []
    for index in selected:
        array, cut = outputs[index].to_host(), cuts.get(index)
        arrays.append(array if cut is None else cut_output(array, cut.axis, outputs[cut.counted].to_host()))
    return arrays


def cut_output(array: Array, axis: int, count: Array) -> Array:
    """The valid elements of an output, in row-major order."""
    kept = (slice(None),) * axis + (slice(0, int(count)),)
    return np.ascontiguousarray(array[kept])


def _opened(spec: TensorSpec, axis: int) -> TensorSpec:
    shape = tuple(None if index == axis else size for index, size in enumerate(spec.shape))
    return replace(spec, shape=shape)
