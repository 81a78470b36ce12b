"""A length that a model computes from data: the model without it is written to a file, which is compiled for any size.

Nothing in the model bounds the length, so its bound is a usual one that is told, or the user's.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from sartor.codegen.ir.sizes.computed import ComputedSize
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import SartorError
from sartor.onnx_model.dynamic.computed_length import computed_length
from sartor.onnx_model.dynamic.cut_length import LENGTH, CutLength, cut_length, keep_length
from sartor.onnx_model.dynamic.open_bounds import OpenBounds, open_bounds
from sartor.onnx_model.graphs.held_data import holding, serialised
from sartor.onnx_model.reading.load import read_model
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.workers.protocol import WorkerError

Dims = Mapping[str, tuple[int | str, ...]]
_FOR_EACH, _MOST = 4, 4096
"""The usual bound is so many for each element of the longest input, and at most so many: 4 frames of 12 ms for a sound
are usual speech."""


@dataclass(frozen=True)
class LengthFile:
    """The files of a model that computes a length.

    Attributes:
        path: of the model that takes the length from inputs, with the name of the user's file.
        source: the user's.
        alone: of what computes the length.
        cut: what has the length in the first.
        external: the files that hold weights outside the user's file.
        bounds: of the first one's free dimensions; None if they have none.
        dims: of its inputs, by name: sizes, or the names of symbols.
    """

    path: Path
    source: Path
    alone: Path
    cut: CutLength
    external: tuple[Path, ...]
    bounds: OpenBounds | None
    dims: Dims


@dataclass(frozen=True)
class Lengths:
    """What reading a model gives.

    Attributes:
        file: None if it computes no length.
    """

    file: LengthFile | None = None


@dataclass(frozen=True)
class LengthModel:
    """A model that computes a length, with its bound.

    Attributes:
        file: its files.
        shapes: of all inputs.
        bounds: of the length.
        told: what is told of the bound.
    """

    file: LengthFile
    shapes: OpenShapes
    bounds: SizeRange
    told: str

    @staticmethod
    def of(file: LengthFile, shapes: OpenShapes, given: OpenShapes) -> LengthModel:
        """The model with the user's bound, or else the usual one.

        Args:
            file: its files.
            shapes: of inputs.
            given: those of them that the user gives.
        """
        cut, usual = file.cut, file.bounds
        shapes = {**({} if usual is None else usual.shapes), **shapes}
        places = cut.places or ((cut.unread, 0),)
        known = (given[name][axis] for name, axis in places if name in given)
        bounds = next((size for size in known if isinstance(size, SizeRange)), None)
        if bounds is None:
            others = {name: shape for name, shape in shapes.items() if name not in dict(places)}
            bounds = SizeRange(1, min(_MOST, _FOR_EACH * max(_lengths(others), default=1)))
        for name, axis in places:
            if name in shapes:
                shapes[name] = tuple(bounds if at == axis else size for at, size in enumerate(shapes[name]))
        asked = " ".join(_options(file.dims, {**_sizes(file.dims, shapes), cut.symbol: bounds}))
        told = f"{cut.symbol}={bounds}, which {cut.node} computes from data; for other sizes change {asked}"
        return LengthModel(file, shapes, bounds, told)

    def sources(self, given: Sequence[str], symbols: Sequence[Symbol]) -> tuple[str, ...]:
        """What is told of all ranges: of others what is known of them, or else the ranges.

        Args:
            given: what is known.
            symbols: the sizes that the compiled model has.
        """
        name = self.file.cut.symbol
        # What is told of the bound tells how to change the others.
        known = tuple(source for source in given if not source.startswith((f"{name}=", "for other sizes")))
        return (*(known or (str(symbol) for symbol in symbols if symbol.name != name)), self.told)

    @property
    def computed(self) -> ComputedSize:
        """The length as modules compute it."""
        cut = self.file.cut
        return ComputedSize(cut.symbol, LENGTH, cut.unread, cut.node)


def _sizes(dims: Dims, shapes: OpenShapes) -> dict[str, int | SizeRange]:
    """The sizes of symbols that shapes give."""
    known = [pair for name, shape in shapes.items() if name in dims for pair in zip(dims[name], shape, strict=False)]
    return {dim: size for dim, size in known if isinstance(dim, str)}


def _options(dims: Dims, sizes: Mapping[str, int | SizeRange]) -> Iterator[str]:
    """The options of the command line that give all inputs with free dimensions their sizes."""
    for name, own in dims.items():
        if any(isinstance(dim, str) for dim in own):
            shape = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in own]
            text = f"{name}={','.join(map(str, shape))}"
            yield f"--shape {shlex.quote(text)}"


def _lengths(shapes: OpenShapes) -> Iterator[int]:
    """The largest sizes of inputs behind their batches."""
    for shape in shapes.values():
        yield from (size.most if isinstance(size, SizeRange) else size for size in shape[1:])


def length_file(path: Path, directory: Path, bound: Collection[str] = ()) -> Lengths | WorkerError:
    """Worker side: write a model without the length that it computes, if it computes one.

    Args:
        path: ONNX file.
        directory: for the files.
        bound: inputs whose value is fixed.
    """
    try:
        with holding():
            model, external = read_model(path)
            length = computed_length(model, bound)
            if length is None:
                return Lengths()
            alone, target = ModelProto(), directory / "length.onnx"
            alone.CopyFrom(model)
            keep_length(alone, length)
            _write(alone, target)
            cut = cut_length(model, length)
            _write(model, directory / path.name)
            files = directory / path.name, path.absolute(), target
            dims = {value.name: _dims(value) for value in model.graph.input}
            return Lengths(LengthFile(*files, cut, external, open_bounds(model), dims))
    except SartorError as error:
        return WorkerError(error)


def _dims(value: ValueInfoProto) -> tuple[int | str, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value or dim.dim_param or f"{value.name}[{axis}]" for axis, dim in enumerate(dims))


def _write(model: ModelProto, target: Path) -> None:
    with target.open("wb") as file:
        for piece in serialised(model):
            file.write(piece)
