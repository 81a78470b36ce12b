"""The symbols of a model: which dimensions of its inputs have any size, and which of them are the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from onnx import ModelProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import SartorError, UsageError
from sartor.onnx_model.preparing.shapes import model_inputs
from sartor.onnx_model.reading.load import read_model
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.workers.protocol import WorkerError

_TERM = re.compile(r" (?=[+-] )")
_NUMBER = re.compile(r"[0-9]{1,9}")
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

    A dimension whose name is a sum of symbols and numbers, as ``past + 1`` or ``past + sequence``, has that size.

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
        names = {dim for dims in declared.values() for dim in dims if isinstance(dim, str)}
        for name, shape in shapes.items():
            for symbol, size in zip(self._named(declared, name, shape), shape, strict=True):
                if isinstance(size, SizeRange):
                    self._check_free(name, symbol, names)
                self._note(name, symbol, size, sizes)
        for name in {**declared, **shapes}:
            dims = declared[name] if name in declared else self._named(declared, name, shapes[name])
            if any(isinstance(dim, str) for dim in dims):
                self._dims[name] = [_size(dim, sizes) if isinstance(dim, str) else dim for dim in dims]
        self._fixed = sizes

    @staticmethod
    def _named(declared: DeclaredDims, name: str, shape: tuple[int | SizeRange, ...]) -> tuple[int | str, ...]:
        dims = declared[name] if name in declared else tuple(f"{name}[{axis}]" for axis in range(len(shape)))
        if len(dims) != len(shape):
            raise UsageError(f"--shape gives '{name}' {len(shape)} dimensions, and the model declares {len(dims)}")
        return dims

    @staticmethod
    def _check_free(name: str, symbol: int | str, names: Collection[str]) -> None:
        """Refuse a range for a sum of others."""
        terms = [] if isinstance(symbol, int) else _terms(symbol)
        if len(terms) > 1 and all(term.number is not None or term.name in names for term in terms):
            raise UsageError(
                f"--shape gives '{name}' a range for '{symbol}', which follows from others; leave --shape {name} out, "
                "and give ranges to the inputs that have its terms"
            )

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
        sizes = {**self._fixed, **sizes}
        for name, dims in self._dims.items():
            bound = [_size(dim, sizes) if isinstance(dim, str) else dim for dim in dims]
            known = tuple(size for size in bound if isinstance(size, int))
            if len(known) == len(dims):
                shapes_by_input[name] = known
        return shapes_by_input


def _size(dim: str, sizes: Mapping[str, int]) -> int | str:
    """The size of a dimension, or its name if that is not known."""
    if dim in sizes:
        return sizes[dim]
    sized = [(term.sign, term.number if term.number is not None else sizes.get(term.name)) for term in _terms(dim)]
    known = [sign * size for sign, size in sized if size is not None]
    return sum(known) if len(known) == len(sized) > 1 else dim


class _Term(NamedTuple):
    """A term of a sum: a name, or a number."""

    sign: int
    name: str
    number: int | None


def _terms(dim: str) -> list[_Term]:
    """The terms of a dimension's name, which is one if it is no sum."""
    terms = []
    for text in _TERM.split(dim):
        sign, name = (-1 if text.startswith("-") else 1, text[2:]) if text[:2] in ("+ ", "- ") else (1, text)
        terms.append(_Term(sign, name, int(name) if _NUMBER.fullmatch(name) else None))
    return terms
