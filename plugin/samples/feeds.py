"""Inputs for running a compiled model: from files, zeros, or random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sartor.errors import UsageError
from sartor.onnx_model.states.place_names import are_places, rising
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.noise import Noise
from sartor.runtime.driver.signature import Array, TensorSpec, check_array, check_names
from sartor.samples.array_stream import StoredArray, array_names, is_archive, is_array, stored_array

RANDOM = "random"
ZEROS = "zeros"
_SEED = 0
_MOST_BYTES = 1 << 46
# Integer inputs are mostly indices; these values are within every table.
_INTEGERS_BELOW = 2


def make_feeds(
    specs: Sequence[TensorSpec],
    sources: Mapping[str, str],
    bound: Sequence[BoundInput] = (),
    noise: Sequence[Noise] = (),
) -> dict[str, Array]:
    """Make a value for every input: from the .npy file that ``sources`` names, zeros, or by default random.

    Floats are drawn from the standard normal distribution, integers from {0, 1}, with a fixed seed; places of tokens
    count up. ``bound`` are the model's inputs whose values were fixed at compile time, which have no sources. ``noise``
    are the inputs that have distributions of their own.

    Raises:
        UsageError: if a source is for an unknown input, a file cannot be read, or a shape is not known.
    """
    for value in bound:
        if value.spec.name in sources:
            raise UsageError(
                f"input '{value.spec.name}' was bound to {value.text} at compile time; leave its value out"
            )
    if unknown := sorted(set(sources) - {spec.name for spec in specs}):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"the model has no input '{unknown[0]}'; its inputs are {names}")
    random = np.random.default_rng(_SEED)
    drawn = {drawn.name: drawn for drawn in noise}
    return {spec.name: _value(spec, sources.get(spec.name, RANDOM), random, drawn.get(spec.name)) for spec in specs}


def _value(spec: TensorSpec, source: str, random: np.random.Generator, noise: Noise | None) -> Array:
    if is_file(source):
        return read_array(Path(source), spec)
    shape = [size for size in spec.shape if size is not None]
    if len(shape) < len(spec.shape):
        raise UsageError(
            f"input '{spec.name}' is {spec}, whose shape is not fixed; give a file for it, or its sizes with --size"
        )
    if math.prod(shape) * spec.numpy_dtype.itemsize > _MOST_BYTES:
        raise UsageError(f"input '{spec.name}' is {spec}, which no memory holds")
    if source == ZEROS:
        return np.zeros(shape, spec.numpy_dtype)
    if noise is not None:
        return noise.draw(random, shape)
    if spec.numpy_dtype.kind in "iu" and are_places(spec.name):
        return rising(tuple(shape)).astype(spec.numpy_dtype)
    if spec.numpy_dtype.kind in "biu":
        return random.integers(0, _INTEGERS_BELOW, shape).astype(spec.numpy_dtype)
    return random.standard_normal(shape).astype(spec.numpy_dtype)


def is_file(source: str) -> bool:
    """Whether the source of an input names a file."""
    return source not in (RANDOM, ZEROS)


def read_array(path: Path, spec: TensorSpec) -> Array:
    """Read a .npy file for an input.

    Raises:
        UsageError: if it cannot be read, or holds no plain array that the input takes.
    """
    if is_archive(path):
        raise UsageError(f"'{path}' is an archive of arrays, a .npy file of one was expected")
    return _fitting(stored_array(path), spec)


def read_archive(path: Path, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Read a .npz file of one array per input.

    Raises:
        UsageError: if it cannot be read, is no such archive, or an array does not fit its input.
    """
    if is_array(path):
        raise UsageError(f"'{path}' is one array, a .npz file of one per input was expected")
    check_names(specs, array_names(path))
    return {spec.name: _fitting(stored_array(path, spec.name), spec) for spec in specs}


def _fitting(stored: StoredArray, spec: TensorSpec) -> Array:
    """A stored array that an input takes; values of others are not read, as they may be any number."""
    dtype = spec.numpy_dtype if stored.is_raw(spec.numpy_dtype) else stored.dtype
    check_array(spec, dtype, stored.shape)
    return stored.whole().view(dtype)
