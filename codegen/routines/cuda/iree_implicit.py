"""IREE's implicit matrix product for GPUs of NVIDIA, with tiles of ours, beside our own kernels.

IREE's own choice for a convolution in f32 is one number per thread, without shared memory. Kept in a region, and with
tiles, the same op is turned into a matrix product whose operands go through shared memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.matmul import product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.kernels.cuda.layers import gpu_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.rewriting.enclosing import enclose
from sartor.codegen.mlir.rewriting.initial import simplify_initial
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

_WARP = 32
_BYTES = 4
# Numbers of a thread along the last two dimensions; threads along the last; a step of the reduction, as a larger one
# spills.
# In threads of matrix products with fewer than eight along the last one, registers spill.
_COLUMNS, _CHANNELS, _ACROSS, _DEPTH = 8, (8, 4), (16, 8, 32), 16
_CHANNELS_OF_PRODUCT = (8,)
_MOST_THREADS = 256
# What a kernel has without asking the driver for more.
_SHARED_BYTES = 48 << 10


@dataclass(frozen=True)
class IreeImplicit:
    """Convolutions without groups in NHWC, and products, in f32.

    Parameters: ``thread`` and ``workgroup``, parts of the result's last three dimensions, or two if it has no more.
    """

    name: str = "iree_implicit"

    @property
    def traits(self) -> Traits:
        return Traits("iree_implicit", slowdown=TILED_SLOWDOWN)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        gpu = gpu_of(task, target)
        if isinstance(gpu, Rejected):
            return gpu
        extents = _extents(task)
        if isinstance(extents, Rejected):
            return extents
        result, reduction = extents
        if reduction % _DEPTH:
            return Rejected(f"the extent of its reduction is no multiple of {_DEPTH}")
        parts = _CHANNELS if task.kind is LayerKind.CONVOLUTION else _CHANNELS_OF_PRODUCT
        found: list[Parameters] = [
            {"workgroup": group, "thread": thread} for group, thread in _tiles(result[-3:], parts) if _fits(group)
        ]
        return found or Rejected("no tiles divide its result")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        group, thread = parameters["workgroup"], parameters["thread"]
        if isinstance(group, int) or isinstance(thread, int):
            raise TypeError("tiles have several dimensions")
        tiles = _Tiles(group, thread)
        is_image = task.kind is LayerKind.CONVOLUTION
        rewrite = Rewrite.images(task, CHANNELS_LAST) if is_image else product_rewrite(task)
        return rewritten(rewrite, tiles.apply, target)


def _extents(task: Task) -> tuple[tuple[int, ...], int] | Rejected:
    """The result's dimensions, channels last, and the extent of the reduction."""
    if task.kind is LayerKind.CONVOLUTION:
        found = convolution_of(task)
        if found is None:
            return Rejected("not a two-dimensional convolution without groups")
        batches, channels, height, width = found.result.shape
        return (batches, height, width, channels), found.filter.elements // channels
    if task.kind is not LayerKind.CONTRACTION:
        return Rejected("neither a convolution nor a matrix product")
    shape = product_shape(task)
    if isinstance(shape, Rejected):
        return shape
    if shape.rows is None:
        return Rejected("a product with a single row")
    if shape.shares_lhs:
        return Rejected("one LHS is multiplied by several matrices")
    return (*shape.batches, shape.rows, shape.columns), shape.depth


def _tiles(result: Sequence[int], parts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Parts of the last dimensions that a workgroup and a thread compute; all divide the extents."""
    *outer, width, channels = result
    columns = _largest_divisor(width, _COLUMNS)
    for part, across in itertools.product(parts, _ACROSS):
        if channels % (part * across):
            continue
        along = _largest_divisor(width // columns, _MOST_THREADS // across)
        rows = [_largest_divisor(each, _MOST_THREADS // (across * along)) for each in outer]
        if math.prod((*rows, along, across)) % _WARP == 0:
            yield (*rows, along * columns, across * part), (*(1 for _ in rows), columns, part)


def _fits(group: Sequence[int]) -> bool:
    """Whether a step of both operands fits the shared memory of a workgroup."""
    return (math.prod(group[:-1]) + group[-1]) * _DEPTH * _BYTES <= _SHARED_BYTES


def _largest_divisor(extent: int, most: int) -> int:
    return next(each for each in range(min(extent, most), 0, -1) if extent % each == 0)


@dataclass(frozen=True)
class _Tiles:
    workgroup: tuple[int, ...]
    thread: tuple[int, ...]

    def apply(self, rewrite: Rewrite) -> None:
        """Move a layer's root, its initial value and the ops after it to a region, and tell IREE how to tile it.

        Raises:
            ValueError: if it is not such a layer.
        """
        with rewrite.module.context as context, ir.Location.unknown(context):
            simplify_initial(rewrite.root)
            chain = rewrite.chain
            rank = ir.RankedTensorType(chain.result.type).rank
            is_convolution = len(loop_sizes(rewrite.root)) > rank + 1
            rewrite.root.attributes["compilation_info"] = ir.Attribute.parse(self._configuration(rank, is_convolution))
            enclose(chain.ops, chain.result)

    def _configuration(self, rank: int, is_convolution: bool) -> str:
        """``compilation_info``; a convolution's reductions are one loop once it is a matrix product."""
        ones = [1] * (rank - len(self.workgroup))
        threads = math.prod(group // own for group, own in zip(self.workgroup, self.thread, strict=True))
        tiles = {
            "promote_operands": [0, 1],
            "reduction": [*([0] * rank), _DEPTH],
            "thread": [*ones, *self.thread, 0],
            "workgroup": [*ones, *self.workgroup, 0],
        }
        listed = ", ".join(f"{name} = {sizes}" for name, sizes in tiles.items())
        implicit = str(is_convolution).lower()
        return (
            f"#iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{{{listed}}}>, "
            "translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> "
            f"workgroup_size = [{threads}, 1, 1] subgroup_size = {_WARP}, {{gpu_pipeline_options = "
            "#iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, "
            f"use_igemm_convolution = {implicit}>}}>>"
        )
