"""Products kept in a dispatch with the tile sizes by which IREE multiplies cooperative matrices of f16."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import F16
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import indexing_maps
from sartor.codegen.mlir.regions.enclosing import enclose
from sartor.codegen.mlir.regions.narrow_operands import narrow_operand, round_result, widen_others
from sartor.codegen.mlir.regions.padded_rows import pad_rows
from sartor.codegen.mlir.rewriting.chain import Chain
from sartor.codegen.mlir.rewriting.initial import simplify_initial
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts

SIDE = 16
"""Extents of the matrices that a subgroup multiplies."""

_ORDER = ("(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)")


@dataclass(frozen=True)
class CooperativeTiling:
    """Tile sizes of a product.

    Attributes:
        workgroup: rows and columns of a workgroup.
        subgroup: rows and columns of one of its subgroups.
        depth: a step of the reduction.
        lanes: invocations of a subgroup.
    """

    workgroup: tuple[int, int]
    subgroup: tuple[int, int]
    depth: int
    lanes: int

    @property
    def compilation_info(self) -> str:
        """The attribute that tells IREE of the sizes."""
        rows, columns = (whole // part for whole, part in zip(self.workgroup, self.subgroup, strict=True))
        tiles = [list(self.workgroup), list(self.subgroup), [0, 0, self.depth], [SIDE] * 3]
        return (
            f"#iree_codegen.compilation_info<lowering_config = #iree_codegen.lowering_config<tile_sizes = {tiles}>, "
            "translation_info = #iree_codegen.translation_info<pipeline = "
            "#iree_gpu.spirv_pipeline<CooperativeMatrixVectorize> "
            f"workgroup_size = [{columns * self.lanes}, {rows}, 1] subgroup_size = {self.lanes}, "
            "{pipeline_depth = 1 : i64, store_stage = 0 : i64}>>"
        )


def in_whole_tiles(rows: int, tile: int) -> int:
    """Rows that workgroups of ``tile`` rows multiply where there are ``rows``."""
    return -(-rows // tile) * tile


def multiply_in_region(rewrite: Rewrite, tiling: CooperativeTiling) -> None:
    """Replace a product, its initial value and the ops after it by one dispatch of operands and results in f16.

    The function's activations, the RHS and the result get that type; other weights keep theirs. Where tiles do not
    divide the rows, operands are filled up with zeros, and the result's leading rows are taken outside of the dispatch.

    Raises:
        RejectionError: if the layer is not of that form.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        simplify_initial(rewrite.root)
        if tuple(str(indexing_map) for indexing_map in indexing_maps(rewrite.root)) != _ORDER:
            raise RejectionError("the LHS is not stored by rows")
        rows = tensor_parts(rewrite.root.results[0])[0][0]
        if (padded := in_whole_tiles(rows, tiling.workgroup[0])) != rows:
            pad_rows(rewrite, padded)
        chain = rewrite.chain
        for operand in list(chain.root.operands)[:2]:
            narrow_operand(operand, F16)
        widened = widen_others(rewrite, chain, F16)
        rounded = round_result(chain, F16)
        product = _named(chain, tiling)
        first = () if chain.initial is None else (chain.initial,)
        enclose([*widened, *first, *product, *chain.followers, *rounded], rounded[-1].results[0])


def _named(chain: Chain, tiling: CooperativeTiling) -> list[ir.Operation]:
    """The named op that replaces the root, with the tile sizes."""
    root = chain.root
    operands = list(root.operands)
    lhs, rhs, start = (str(operand.type) for operand in operands)
    text = (
        f"util.func private @root(%a: {lhs}, %b: {rhs}, %c: {start}) -> {start} {{\n"
        f"%r = linalg.matmul {{compilation_info = {tiling.compilation_info}}} "
        f"ins(%a, %b : {lhs}, {rhs}) outs(%c : {start}) -> {start}\nutil.return %r : {start}\n}}"
    )
    (product,) = inline(text, operands, ir.InsertionPoint(root))
    root.results[0].replace_all_uses_with(product)
    root.erase()
    return [product.owner]
