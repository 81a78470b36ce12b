"""Products and convolutions kept in a dispatch with the tile sizes by which IREE multiplies on GPUs of NVIDIA."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.ir.packing import Round
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.regions.enclosing import enclose
from sartor.codegen.mlir.regions.narrow_operands import narrow_operand, round_result, widen_factors, widen_others
from sartor.codegen.mlir.rewriting.initial import simplify_initial
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# IREE's product of matrices for tensor cores: rows, columns and depth.
_MATRIX = (16, 8, 16)


@dataclass(frozen=True)
class GpuTiling:
    """Tile sizes of the result's last dimensions, of which the others have one element.

    Attributes:
        workgroup: part that a workgroup computes.
        own: part that a thread computes, or matrices of 16x8 that a warp does.
        depth: a step of the reduction, in numbers.
        threads: of a workgroup.
        storage: narrower type whose matrices are multiplied; None for f32, multiplied one by one.
        is_padded: whether the parts exceed the result, so that operands are padded.
    """

    workgroup: tuple[int, ...]
    own: tuple[int, ...]
    depth: int
    threads: int
    storage: str | None = None
    is_padded: bool = False

    def compilation_info(self, rank: int, *, is_convolution: bool) -> str:
        """The attribute that tells IREE of the sizes, for a result of so many dimensions.

        A convolution's reductions are one loop once it is a matrix product.
        """
        tiles = self._thread_tiles(rank) if self.storage is None else self._matrix_tiles(rank, is_convolution)
        listed = ", ".join(name if value is None else f"{name} = {value}" for name, value in tiles.items())
        implicit = str(is_convolution).lower()
        return (
            f"#iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{{{listed}}}>, "
            "translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> "
            f"workgroup_size = [{self.threads}, 1, 1] subgroup_size = {WARP}, {{gpu_pipeline_options = "
            "#iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, "
            f"use_igemm_convolution = {implicit}>}}>>"
        )

    def _thread_tiles(self, rank: int) -> dict[str, object]:
        ones = [1] * (rank - len(self.workgroup))
        return {
            "promote_operands": [0, 1],
            "reduction": [*([0] * rank), self.depth],
            "thread": [*ones, *self.own, 0],
            "workgroup": [*ones, *self.workgroup, 0],
        }

    def _matrix_tiles(self, rank: int, is_convolution: bool) -> dict[str, object]:
        """Sizes in whole matrices; padding is in numbers."""
        ones = [1] * (rank - len(self.workgroup))
        # A batch of products is no dimension of the matrices, and one of images is.
        units = ones if is_convolution else [0] * len(ones)
        whole = [*ones, *self.workgroup]
        padded: dict[str, object] = {}
        if self.is_padded:
            padded = {"padding": [*whole, self.depth]}
            padded |= {"padding_conv": [*whole, 0, 0, 0]} if is_convolution else {}
        extents = "x".join(map(str, _MATRIX))
        kind = f"#iree_gpu.mma_layout<NV_MMA_SYNC_F32_{extents}_{str(self.storage).upper()}>"
        return {
            "convert_acc_gemm": None,
            "mma_kind": kind,
            **padded,
            "promote_operands": [0, 1],
            "reduction": [*([0] * rank), self.depth // _MATRIX[-1]],
            "subgroup": [*units, *self.own, 0],
            "workgroup": [*whole, 0],
        }


def multiply_in_region(rewrite: Rewrite, tiling: GpuTiling) -> None:
    """Move a layer's root, its initial value and the ops after it to one dispatch with tile sizes.

    The function's activations, both factors and the result get the narrower type, if there is one.

    Raises:
        RejectionError: if the layer is not of that form.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        simplify_initial(rewrite.root)
        chain = rewrite.chain
        rank = ir.RankedTensorType(chain.result.type).rank
        before: list[ir.Operation] = []
        after: list[ir.Operation] = []
        if tiling.storage is not None:
            _narrow_operands(rewrite, chain.root, tiling.storage)
            before = widen_others(rewrite, chain, tiling.storage)
            after = round_result(chain, tiling.storage)
        is_convolution = len(loop_sizes(chain.root)) > rank + 1
        text = tiling.compilation_info(rank, is_convolution=is_convolution)
        chain.root.attributes["compilation_info"] = ir.Attribute.parse(text)
        ops = [*before, *chain.ops, *after]
        enclose(ops, ops[-1].results[0])


def _narrow_operands(rewrite: Rewrite, root: ir.Operation, dtype: str) -> None:
    """Give both factors a narrower type, and round those that are weights at compile time.

    Raises:
        RejectionError: if a factor is computed, or used elsewhere.
    """
    for factor in list(root.operands)[:2]:
        source = narrow_operand(factor, dtype)
        weight = rewrite.weight_index(source)
        if weight is not None:
            rewrite.extend_packing(weight, (Round(dtype),))
    widen_factors(root)
