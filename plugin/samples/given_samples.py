"""The user's samples for calibration and accuracy, checked against the model and read one at a time."""

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
from sartor.samples.array_stream import ARRAY_SUFFIX, StoredArray, array_names, stored_array
from sartor.settings.values import SAMPLE_SUFFIXES


class SampleSource(Protocol):
    """Samples in a fixed order. Sources can be pickled, and workers read samples from them."""

    def __len__(self) -> int:
        """Number of samples."""

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` on, each with one array per input of the model."""


@dataclass(frozen=True)
class HeldSamples:
    """Samples in memory."""

    samples: tuple[Mapping[str, Array], ...]

    def __len__(self) -> int:
        return len(self.samples)

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` on."""
        return iter(self.samples[start:])


@dataclass(frozen=True)
class _Input:
    """The array for one input in one file.

    Attributes:
        spec: the model's input.
        stored: the array in the file.
        shape: of one sample.
        count: number of samples.
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
        names = [input_.spec.name for input_ in self.inputs]
        for arrays in zip(*(input_.since(start) for input_ in self.inputs), strict=True):
            yield dict(zip(names, arrays, strict=True))


@dataclass(frozen=True)
class Samples:
    """Samples in files, of which at most one is in memory."""

    _files: tuple[_SampleFile, ...]

    @staticmethod
    def open(path: Path, specs: Sequence[TensorSpec]) -> Samples:
        """Open samples for a model; headers are read and checked now, values when they are used.

        Args:
            path: an .npz file with one array per input, of the input's shape (one sample) or with a sample axis
                before it. If the input's first dimension is 1, that may be the sample axis too. Or a .npy file
                with such an array for a model with one input. Or a directory of such files, taken in the order of
                their names.
            specs: the model's inputs.

        Raises:
            UsageError: if a file does not fit; the message names the file and input, and the expected shape.
        """
        if not specs:
            raise UsageError(f"the model has no inputs, so there is nothing that '{path}' could hold")
        paths = _files_of(path) if path.is_dir() else [path]
        return Samples(tuple(_opened(path, specs) for path in paths))

    def __len__(self) -> int:
        return sum(file.count for file in self._files)

    @property
    def shapes(self) -> list[Mapping[str, tuple[int, ...]]]:
        """The shapes of each sample's arrays, by input."""
        listed = ({stored.spec.name: stored.shape for stored in file.inputs} for file in self._files)
        return [shapes for shapes, file in zip(listed, self._files, strict=True) for _ in range(file.count)]

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self.since(0)

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` on, each with one array per input.

        Raises:
            UsageError: if a file is damaged, or a value in it is not finite; the message names the file.
        """
        ends = itertools.accumulate(file.count for file in self._files)
        for file, end in zip(self._files, ends, strict=True):
            if start < end:
                yield from file.since(max(start - (end - file.count), 0))


def _is_float(spec: TensorSpec) -> bool:
    return "float" in spec.dtype


def _files_of(directory: Path) -> list[Path]:
    paths = sorted(path for path in directory.iterdir() if path.suffix in SAMPLE_SUFFIXES and path.is_file())
    if not paths:
        raise UsageError(f"'{directory}' holds no samples, .npz or .npy files were expected")
    return paths


def _opened(path: Path, specs: Sequence[TensorSpec]) -> _SampleFile:
    if path.suffix == ARRAY_SUFFIX:
        if len(specs) != 1:
            raise UsageError(f"'{path}' is one array, but the model has {len(specs)} inputs; save an .npz file of all")
        return _SampleFile((_checked(specs[0], stored_array(path)),))
    names = array_names(path)
    try:
        check_names(specs, names)
    except UsageError as error:
        raise UsageError(f"'{path}': {error}") from None
    inputs = tuple(_checked(spec, stored_array(path, spec.name)) for spec in specs)
    _check_counts(path, inputs)
    return _SampleFile(inputs)


def _checked(spec: TensorSpec, stored: StoredArray) -> _Input:
    """Check the array for one input."""
    place = f"'{stored.path}': input '{spec.name}'"
    # The .npy format has no type for bfloat16 and stores its bytes.
    raw = spec.dtype == "bfloat16" and stored.dtype == np.dtype("V2")
    if stored.dtype != spec.numpy_dtype and not raw:
        raise UsageError(f"{place} expects {spec}, but the array's element type is {stored.dtype}")
    shape, count = _sample_shape(spec, stored.shape)
    if shape is None:
        sizes = list(stored.shape)
        raise UsageError(f"{place} expects {spec}, alone or after a sample axis, but the array's shape is {sizes}")
    if count < 1:
        raise UsageError(f"{place} expects at least one sample, but the array's shape is {list(stored.shape)}")
    if stored.fortran and count > 1 and math.prod(shape) > 1:
        raise UsageError(
            f"{place} expects one sample after the other, but the array is stored in Fortran order; "
            "save it after numpy.ascontiguousarray"
        )
    return _Input(spec, stored, shape, count)


def _sample_shape(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[tuple[int, ...] | None, int]:
    """The shape of one sample, None if it does not fit the input, and the number of samples."""
    if spec.accepts_shape(shape):
        return shape, 1
    if shape and spec.accepts_shape(shape[1:]):
        return shape[1:], shape[0]
    if shape and spec.shape[:1] == (1,) and spec.accepts_shape((1, *shape[1:])):
        return (1, *shape[1:]), shape[0]
    return None, 0


def _check_counts(path: Path, inputs: Sequence[_Input]) -> None:
    first = inputs[0]
    for input_ in inputs:
        if input_.count != first.count:
            raise UsageError(
                f"'{path}': input '{input_.spec.name}' has {input_.count} samples, but {first.count} were expected, "
                f"as '{first.spec.name}' has"
            )
