"""Ranges of the free dimensions of a model whose sizes nobody bounds: such that calls with other sizes fit as well."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.open_sizes.symbols import DeclaredDims
from sartor.settings.size_range import OpenShapes, SizeRange

Ranges = Mapping[str, SizeRange]
Shapes = Mapping[str, tuple[int, ...]]

# Least bounds of batches, and of others: modules take no memory for sizes that are not passed, but code that compilers
# evaluate beforehand does, and all largest sizes occur together there.
_BATCHES, _LENGTHS = 16, 512
# One element is often another case than several, which imports with several do not tell.
_LEAST = 2
# Windows pass over axes from here on, and there are none over sizes that are small.
_SIDES_FROM = 2


def sizes_of(declared: DeclaredDims, shapes: Shapes) -> dict[str, int] | None:
    """The sizes of free dimensions by name.

    Args:
        declared: the dimensions of inputs.
        shapes: of arrays that are passed for them.

    Returns:
        None if the shapes are not those of the model for any sizes, or have no elements.
    """
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        dims = declared.get(name)
        if dims is None or len(dims) != len(shape):
            return None
        for dim, size in zip(dims, shape, strict=True):
            known = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            if known != size or not size:
                return None
    return sizes


def several(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a range has; others are one."""
    return {name: size for name, size in sizes.items() if size >= _LEAST}


def are_within(sizes: Mapping[str, int], ranges: Ranges) -> bool:
    """Whether all sizes are in the ranges of their names."""
    return all(name in ranges and ranges[name].least <= size <= ranges[name].most for name, size in sizes.items())


def ranges_with(declared: DeclaredDims, sizes: Mapping[str, int], known: Ranges) -> dict[str, SizeRange]:
    """Ranges that have these sizes and those of ``known`` ranges.

    They go up to usual bounds, or to twice a size or more, so that growing sizes need few modules, and begin at two.
    """
    batches, lengths, sides = (
        {dim for dims in declared.values() for dim in dims[axes] if isinstance(dim, str)}
        for axes in (slice(1), slice(1, _SIDES_FROM), slice(_SIDES_FROM, None))
    )
    most = {name: _LENGTHS if name in lengths or name in sides else _BATCHES for name in batches | lengths | sides}
    return {
        name: _with(size, max(_LEAST, -(-size // 2)) if name in sides else _LEAST, most[name], known.get(name))
        for name, size in sizes.items()
    }


def _with(size: int, least: int, most: int, known: SizeRange | None) -> SizeRange:
    most = max(1 << (2 * size - 1).bit_length(), most)
    return SizeRange(min(least, known.least), max(most, known.most)) if known is not None else SizeRange(least, most)


def open_shapes(declared: DeclaredDims, ranges: Ranges) -> OpenShapes:
    """The shapes of inputs that have free dimensions, with their ranges; of those without one the size is one."""
    return {
        name: tuple(ranges.get(dim, 1) if isinstance(dim, str) else dim for dim in dims)
        for name, dims in declared.items()
        if any(isinstance(dim, str) for dim in dims)
    }
