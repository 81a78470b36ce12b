"""Samples that a user gives for calibration and for accuracy, checked against the model and read one at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array, TensorSpec, check_names
from sartor.samples.array_stream import StoredArray, stored_arrays

_SUFFIXES = (".npz", ".npy")


class SampleSource(Protocol):
    """Samples in a fixed order. Sources can be pickled: workers read what they need themselves."""

    def __len__(self) -> int:
        """How many samples there are."""

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """The samples from number ``start`` on, each with one array per input of the model."""


@dataclass(frozen=True)
class HeldSamples:
    """Samples in memory, such as drawn ones where the user gives none."""

    samples: tuple[Mapping[str, Array], ...]

    def __len__(self) -> int:
        return len(self.samples)

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """The samples from number ``start`` on."""
        return iter(self.samples[start:])


@dataclass(frozen=True)
class _Input:
    """What one file has for one input.

    Attributes:
        spec: what the model expects.
        stored: the array in the file.
        shape: of one sample.
        count: how many samples there are.
    """

    spec: TensorSpec
    stored: StoredArray
    shape: tuple[int, ...]
    count: int

    def since(self, start: int) -> Iterator[Array]:
        for number, array in enumerate(self.stored.pieces(self.shape, start, self.count), start):
            typed = array.view(self.spec.numpy_dtype)
            if _is_float(self.spec) and not np.isfinite(typed).all():
                raise UsageError(
                    f"'{self.stored.path}': input '{self.spec.name}' of sample {number} holds values that are not "
                    "finite, finite ones were expected; leave the sample out"
                )
            yield typed


@dataclass(frozen=True)
class _SampleFile:
    inputs: tuple[_Input, ...]

    @property
    def count(self) -> int:
        return self.inputs[0].count

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        names = [each.spec.name for each in self.inputs]
        for arrays in zip(*(each.since(start) for each in self.inputs), strict=True):
            yield dict(zip(names, arrays, strict=True))


@dataclass(frozen=True)
class Samples:
    """Samples in files, never more than one of them in memory."""

    _files: tuple[_SampleFile, ...]

    @staticmethod
    def open(path: Path, specs: Sequence[TensorSpec]) -> Samples:
        """Samples for a model with these inputs; their headers are read and checked, values when they are used.

        Args:
            path: an .npz file of one array per input, each of the input's shape (one sample), or with a sample axis
                before it; where the input's first dimension is 1, that may be the sample axis too. Or a .npy file
                of such an array for a model with one input. Or a directory of such files, taken in the order of
                their names.
            specs: the model's inputs.

        Raises:
            UsageError: naming the file and input, what was expected and what was found.
        """
        if not specs:
            raise UsageError(f"the model has no inputs, so there is nothing that '{path}' could hold")
        paths = _files_of(path) if path.is_dir() else [path]
        return Samples(tuple(_opened(each, specs) for each in paths))

    def __len__(self) -> int:
        return sum(file.count for file in self._files)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self.since(0)

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """The samples from number ``start`` on, one array per input each.

        Raises:
            UsageError: naming the file, if it is damaged, or a value in it is not finite.
        """
        ends = itertools.accumulate(file.count for file in self._files)
        for file, end in zip(self._files, ends, strict=True):
            if start < end:
                yield from file.since(max(start - (end - file.count), 0))


def _is_float(spec: TensorSpec) -> bool:
    return "float" in spec.dtype


def _files_of(directory: Path) -> list[Path]:
    found = sorted(each for each in directory.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    if not found:
        raise UsageError(f"'{directory}' holds no samples, .npz or .npy files were expected")
    return found


def _opened(path: Path, specs: Sequence[TensorSpec]) -> _SampleFile:
    arrays = stored_arrays(path)
    if "" in arrays and len(specs) == 1:
        arrays = {specs[0].name: arrays[""]}
    elif "" in arrays:
        raise UsageError(f"'{path}' is one array, but the model has {len(specs)} inputs; save an .npz file of all")
    try:
        check_names(specs, list(arrays))
    except UsageError as error:
        raise UsageError(f"'{path}': {error}") from None
    inputs = tuple(_checked(spec, arrays[spec.name]) for spec in specs)
    _check_counts(path, inputs)
    return _SampleFile(inputs)


def _checked(spec: TensorSpec, stored: StoredArray) -> _Input:
    """One input's array, with what is one sample of it."""
    place = f"'{stored.path}': input '{spec.name}'"
    # The .npy format has no name for bfloat16 and keeps its bytes as they are.
    raw = spec.dtype == "bfloat16" and stored.dtype == np.dtype("V2")
    if stored.dtype != spec.numpy_dtype and not raw:
        raise UsageError(f"{place} expects {spec}, but the array's element type is {stored.dtype}")
    shape, count = _sample_shape(spec, stored.shape)
    if shape is None:
        found = list(stored.shape)
        raise UsageError(f"{place} expects {spec}, alone or after a sample axis, but the array's shape is {found}")
    if count < 1:
        raise UsageError(f"{place} expects at least one sample, but the array's shape is {list(stored.shape)}")
    if stored.fortran and count > 1 and math.prod(shape) > 1:
        raise UsageError(
            f"{place} expects one sample after the other, but the array is stored in Fortran order; "
            "save it after numpy.ascontiguousarray"
        )
    return _Input(spec, stored, shape, count)


def _sample_shape(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[tuple[int, ...] | None, int]:
    """The shape of one sample, None if it does not fit the input, and how many there are."""
    if spec.accepts_shape(shape):
        return shape, 1
    if shape and spec.accepts_shape(shape[1:]):
        return shape[1:], shape[0]
    if shape and spec.shape[:1] == (1,) and spec.accepts_shape((1, *shape[1:])):
        return (1, *shape[1:]), shape[0]
    return None, 0


def _check_counts(path: Path, inputs: Sequence[_Input]) -> None:
    first = inputs[0]
    for each in inputs:
        if each.count != first.count:
            raise UsageError(
                f"'{path}': input '{each.spec.name}' has {each.count} samples, but {first.count} were expected, "
                f"as '{first.spec.name}' has"
            )
