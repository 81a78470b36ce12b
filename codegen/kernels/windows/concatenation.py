"""Concatenation of images, slices or enlarged images along their channels, with the elementwise ops that follow."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.nest import Accumulate, Nest, NestCode, Starts, Tile
from sartor.codegen.kernels.loops.partition import many_workgroups, workgroup_range
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.repetition import repetition_of
from sartor.codegen.kernels.windows.slices import SLICE, slice_of
from sartor.codegen.mlir.iree_compiler import arith, ir, shared_context, vector
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of, defining_op
from sartor.codegen.mlir.rewriting.chain import Chain, followers_of

_CONCAT = "tensor.concat"
_CHANNEL = 1
_TILES = ((4, 4), (8, 2))


@dataclass(frozen=True)
class Concatenation:
    """A concatenation of images along their channels.

    Attributes:
        result: type of the result, ``[N, C, H, W]``.
        parts: channels of each image.
        has_slices: whether some are slices of other images; a single slice counts as a concatenation.
        repeats: how often pixels of a row are repeated, for each image that is enlarged; one by itself counts as a
            concatenation.
    """

    result: TensorType
    parts: tuple[int, ...]
    has_slices: bool = False
    repeats: tuple[int, ...] = ()


@functools.lru_cache(maxsize=1024)
def concatenation_of(task: Task) -> Concatenation | None:
    """The concatenation that a layer begins with; None if it has none or several, or not of images along their
    channels."""
    with shared_context():
        module = ir.Module.parse(task.body)
        op = _concat(module.body.operations[0].operation)
        if op is None:
            return None
        result, *images = (TensorType.parse(str(value.type)) for value in (*op.results, *_images(op)))
        if len(result.shape) != IMAGE_RANK or (op.name == _CONCAT and _dimension(op) != _CHANNEL):
            return None
        has_slices = any(
            op_of_image is not None and op_of_image.name == SLICE for op_of_image in map(defining_op, _images(op))
        )
        enlarged = [repetition for repetition in map(repetition_of, _images(op)) if repetition is not None]
        channels = tuple(image.shape[_CHANNEL] for image in images)
        return Concatenation(result, channels, has_slices, tuple(enlargement.columns for enlargement in enlarged))


def _concat(function: ir.Operation) -> ir.Operation | None:
    """The only concatenation of a layer, or, if it has none, its last slice or image that is enlarged."""
    ops = [view.operation for view in body_of(function).operations]
    concatenations = [op for op in ops if op.name == _CONCAT]
    if concatenations:
        return concatenations[0] if len(concatenations) == 1 else None
    return next((op for op in ops[::-1] if op.name == SLICE or _is_enlarged(op)), None)


def _is_enlarged(op: ir.Operation) -> bool:
    repetition = repetition_of(op.results[0]) if len(op.results) == 1 else None
    return repetition is not None and repetition.rows * repetition.columns > 1


def _dimension(concat: ir.Operation) -> int:
    return int(ir.IntegerAttr(concat.attributes["dim"]).value)


def _images(op: ir.Operation) -> list[ir.Value]:
    """What a concatenation joins, or a slice, which is joined with nothing."""
    return list(op.operands if op.name == _CONCAT else op.results)


@dataclass(frozen=True)
class Part(NestCode):
    """One of the images, copied to its channels of the result.

    Attributes:
        image: access to it.
        step: distance of the channels that are read, which are adjacent if it is 1.
        repeats: how often each row of the image, and each pixel of a row, is repeated.
        is_copied: whether elements are copied without conversion.
    """

    image: Access
    step: int = 1
    repeats: tuple[int, int] = (1, 1)
    is_copied: bool = False

    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        """The function that emits the loads of a tile."""

        def load(tile: Tile, _: Starts) -> list[ir.Value]:
            memory, origin = memories[self.image.memory], self._origin(asm, tile.origin)
            spread = functools.partial(asm.load_spread, stride=self.step, lane=0)
            read = spread if self.step > 1 else asm.load_as_stored if self.is_copied else asm.load
            loaded: dict[TileVector, ir.Value] = {}
            for place in (vectors := [self._read_for(one) for one in tile.tile_vectors(self.lanes)]):
                if place not in loaded:
                    loaded[place] = read(memory, origin.offset(asm, self.image, place), place.channels)
            return [loaded[read] for read in vectors]

        return load

    def _origin(self, asm: Assembler, origin: TileOrigin) -> TileOrigin:
        """The position of a tile in the image, where the tile begins with the first repetition of a pixel."""
        if self.repeats == (1, 1):
            return origin
        row, column = (asm.divide(*pair)[0] for pair in zip((origin.row, origin.column), self.repeats, strict=True))
        return TileOrigin(origin.batch, row, column, origin.vector)

    def _read_for(self, tile_vector: TileVector) -> TileVector:
        """The vector of the image that a vector of the tile repeats."""
        return tile_vector._replace(column=tile_vector.column // self.repeats[1])

    def may_copy(self, asm: Assembler, memories: Sequence[ir.Value]) -> Condition:
        """Whether the image's elements need no conversion, and no elementwise op follows; perhaps known at run time
        only."""
        if self.nest.epilogue.chain.followers:
            return False
        return _mean_the_same(asm, memories[self.image.memory], memories[self.nest.result.memory])


@dataclass(frozen=True)
class ConcatenationKernel:
    """A kernel that copies all images row by row, so that a row of the result is complete while it is in the cache.

    Attributes:
        parts: the images.
    """

    parts: tuple[Part, ...]

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.parts[0].groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.parts[0].lanes

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code. Whether quantised images need conversion is decided at run time, by their
        ranges."""
        copied = [part.may_copy(asm, memories) for part in self.parts]

        def every(row: Index) -> None:
            def write(part: Part) -> None:
                part.write_rows(asm, memories, group[2], (row, asm.add(row, 1)))

            for part, condition in zip(self.parts, copied, strict=True):
                as_it_is = functools.partial(write, replace(part, is_copied=True))
                asm.branch(condition, as_it_is, functools.partial(write, part))

        asm.repeat(*workgroup_range(asm, self.parts[0].nest.rows.output, self.groups[0], group[0]), 1, every)


def _mean_the_same(asm: Assembler, one: ir.Value, other: ir.Value) -> Condition:
    """Whether equal elements of two memories stand for equal numbers."""
    elements = [ir.MemRefType(memory.type).element_type for memory in (one, other)]
    if elements[0] != elements[1] or not isinstance(elements[0], ir.IntegerType):
        return elements[0] == elements[1]
    scales = [asm.scale_of(memory) for memory in (one, other)]
    steps = [vector.extract(scale.step, [], [0]) for scale in scales]
    alike = arith.cmpf(arith.CmpFPredicate.OEQ, *steps)
    return asm.all_of(alike, arith.cmpi(arith.CmpIPredicate.eq, *(scale.number for scale in scales)))


def concatenation_kernel(layer: ImageLayer, tiling: Tiling) -> ConcatenationKernel:
    """The kernel of a layer that begins with a concatenation.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    function = layer.rewrite.function
    concat = _concat(function)
    if concat is None:
        raise RejectionError("the layer does not have exactly one concatenation")
    nest = _nest(layer, Chain(None, concat, followers_of(function, concat)), tiling)
    same = ir.AffineMap.get_identity(IMAGE_RANK)
    parts, first = [], 0
    for image in _images(concat):
        channels, enlarged = TensorType.parse(str(image.type)).shape[_CHANNEL], repetition_of(image)
        repeats = (1, 1) if enlarged is None else (enlarged.rows, enlarged.columns)
        if tiling.columns % repeats[1]:
            raise RejectionError(
                f"tiles of {tiling.columns} columns begin with another repetition than a pixel's first"
            )
        slice_found = slice_of(image if enlarged is None else enlarged.origin)
        access = layer.locate(slice_found.origin, same)
        access = access if slice_found.is_whole else slice_found.access(access, layer.lanes)
        parts.append(Part(_from_channel(nest, first, channels), access, slice_found.steps[_CHANNEL], repeats))
        first += channels
    return ConcatenationKernel(tuple(parts))


def _nest(layer: ImageLayer, chain: Chain, tiling: Tiling) -> Nest:
    """The loops over all channels of the result."""
    batches, channels, height, width = layer.rewrite.task.results[0].shape
    axes = (Axis(height, height, 1, 1, 1, 0), Axis(width, width, 1, 1, 1, 0))
    return Nest(batches, *axes, layer.result, layer.epilogue_of(chain), layer.lanes, channels, tiling)


def _from_channel(nest: Nest, first: int, channels: int) -> Nest:
    """The loops over some channels of the result."""

    def change(access: Access) -> Access:
        return access.from_channel(first, nest.lanes)

    epilogue = nest.epilogue.map_accesses(change)
    return replace(nest, channels=channels, result=change(nest.result), epilogue=epilogue)


def concatenation_tilings(concatenation: Concatenation, machine: Machine) -> list[Tiling]:
    """Tilings worth trying, best guess first."""
    _, _, height, width = concatenation.result.shape
    vectors = -(-max(concatenation.parts) // machine.lanes)
    # Tiles begin with the first repetition of a pixel.
    unit = math.lcm(*concatenation.repeats)
    shapes = [(balanced(width // unit, max(1, columns // unit)) * unit, min(wide, vectors)) for columns, wide in _TILES]
    groups = many_workgroups(height, machine.threads)
    return [Tiling(1, *shape, groups, 1, 1) for shape in dict.fromkeys(shapes)]
