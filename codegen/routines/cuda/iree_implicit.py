"""IREE's implicit matrix product for GPUs of NVIDIA, with tiles of ours, beside our own kernels.

IREE's own choice for a convolution in f32 is one number per thread, without shared memory. Kept in a region, and with
tiles, the same op is turned into a matrix product whose operands go through shared memory; in f16 and bf16 tensor cores
multiply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution, convolution_of
from sartor.codegen.analysis.matmul import product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.kernels.cuda.iree_tiles import (
    DEPTH_OF_THREADS,
    Tiles,
    matrix_tiles,
    pads_rows,
    thread_tiles,
    warps_of,
)
from sartor.codegen.kernels.cuda.layers import gpu_of
from sartor.codegen.kernels.tensor_cores.instructions import ROWS
from sartor.codegen.mlir.regions.gpu_region import GpuTiling, multiply_in_region
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

# Where nothing is measured: tensor cores multiply 16 times as fast as f32 on sm_80, and IREE's code has neither
# asynchronous copies nor ldmatrix, so that most of it is lost to loads.
_MATRIX_SLOWDOWN = 0.5


@dataclass(frozen=True)
class IreeImplicit:
    """Convolutions without groups in NHWC, and products.

    Parameters: ``workgroup``, a part of the result's last three dimensions, or two if it has no more; ``thread``, a
    thread's part of it, or ``warp``, the matrices of a warp, with ``depth``, a step of the reduction.

    Attributes:
        storage: type of operands and result that tensor cores multiply, f16 or bf16; None for f32.
    """

    name: str = "iree_implicit"
    storage: str | None = None

    @property
    def traits(self) -> Traits:
        slowdown = TILED_SLOWDOWN if self.storage is None else _MATRIX_SLOWDOWN
        return Traits("iree_implicit", precision=self.storage, slowdown=slowdown)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        gpu = required(gpu_of(task, target))
        by_product = self._multiplies_pixels(task)
        extents = required(_extents(task, by_product=by_product))
        result, reduction = extents
        if 0 in result or reduction == 0:
            return Rejected("nothing is multiplied")
        if reduction % DEPTH_OF_THREADS:
            return Rejected(f"the extent of its reduction is no multiple of {DEPTH_OF_THREADS}")
        tiled = 3 if task.kind is LayerKind.CONVOLUTION and not by_product else 2
        if self.storage is None:
            tiles = [*thread_tiles(result, tiled, gpu)]
        else:
            tiles = matrix_tiles(result, tiled, reduction, gpu, self.storage)
        sums = " by threads with enough sums" if self.storage is None else ""
        return [self._named(tile) for tile in tiles] or Rejected(f"no tiles divide its result{sums}")

    def _named(self, tiles: Tiles) -> Parameters:
        if self.storage is None:
            return {"workgroup": tiles.workgroup, "thread": tiles.own}
        return {"workgroup": tiles.workgroup, "warp": tiles.own, "depth": tiles.depth}

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        by_product = self._multiplies_pixels(task)
        extents = required(_extents(task, by_product=by_product))
        tiling = self._tiling(parameters, extents[0])
        is_image = task.kind is LayerKind.CONVOLUTION and not by_product
        rewrite = Rewrite.images(task, CHANNELS_LAST) if is_image else product_rewrite(task)
        built = rewritten(rewrite, lambda layer_rewrite: multiply_in_region(layer_rewrite, tiling), target)
        if isinstance(built, Rejected) or self.storage is None:
            return built
        inputs, outputs = (
            tuple(kind.stored_as(self.storage) for kind in kinds) for kinds in (built.inputs, built.outputs)
        )
        return replace(built, inputs=inputs, outputs=outputs)

    def _tiling(self, parameters: Parameters, result: tuple[int, ...]) -> GpuTiling:
        group, own = parameters["workgroup"], parameters["thread" if self.storage is None else "warp"]
        if isinstance(group, int) or isinstance(own, int):
            raise TypeError("tiles have several dimensions")
        if self.storage is None:
            threads = math.prod(whole // part for whole, part in zip(group, own, strict=True))
            return GpuTiling(group, own, DEPTH_OF_THREADS, threads)
        depth = integer(parameters["depth"])
        threads = warps_of(Tiles(group, own, depth)) * WARP
        return GpuTiling(group, own, depth, threads, self.storage, pads_rows(result))

    def _multiplies_pixels(self, task: Task) -> bool:
        """Whether a convolution is a product of its pixels, whose number matrices divide though no row of pixels is."""
        if self.storage is None or task.kind is not LayerKind.CONVOLUTION:
            return False
        convolution = convolution_of(task)
        return (
            convolution is not None
            and convolution.is_product
            and not convolution.is_padded
            and _pixels(convolution) % ROWS == 0
        )


def _pixels(convolution: Convolution) -> int:
    batches, _, height, width = convolution.result.shape
    return batches * height * width


def _extents(task: Task, *, by_product: bool) -> tuple[tuple[int, ...], int] | Rejected:
    """The result's dimensions, channels last, and the extent of the reduction."""
    if task.kind is LayerKind.CONVOLUTION and not by_product:
        convolution = convolution_of(task)
        if convolution is None:
            return Rejected("not a two-dimensional convolution without groups")
        batches, channels, height, width = convolution.result.shape
        return (batches, height, width, channels), convolution.filter.elements // channels
    if task.kind not in (LayerKind.CONVOLUTION, LayerKind.CONTRACTION):
        return Rejected("neither a convolution nor a matrix product")
    shape = product_shape(task)
    if isinstance(shape, Rejected):
        return shape
    if shape.rows is None:
        return Rejected("a product with a single row")
    if shape.shares_lhs:
        return Rejected("one LHS is multiplied by several matrices")
    return (*shape.batches, shape.rows, shape.columns), shape.depth
