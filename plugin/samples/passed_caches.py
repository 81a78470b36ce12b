"""Random inputs for a module that keeps a decoder's caches, where callers pass them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.samples.feeds import make_feeds

# Of each size that callers choose, if its range has it.
_USUAL = 17


def passed_inputs(manifest: Manifest, given: Mapping[str, int]) -> list[TensorSpec]:
    """The inputs for one token, with caches as callers have them.

    Args:
        manifest: of the module.
        given: sizes by their names, of which that of caches counts the token; others are usual ones.

    Raises:
        UsageError: if a name is not known, or a size is out of its range.
    """
    if unknown := next((name for name in given if name not in {size.name for size in manifest.sizes}), None):
        names = ", ".join(size.name for size in manifest.sizes)
        raise UsageError(f"--size names '{unknown}'; the dimensions of any size are: {names}")
    rows = {spec.name: spec.shape[0] or 0 for spec in manifest.outputs}
    caches = {cache.input: rows[cache.output] for cache in manifest.caches}
    sizes = dict[tuple[str, int], int]()
    for size in manifest.sizes:
        chosen = given.get(size.name, size.nearest(_USUAL))
        if not size.allows(chosen):
            raise UsageError(f"--size gives '{size.name}' the size {chosen}, but the module takes {size}")
        sizes |= {(place.input, place.axis): chosen for place in size.places if not place.besides}
    (plain, *_) = manifest.passing_signatures
    axes = {cache.input: cache.axis for cache in manifest.caches}
    specs = []
    for spec in plain.inputs:
        known = {axes[spec.name]: sizes[spec.name, 0] - caches[spec.name]} if spec.name in axes else {}
        shape = [sizes.get((spec.name, axis), old) if old is None else old for axis, old in enumerate(spec.shape)]
        specs.append(replace(spec, shape=tuple(known.get(axis, size) for axis, size in enumerate(shape))))
    return specs


def passed_feeds(manifest: Manifest, specs: list[TensorSpec]) -> dict[str, Array]:
    """Random inputs: masks hide nothing, and positions are behind the caches."""
    (cache, *_) = manifest.caches
    before = next(spec.shape[cache.axis] or 0 for spec in specs if spec.name == cache.input)
    feeds = make_feeds(specs, {})
    for spec in specs:
        array = feeds[spec.name]
        if "mask" in spec.name:
            feeds[spec.name] = np.ones_like(array)
        elif "position" in spec.name and array.dtype.kind == "i":
            feeds[spec.name] = np.broadcast_to(
                np.arange(array.shape[-1], dtype=array.dtype) + before, array.shape
            ).copy()
    return feeds
