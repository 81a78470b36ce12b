"""Inputs for running a compiled model: from files, zeros, or random."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array, TensorSpec

RANDOM = "random"
ZEROS = "zeros"
_SEED = 0
# Integer inputs are mostly indices; these values are within every table.
_INTEGERS_BELOW = 2


def make_feeds(specs: Sequence[TensorSpec], sources: Mapping[str, str]) -> dict[str, Array]:
    """Make a value for every input: from the .npy file that ``sources`` names, zeros, or by default random.

    Floats are drawn from the standard normal distribution, integers from {0, 1}, with a fixed seed.

    Raises:
        UsageError: if a source is for an unknown input, a file cannot be read, or a shape is not known.
    """
    if unknown := sorted(set(sources) - {spec.name for spec in specs}):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"the model has no input '{unknown[0]}'; its inputs are {names}")
    random = np.random.default_rng(_SEED)
    return {spec.name: _value(spec, sources.get(spec.name, RANDOM), random) for spec in specs}


def _value(spec: TensorSpec, source: str, random: np.random.Generator) -> Array:
    if source not in (RANDOM, ZEROS):
        return _as_stored(read_array(Path(source)), spec)
    shape = [size for size in spec.shape if size is not None]
    if len(shape) < len(spec.shape):
        raise UsageError(f"input '{spec.name}' is {spec}, whose shape is not fixed; give a file for it")
    if source == ZEROS:
        return np.zeros(shape, spec.numpy_dtype)
    if spec.numpy_dtype.kind in "biu":
        return random.integers(0, _INTEGERS_BELOW, shape).astype(spec.numpy_dtype)
    return random.standard_normal(shape).astype(spec.numpy_dtype)


def _as_stored(array: Array, spec: TensorSpec) -> Array:
    """View bytes as bfloat16, for which the .npy format has no type."""
    raw = array.dtype.kind == "V" and array.dtype.itemsize == spec.numpy_dtype.itemsize
    return array.view(spec.numpy_dtype) if raw else array


def read_array(path: Path) -> Array:
    """Read a .npy file.

    Raises:
        UsageError: if it cannot be read, or does not hold a plain array.
    """
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"'{path}' is an archive of arrays, a .npy file of one was expected")
    return loaded


def read_archive(path: Path) -> dict[str, Array]:
    """Read a .npz file of one array per input.

    Raises:
        UsageError: if it cannot be read, or is not such an archive.
    """
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise UsageError(f"'{path}' is one array, a .npz file of one per input was expected")
    try:
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"'{path}' does not hold plain arrays: {error}") from None


def _load(path: Path) -> Array | np.lib.npyio.NpzFile:
    try:
        loaded: Array | np.lib.npyio.NpzFile = np.load(path, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"'{path}' does not hold plain arrays: {error}") from None
    return loaded
