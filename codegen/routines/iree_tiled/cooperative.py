"""Products and convolutions for Vulkan by cooperative matrices (VK_KHR_cooperative_matrix), in searched tiles.

A subgroup multiplies matrices of 16x16 numbers of f16 and adds up in f32. IREE's own choice takes some products of f16;
here the op is kept in a region with its tiles, so that all whose columns and depth divide are taken, with what follows
fused. Rows are filled up with zeros to whole tiles: images of 14x14 and 7x7 pixels have 196 and 49 of them.
Convolutions by larger filters, or with strides, multiply a matrix of patches, which another dispatch gathers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, shape_of
from sartor.codegen.ir.layer import F16, Task
from sartor.codegen.ir.packing import Round
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, pair, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.lowerings.im2col import patches_rewrite
from sartor.codegen.mlir.gpu_machine import COOPERATIVE_MATRICES, gpu_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.regions.cooperative_region import (
    SIDE,
    CooperativeTiling,
    in_whole_tiles,
    multiply_in_region,
)
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

_ROWS, _COLUMNS, _DEPTHS = (64, 32, 16), (128, 64, 32, 16), (32, 16)
# Of a subgroup, along both dimensions.
_SUBGROUP = 32
_MOST_SUBGROUPS = 8
# Fewer workgroups leave multiprocessors idle.
_FEWEST_GROUPS = 64
_TILES = 4
# As many rows of zeros as there are rows take half of what matrices gain, at least.
_MOST_ROWS = 2
# Operands of two steps are in it. Results pass through it for what is fused to them. The rest is padding.
_STAGES = 2
_SHARED_BYTES = 40 << 10
_FLOAT_BYTES, _F16_BYTES = 4, 2
# Where nothing is measured: time relative to multiply-adds of f32 at their peak. Matrices multiply at least eight times
# as fast, and half of that may be lost to loads.
_SLOWDOWN = 0.25
# Patches are written and read, for filters of 3x3 nine times what the image has.
_PATCHES_SLOWDOWN = 1.0


@dataclass(frozen=True)
class CooperativeProduct:
    """Products by a weight and 1x1 convolutions with images in NHWC, operands and result in f16.

    Parameters: ``workgroup`` and ``subgroup``, their rows and columns, and ``depth``, a step of the reduction.
    """

    name: str = "cooperative"

    @property
    def traits(self) -> Traits:
        return Traits("cooperative", precision=F16, slowdown=_SLOWDOWN)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        shape = required(_divided(required(self._rewrite(task, target))))
        ranked = sorted(_tiles(shape), key=lambda tile: _rank(shape, tile))
        return ranked[:_TILES] or Rejected("no tiles fit the memory of a workgroup and the rows")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        tiling = CooperativeTiling(
            pair(parameters["workgroup"]), pair(parameters["subgroup"]), integer(parameters["depth"]), _lanes(target)
        )
        built = required(rewritten(self._rewrite(task, target), lambda rewrite: _apply(rewrite, tiling), target))
        inputs, outputs = (tuple(kind.stored_as(F16) for kind in kinds) for kinds in (built.inputs, built.outputs))
        return replace(built, inputs=inputs, outputs=outputs)

    def _rewrite(self, task: Task, target: Target) -> Rewrite | Rejected:
        machine = _machine(target)
        if isinstance(machine, Rejected):
            return machine
        if not all(tensor.is_f32 for tensor in task.tensors):
            return Rejected("its element types are not all f32")
        return self._product(task)

    def _product(self, task: Task) -> Rewrite | Rejected:
        """The layer as a matrix product."""
        return product_rewrite(task)


@dataclass(frozen=True)
class CooperativePatches(CooperativeProduct):
    """Convolutions with images in NHWC by larger filters, or with strides, as products by matrices of patches."""

    name: str = "cooperative_patches"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, slowdown=_PATCHES_SLOWDOWN)

    def _product(self, task: Task) -> Rewrite | Rejected:
        convolution = convolution_of(task)
        if convolution is not None and convolution.is_product:
            return Rejected("a product without patches")
        return patches_rewrite(task)


def _divided(rewrite: Rewrite) -> MatmulShape | Rejected:
    """Extents of a product whose columns and depth cooperative matrices divide, or why there is none."""
    with rewrite.module.context:
        shape = shape_of(rewrite.root)
    if shape.batches or shape.rows is None:
        return Rejected("several products, or one of a single row")
    if shape.columns % SIDE or shape.depth % SIDE:
        return Rejected(f"its columns and depth are not multiples of {SIDE}")
    return shape


def _machine(target: Target) -> Machine | Rejected:
    if not target.is_vulkan:
        return Rejected("it is for Vulkan only")
    machine = gpu_machine(target)
    if COOPERATIVE_MATRICES not in machine.features:
        return Rejected("the device has no cooperative matrices")
    return machine


def _lanes(target: Target) -> int:
    return gpu_machine(target).lanes


def _tiles(shape: MatmulShape) -> Iterator[Parameters]:
    """Tiles that divide columns and depth, with room for operands and results in the memory of a workgroup."""
    rows, columns = shape.rows or 1, shape.columns
    depth = next(size for size in _DEPTHS if shape.depth % size == 0)
    for high, wide in itertools.product(_ROWS, _COLUMNS):
        own = min(high, _SUBGROUP), min(wide, _SUBGROUP)
        subgroups = high // own[0] * (wide // own[1])
        used = _STAGES * (high + wide) * depth * _F16_BYTES + high * wide * _FLOAT_BYTES
        fits = subgroups <= _MOST_SUBGROUPS and used <= _SHARED_BYTES
        if fits and columns % wide == 0 and in_whole_tiles(rows, high) <= _MOST_ROWS * rows:
            yield {"workgroup": (high, wide), "subgroup": own, "depth": depth}


def _rank(shape: MatmulShape, parameters: Parameters) -> tuple[bool, int, int]:
    """Less is better: enough workgroups, then few rows of zeros, then large tiles, which load less."""
    high, wide = pair(parameters["workgroup"])
    rows = in_whole_tiles(shape.rows or 1, high)
    return rows * shape.columns // (high * wide) < _FEWEST_GROUPS, rows, -high * wide


def _apply(rewrite: Rewrite, tiling: CooperativeTiling) -> None:
    """Round the operands and move the product to a region.

    Raises:
        RejectionError: if the layer is not of that form.
    """
    index = rewrite.weight_index(rewrite.root.operands[1])
    if index is None:
        raise RejectionError("the RHS is not a weight")
    rewrite.extend_packing(index, (Round(F16),))
    multiply_in_region(rewrite, tiling)
