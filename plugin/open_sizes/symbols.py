"""The symbols of a model: which dimensions of its inputs have any size, and which of them are the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import SartorError, UsageError
from sartor.onnx_model.preparing.shapes import model_inputs
from sartor.onnx_model.reading.load import read_model
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.workers.protocol import WorkerError

_SHIFTED = re.compile(r"(?P<name>.+) (?P<sign>[+-]) (?P<number>[0-9]{1,9})")
DeclaredDims = Mapping[str, tuple[int | str, ...]]
"""Dimensions of inputs by name: sizes, or the names of symbols, made up for those that have none."""


def declared_dims(path: Path) -> DeclaredDims | WorkerError:
    """Worker side: the dimensions that a model declares for its inputs, of those that declare any."""
    try:
        model, _ = read_model(path)
        return dims_of(model)
    except SartorError as error:
        return WorkerError(error)


def dims_of(model: ModelProto) -> DeclaredDims:
    """The dimensions that a model declares for its inputs, of those that declare any."""
    dims_by_input: dict[str, tuple[int | str, ...]] = {}
    for name, value in model_inputs(model.graph).items():
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            dims_by_input[name] = tuple(
                dim.dim_value if dim.dim_value > 0 else dim.dim_param or f"{name}[{axis}]"
                for axis, dim in enumerate(tensor.shape.dim)
            )
    return dims_by_input


class OpenDims:
    """The dimensions of a model's inputs, with the ranges that its user gives.

    A dimension whose name is that of a symbol with a number, as ``past + 1``, has the symbol's size and so much more.

    Args:
        declared: by the model.
        shapes: of the user; an input that is left out has the sizes that others give its symbols.
        ranges: of further symbols.

    Raises:
        UsageError: if a range is given for a size that the model fixes, two are given for one symbol, or an input is
            not known.
    """

    def __init__(
        self, declared: DeclaredDims, shapes: OpenShapes, ranges: Mapping[str, SizeRange] | None = None
    ) -> None:
        self._dims: dict[str, list[int | str]] = {}
        self._ranges: dict[str, SizeRange] = dict(ranges or {})
        sizes: dict[str, int] = {}
        for name, shape in shapes.items():
            for symbol, size in zip(self._named(declared, name, shape), shape, strict=True):
                self._note(name, symbol, size, sizes)
        for name in {**declared, **shapes}:
            dims = declared[name] if name in declared else self._named(declared, name, shapes[name])
            if any(isinstance(dim, str) for dim in dims):
                self._dims[name] = [_size(dim, sizes) if isinstance(dim, str) else dim for dim in dims]

    @staticmethod
    def _named(declared: DeclaredDims, name: str, shape: tuple[int | SizeRange, ...]) -> tuple[int | str, ...]:
        dims = declared[name] if name in declared else tuple(f"{name}[{axis}]" for axis in range(len(shape)))
        if len(dims) != len(shape):
            raise UsageError(f"--shape gives '{name}' {len(shape)} dimensions, and the model declares {len(dims)}")
        return dims

    def _note(self, name: str, symbol: int | str, size: int | SizeRange, sizes: dict[str, int]) -> None:
        if isinstance(symbol, int):
            if size != symbol:
                raise UsageError(
                    f"--shape gives a dimension of '{name}' the size {size}, but the model fixes it to {symbol}"
                )
            return
        known = self._ranges.get(symbol) or sizes.get(symbol)
        if known not in (None, size):
            raise UsageError(f"--shape gives '{symbol}' the sizes {known} and {size}; give it one")
        if isinstance(size, SizeRange):
            self._ranges[symbol] = size
        else:
            sizes[symbol] = size

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols that have a range."""
        return tuple(Symbol(name, bounds.least, bounds.most, bounds.multiple) for name, bounds in self._ranges.items())

    @property
    def sides(self) -> dict[str, tuple[Symbol, ...]]:
        """The symbols of each input's dimensions after the first, of inputs that have some."""
        known = {symbol.name: symbol for symbol in self.symbols}
        sides = {name: tuple(known[dim] for dim in dims[1:] if dim in known) for name, dims in self._dims.items()}
        return {name: symbols for name, symbols in sides.items() if symbols}

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs for sizes of the symbols, without those that need none, or have other free sizes."""
        shapes_by_input: dict[str, tuple[int, ...]] = {}
        for name, dims in self._dims.items():
            bound = [_size(dim, sizes) if isinstance(dim, str) else dim for dim in dims]
            known = tuple(size for size in bound if isinstance(size, int))
            if len(known) == len(dims):
                shapes_by_input[name] = known
        return shapes_by_input


def _size(dim: str, sizes: Mapping[str, int]) -> int | str:
    """The size of a dimension, or its name if that is not known."""
    shifted = _SHIFTED.fullmatch(dim)
    if dim in sizes or shifted is None or shifted["name"] not in sizes:
        return sizes.get(dim, dim)
    return sizes[shifted["name"]] + int(shifted["sign"] + shifted["number"])
