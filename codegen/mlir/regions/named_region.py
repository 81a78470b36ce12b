"""Convolutions kept as named ops in a dispatch, with the tile sizes that IREE's code generator for Vulkan is to use.

At batch 1 IREE folds unit dimensions before it forms dispatches. What is left of a convolution is no named op, and its
code generator computes one number per invocation then. A dispatch that is formed already keeps the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, remap, used_values
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline

_PIPELINE = "BaseVectorize"
# Values that each dispatch has to compute itself, or they would be read from memory.
_OWN = ("arith.constant", "tensor.empty")


@dataclass(frozen=True)
class RegionTiling:
    """Tile sizes of a convolution's loops.

    Attributes:
        workgroup: for each dimension of the result what a workgroup computes; 0 for a batch of one.
        invocation: what an invocation computes of it.
        reduction: step of each reduction loop.
        height: position of the rows among the loops, which IREE takes one by one.
    """

    workgroup: tuple[int, ...]
    invocation: tuple[int, ...]
    reduction: tuple[int, ...]
    height: int

    @property
    def invocations(self) -> tuple[int, int, int]:
        """Number of invocations of a workgroup in each dimension, the last one of the result first."""
        _, *spatial = (whole // max(part, 1) for whole, part in zip(self.workgroup, self.invocation, strict=True))
        z, y, x = spatial
        return x, y, z

    @property
    def compilation_info(self) -> str:
        """The attribute that tells IREE of the sizes."""
        zeros = [0] * len(self.workgroup)
        rows = [int(index == self.height) for index in range(len(self.workgroup))]
        tiles = [list(self.workgroup), list(self.invocation), [*zeros, *self.reduction], rows]
        return (
            f"#iree_codegen.compilation_info<lowering_config = #iree_codegen.lowering_config<tile_sizes = {tiles}>, "
            f"translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.spirv_pipeline<{_PIPELINE}> "
            f"workgroup_size = {list(self.invocations)}>>"
        )


@dataclass(frozen=True)
class NamedConvolution:
    """A convolution as IREE's named op.

    Attributes:
        name: of the op.
        strides: along H and W.
        dilations: along H and W.
    """

    name: str
    strides: tuple[int, int]
    dilations: tuple[int, int]

    def text(self, operands: Sequence[ir.Value], info: str) -> str:
        """A function of image, filters and initial value that returns the op's result."""
        image, filters, start = (str(operand.type) for operand in operands)
        pairs = {"dilations": self.dilations, "strides": self.strides}
        attributes = ", ".join(f"{name} = dense<{list(pair)}> : vector<2xi64>" for name, pair in pairs.items())
        return (
            f"util.func private @root(%a: {image}, %b: {filters}, %c: {start}) -> {start} {{\n"
            f"%r = linalg.{self.name} {{compilation_info = {info}, {attributes}}} "
            f"ins(%a, %b : {image}, {filters}) outs(%c : {start}) -> {start}\n"
            f"util.return %r : {start}\n}}"
        )


def keep_in_region(rewrite: Rewrite, convolution: NamedConvolution, tiling: RegionTiling) -> None:
    """Replace a layer's root, its initial value and the ops after it by one dispatch with a named op.

    Raises:
        RejectionError: if the layer is not of that form.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        chain = rewrite.chain
        block = [view.operation for view in chain.root.block.operations]
        point = ir.InsertionPoint(block[block.index(chain.ops[-1]) + 1])
        (result,) = inline(_region(str(chain.result.type)), [], point)
        terminator = list(body_of(result.owner.operation).operations)[-1].operation
        mapping: dict[ir.Value, ir.Value] = {}
        for op in chain.ops:
            _bring_along(op, mapping, ir.InsertionPoint(terminator))
            if op == chain.root:
                operands = [mapping.get(operand, operand) for operand in op.operands]
                text = convolution.text(operands, tiling.compilation_info)
                (mapping[op.results[0]],) = inline(text, operands, ir.InsertionPoint(terminator))
            else:
                clone = op.clone(ip=ir.InsertionPoint(terminator))
                remap(clone, mapping)
                mapping[op.results[0]] = clone.results[0]
        terminator.operands[0] = mapping[chain.result]
        chain.result.replace_all_uses_with(result)
        for op in reversed(chain.ops):
            op.erase()


def _region(kind: str) -> str:
    """A function that returns the result of a dispatch, which computes nothing yet."""
    return (
        f"util.func private @region() -> {kind} {{\n%r = flow.dispatch.region -> ({kind}) {{\n"
        f"%e = tensor.empty() : {kind}\nflow.return %e : {kind}\n}}\nutil.return %r : {kind}\n}}"
    )


def _bring_along(op: ir.Operation, mapping: dict[ir.Value, ir.Value], point: ir.InsertionPoint) -> None:
    """Compute constants and empty tensors that ``op`` uses at ``point`` too."""
    for value in used_values(op):
        source = defining_op(value)
        if value not in mapping and source is not None and source.name in _OWN:
            mapping[value] = source.clone(ip=point).results[0]
