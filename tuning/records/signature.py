"""The inputs and outputs of a whole network's module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.ir.layer import ENTRY, NetworkValue
from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.files.open_sizes import GivenSize, OpenSize, Place


def net_signature(values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]) -> Signature:
    """The signature of a network's module; ``values`` are its inputs and its outputs."""
    return Signature(ENTRY, *(tuple(map(value_spec, value)) for value in values))


def value_spec(value: NetworkValue) -> TensorSpec:
    """Name, element type and shape of a network input or output; a size that is known only when it runs is None."""
    shape = tuple(dim if isinstance(dim, int) else None for dim in value.type.dims or value.type.shape)
    return TensorSpec(value.name, value.dtype, shape)


def open_sizes(inputs: Sequence[NetworkValue]) -> tuple[OpenSize, ...]:
    """The sizes that callers of a network choose, with the dimensions that have them."""
    places: dict[Symbol, list[Place]] = {}
    sums: list[tuple[Extent, Place]] = []
    for value in inputs:
        for axis, dim in enumerate(value.type.dims or ()):
            if isinstance(dim, Extent) and dim.shifted is not None:
                places.setdefault(dim.shifted, []).append(Place(value.name, axis, dim.offset))
            elif isinstance(dim, Extent) and dim.summed:
                sums.append((dim, Place(value.name, axis, dim.offset)))
    for dim, place in sums:
        first, *others = dim.summed
        if {first, *others} <= places.keys():
            places[first].append(replace(place, besides=tuple(places[other][0] for other in others)))
    return tuple(
        OpenSize(symbol.name, symbol.least, symbol.most, symbol.multiple, tuple(sources))
        for symbol, sources in places.items()
    )


def given_sizes(outputs: Sequence[NetworkValue]) -> tuple[GivenSize, ...]:
    """The sizes of a network's outputs that follow from those that its callers choose."""
    return tuple(
        GivenSize(value.name, axis, tuple(symbol.name for symbol in dim.symbols), dim.factor, dim.offset, dim.divisor)
        for value in outputs
        for axis, dim in enumerate(value.type.dims or ())
        # Sessions take the other outputs as the module gives them.
        if isinstance(dim, Extent) and not any(symbol.terms for symbol in dim.symbols)
    )
