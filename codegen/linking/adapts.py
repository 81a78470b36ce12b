"""Adapts: conversions of a tensor between two schemas, placed on an edge whose ends have different schemas.

Every layout is a sequence of dimension parts, so an adapt splits the channels if either side is blocked, transposes,
and merges again; where the bytes are the same it is a reshape and costs nothing. Elements are rounded or widened last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise

from sartor.codegen.digest import digest
from sartor.codegen.ir.layer import VIEW, TensorType
from sartor.codegen.ir.layouts import image_layout, in_layout, same_order
from sartor.codegen.ir.schema import RANGE, Schema, ranges_of, same_bytes
from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Dim, at_most, symbols_in
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.element_types import conversion

_CHANNEL = 1


@dataclass(frozen=True)
class Part:
    """A part of an ONNX axis, ``number`` counted from the part that changes fastest."""

    axis: int
    number: int
    size: int


@dataclass(frozen=True, order=True)
class AdaptKind:
    """A conversion: of a tensor of this ONNX type, from one schema to another.

    Attributes:
        tensor: the type, in MLIR.
        source: what it is produced in.
        target: what it is needed in.
        dims: its sizes with what those follow from that are known only when it runs; None if all are known.
    """

    tensor: str
    source: Schema
    target: Schema
    dims: tuple[Dim, ...] | None = None

    @staticmethod
    def between(logical: TensorType, produced: Schema, needed: Schema) -> AdaptKind | None:
        """The conversion of a tensor from the schema it is produced in to the one needed; None if they are equal."""
        return None if produced == needed else AdaptKind(str(logical), produced, needed, logical.dims)

    @property
    def logical(self) -> TensorType:
        if self.dims is None:
            return TensorType.parse(self.tensor)
        return replace(TensorType.parse(self.tensor.replace("?", "1")), shape=at_most(self.dims), dims=self.dims)

    @property
    def key(self) -> str:
        sizes = () if self.dims is None else (repr(self.dims),)
        return digest("adapt", self.tensor, str(self.source), str(self.target), *sizes)

    @property
    def symbol(self) -> str:
        """The prefix of its dispatches' names in a module."""
        return f"s{self.key}"

    @property
    def is_free(self) -> bool:
        """Whether both schemas have the same bytes, so that the conversion costs nothing."""
        return same_bytes(self.logical, self.source, self.target)

    @property
    def crosses(self) -> bool:
        """Whether the tensor goes to another device: as it is, to be converted there."""
        return self.source.device != self.target.device

    @property
    def local(self) -> AdaptKind | None:
        """The part of the conversion that a device computes, all of it unless it crosses; None if nothing is left."""
        if not self.crosses:
            return self
        return AdaptKind.between(self.logical, replace(self.source, device=self.target.device), self.target)

    def implementation(self) -> Implementation:
        """The code of the conversion, which does not cross.

        Raises:
            ValueError: as ``adapt``.
        """
        return adapt(self.logical, self.source, self.target)


def adapt(logical: TensorType, source: Schema, target: Schema) -> Implementation:
    """Code that converts a tensor of ONNX type ``logical`` from the schema ``source`` to ``target``.

    Raises:
        ValueError: if a layout does not fit the tensor, or blocks of the two do not nest.
    """
    before, after = source.physical(logical), target.physical(logical)
    stored = replace(logical, dtype=source.dtype)
    moved = in_layout(stored, target.layout)
    if logical.open_dims:
        return _of_any_size(logical, source, target)
    lines, result = _move(stored, source.layout, target.layout)
    if moved != after:
        lines, result = [*lines, *conversion(result, moved, after, "%range0")], "%converted"
    ranges = ranges_of((logical, logical), (source, target))
    arguments = [f"%arg0: {before}", *(f"%range{index}: {RANGE}" for index in range(len(ranges)))]
    body = "\n".join(
        [
            f"util.func public @layer({', '.join(arguments)}) -> {after} {{",
            *(f"  {line}" for line in lines),
            f"  util.return {result} : {after}",
            "}",
        ]
    )
    return Implementation(body, (source,), (target,), (), ranges)


def _of_any_size(logical: TensorType, source: Schema, target: Schema) -> Implementation:
    """As ``adapt``, of a tensor some of whose sizes are known only when it runs, whose elements stay where they are."""
    if source.layout != target.layout:
        raise ValueError("elements of a tensor of any size are not moved between layouts")
    before, after = source.physical(logical), target.physical(logical)
    symbols = symbols_in(logical.open_dims)
    sizes = SizeText({symbol: f"%symbol{index}" for index, symbol in enumerate(symbols)})
    given, returned = sizes.typed(before), sizes.typed(after)
    room = f"tensor.empty({', '.join(map(sizes.name, logical.open_dims))})"
    ranges = ranges_of((logical, logical), (source, target))
    arguments = [f"%arg0: {VIEW}", *(f"%range{index}: {RANGE}" for index in range(len(ranges)))]
    arguments += [f"%symbol{index}: index" for index in range(len(symbols))]
    body = "\n".join(
        [
            f"util.func public @layer({', '.join(arguments)}) -> {VIEW} {{",
            *(f"  {line}" for line in sizes.lines),
            f"  %given = hal.tensor.import %arg0 : {VIEW} -> {given}",
            *(f"  {line}" for line in conversion("%given", before, after, "%range0", room)),
            f"  %view = hal.tensor.export %converted : {returned} -> {VIEW}",
            f"  util.return %view : {VIEW}",
            "}",
        ]
    )
    return Implementation(body, (source,), (target,), (), ranges, symbols=symbols)


def _move(logical: TensorType, source: str, target: str) -> tuple[list[str], str]:
    """Lines that change the layout, and the value that they compute."""
    if source == target:
        return [], "%arg0"
    if same_order(logical, source, target):
        return _reshape(in_layout(logical, source), in_layout(logical, target))
    return _transpose(logical, source, target)


def _reshape(before: TensorType, after: TensorType) -> tuple[list[str], str]:
    flat = TensorType((before.elements,), before.dtype)
    return [
        f"%flat = tensor.collapse_shape %arg0 [{list(range(len(before.shape)))}] : {before} into {flat}",
        f"%out = tensor.expand_shape %flat [{list(range(len(after.shape)))}] "
        f"output_shape {list(after.shape)} : {flat} into {after}",
    ], "%out"


def _transpose(logical: TensorType, source: str, target: str) -> tuple[list[str], str]:
    bounds = _bounds(logical, source, target)
    start, end = _dimensions(logical, source, bounds), _dimensions(logical, target, bounds)
    parts, moved = list(chain(*start)), list(chain(*end))
    order = [parts.index(part) for part in moved]
    split, joined = _type(parts, logical), _type(moved, logical)
    before, after = in_layout(logical, source), in_layout(logical, target)
    lines, value, result = [], "%arg0", "%moved"
    if split != before:
        lines.append(
            f"%split = tensor.expand_shape %arg0 {_groups(start)} output_shape {list(split.shape)} "
            f": {before} into {split}"
        )
        value = "%split"
    lines.append(f"%empty = tensor.empty() : {joined}")
    lines.append(f"%moved = linalg.transpose ins({value} : {split}) outs(%empty : {joined}) permutation = {order}")
    if joined != after:
        lines.append(f"%out = tensor.collapse_shape %moved {_groups(end)} : {joined} into {after}")
        result = "%out"
    return lines, result


def _bounds(logical: TensorType, source: str, target: str) -> list[int]:
    """Block sizes at which either layout splits the channels, ascending from 1 to all channels."""
    blocks = {block for layout in (source, target) if (block := image_layout(layout).block)}
    bounds = [1, *sorted(blocks), logical.shape[_CHANNEL]]
    if any(large % small for small, large in pairwise(bounds)):
        raise ValueError(f"layouts {source} and {target} have blocks that do not nest")
    return bounds


def _dimensions(logical: TensorType, layout: str, bounds: list[int]) -> list[list[Part]]:
    """Parts of each dimension in memory order, with channels split at all bounds."""
    chosen = image_layout(layout)
    channels = [Part(_CHANNEL, number, large // small) for number, (small, large) in enumerate(pairwise(bounds))]
    inner = 0 if chosen.block is None else bounds.index(chosen.block, 1)
    dimensions = [
        channels[inner:][::-1] if axis == _CHANNEL else [Part(axis, 0, logical.shape[axis])] for axis in chosen.order
    ]
    return [*dimensions, channels[:inner][::-1]] if inner else dimensions


def _type(parts: list[Part], logical: TensorType) -> TensorType:
    return TensorType(tuple(part.size for part in parts), logical.dtype)


def _groups(dimensions: list[list[Part]]) -> list[list[int]]:
    """Positions of the parts of each dimension."""
    positions = iter(range(sum(map(len, dimensions))))
    return [[next(positions) for _ in parts] for parts in dimensions]
