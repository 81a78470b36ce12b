"""Code that cuts an input to a size that the network computes: how much of it is read nobody knows before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sartor.codegen.digest import digest
from sartor.codegen.ir.layer import VIEW
from sartor.codegen.ir.sizes.dims import Extent
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.functions.entries import Entry, Length, Port


def cutting(entry: Entry, length: Length) -> Mapping[str, Implementation]:
    """For each input that is cut, by its name, what takes it, its open sizes, and the size that it is cut to.

    Raises:
        ValueError: if a dimension of one follows from the size in another way than by being it.
    """
    return {port.name: _code(port, length) for port in entry.inputs if length.cuts(port)}


def symbol_of_cut(code: Implementation) -> str:
    """The name of its function."""
    return f"cut{digest(code.body)}"


def is_cut(port: Port, axis: int, length: Length) -> bool:
    """Whether a dimension of an input is cut to the size."""
    dim = (port.logical.dims or port.logical.shape)[axis]
    return isinstance(dim, Extent) and length.symbol in dim.symbols


def open_axes(port: Port) -> Iterator[int]:
    """The dimensions of an input that are known only when it runs."""
    dims = port.logical.dims or port.logical.shape
    return (axis for axis, dim in enumerate(dims) if not isinstance(dim, int))


def _code(port: Port, length: Length) -> Implementation:
    dims, axes = port.logical.dims or port.logical.shape, [*open_axes(port)]
    for axis in axes:
        if is_cut(port, axis, length) and dims[axis] != Extent.of_symbol(length.symbol):
            raise ValueError(f"'{port.name}' has a dimension {dims[axis]}, which is no size that it can be cut to")
    given = {axis: f"%given{axis}" for axis in axes}
    kept = {axis: "%size" if is_cut(port, axis, length) else name for axis, name in given.items()}
    sizes = [kept.get(axis, str(dim)) for axis, dim in enumerate(dims)]
    arguments = [f"%view: {VIEW}", *(f"{name}: index" for name in given.values()), "%size: index"]
    zeros, ones = (", ".join([number] * len(dims)) for number in ("0", "1"))
    body = "\n".join(
        [
            f"util.func public @layer({', '.join(arguments)}) -> {VIEW} {{",
            f"  %long = hal.tensor.import %view : {VIEW} -> {port.type}{{{', '.join(given.values())}}}",
            f"  %cut = tensor.extract_slice %long[{zeros}] [{', '.join(sizes)}] [{ones}] : {port.type} to {port.type}",
            f"  %given = hal.tensor.export %cut : {port.type}{{{', '.join(kept.values())}}} -> {VIEW}",
            f"  util.return %given : {VIEW}",
            "}",
        ]
    )
    return Implementation(body, (port.schema,), (port.schema,), (), symbols=(length.symbol,))
