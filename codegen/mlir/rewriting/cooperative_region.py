"""Products kept in a dispatch with the tile sizes by which IREE multiplies cooperative matrices of f16."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.element_types import conversion_function
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps
from sartor.codegen.mlir.rewriting.chain import Chain
from sartor.codegen.mlir.rewriting.enclosing import enclose
from sartor.codegen.mlir.rewriting.initial import simplify_initial
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

HALF = "f16"
SIDE = 16
"""Extents of the matrices that a subgroup multiplies."""

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})
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


def multiply_in_region(rewrite: Rewrite, tiling: CooperativeTiling) -> None:
    """Replace a product, its initial value and the ops after it by one dispatch of operands and results in f16.

    The function's activations, the RHS and the result get that type; other weights keep theirs.

    Raises:
        ValueError: if the layer is not of that form.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        simplify_initial(rewrite.root)
        chain = rewrite.chain
        if tuple(str(each) for each in indexing_maps(chain.root)) != _ORDER:
            raise ValueError("the LHS is not stored by rows")
        for operand in list(chain.root.operands)[:2]:
            _narrow(operand)
        widened = _widen_others(rewrite, chain)
        rounded = _round_result(chain)
        product = _named(chain, tiling)
        first = () if chain.initial is None else (chain.initial,)
        enclose([*widened, *first, *product, *chain.followers, *rounded], rounded[-1].results[0])


def _narrow(value: ir.Value) -> None:
    """Change a value, of which there is one use, and what it is a reshape of to f16.

    Raises:
        ValueError: if it is used elsewhere, or computed.
    """
    if len(list(value.uses)) != 1:
        raise ValueError("an operand has other uses")
    op = defining_op(value)
    if op is not None and op.name not in _RESHAPES:
        raise ValueError("an operand is computed in the layer")
    value.set_type(ir.Type.parse(tensor_type(tensor_parts(value)[0], HALF)))
    if op is not None:
        _narrow(op.operands[0])


def _widen_others(rewrite: Rewrite, chain: Chain) -> list[ir.Operation]:
    """Ops that widen the activations that elementwise ops read, as a residual is."""
    arguments = list(body_of(rewrite.function).arguments)[: len(rewrite.task.inputs)]
    made: list[ir.Operation] = []
    for follower in chain.followers:
        for position, operand in enumerate(follower.operands):
            source = operand
            while (op := defining_op(source)) is not None and op.name in _RESHAPES:
                source = op.operands[0]
            if source not in arguments:
                continue
            wide = TensorType.parse(str(operand.type))
            _narrow(operand)
            ops = _inserted(operand, wide, ir.InsertionPoint(chain.ops[0]))
            follower.operands[position] = ops[-1].results[0]
            made += ops
    return made


def _round_result(chain: Chain) -> list[ir.Operation]:
    """Ops that round the result to f16; what returns it, perhaps reshaped, gets that type."""
    result = chain.result
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    block = [view.operation for view in chain.root.block.operations]
    point = ir.InsertionPoint(block[block.index(chain.ops[-1]) + 1])
    made = _inserted(result, TensorType(tuple(tensor_parts(result)[0]), HALF), point)
    for owner, number in uses:
        owner.operands[number] = made[-1].results[0]
        while owner.name in _RESHAPES:
            shaped = owner.results[0]
            shaped.set_type(ir.Type.parse(tensor_type(tensor_parts(shaped)[0], HALF)))
            (owner,) = (use.owner.operation for use in shaped.uses)
        if owner.name != "util.return":
            raise ValueError("the product's result is used by other ops")
    return made


def _inserted(value: ir.Value, wanted: TensorType, point: ir.InsertionPoint) -> list[ir.Operation]:
    """Ops that convert a value, the last of which has the result."""
    (found,) = inline(conversion_function(TensorType.parse(str(value.type)), wanted), [value], point)
    last = found.owner.operation if hasattr(found.owner, "operation") else found.owner
    outputs = [defining_op(each) for each in last.operands]
    return [*(each for each in outputs if each is not None and each.name == "tensor.empty"), last]


def _named(chain: Chain, tiling: CooperativeTiling) -> list[ir.Operation]:
    """The named op that replaces the root, with the tile sizes."""
    root = chain.root
    operands = list(root.operands)
    lhs, rhs, start = (str(each.type) for each in operands)
    text = (
        f"util.func private @root(%a: {lhs}, %b: {rhs}, %c: {start}) -> {start} {{\n"
        f"%r = linalg.matmul {{compilation_info = {tiling.compilation_info}}} "
        f"ins(%a, %b : {lhs}, {rhs}) outs(%c : {start}) -> {start}\nutil.return %r : {start}\n}}"
    )
    (product,) = inline(text, operands, ir.InsertionPoint(root))
    root.results[0].replace_all_uses_with(product)
    root.erase()
    return [product.owner]
