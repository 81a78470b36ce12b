"""Kernels of products by weights in blocks of small integers: what their routines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.ir.block_packing import InBlocks
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.kernels.encoded.packed_blocks import WORD_BYTES, PackedBlocks
from sartor.codegen.kernels.encoded.rounded_rows import RoundedRows, most_integer
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts, build_kernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.partition import largest_range
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.mlir.kernel_machine import CPU_ONLY, kernel_machine
from sartor.codegen.mlir.machine import Machine

_MOST_SUM = (1 << 31) - 1


@dataclass(frozen=True)
class BlockRoutine(ABC):
    """A kernel of products by weights in blocks of integers.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """Facts about all its variants."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that the kernel can be compiled for."""
        return CPU_ONLY

    @abstractmethod
    def refusal(self, weight: EncodedWeight, shape: MatmulShape, machine: Machine) -> Rejected | None:
        """Why the routine does not multiply by a weight; None if it does."""

    @abstractmethod
    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        """Sizes worth trying, best guess first."""

    @abstractmethod
    def parts(self, product: EncodedProduct) -> KernelParts:
        """The kernel."""

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        weight = encoded_weight(task)
        if isinstance(weight, Rejected):
            return weight
        machine = kernel_machine(weight.plain, target, devices=self.devices)
        shape = product_shape(weight.plain)
        if isinstance(machine, Rejected):
            return machine
        if isinstance(shape, Rejected):
            return shape
        if 1 < (shape.rows or 1) <= weight.one_of and not machine.in_subgroups:
            # Rows that are fewer than the parts hardly share one: each reads its own. On a GPU all read all parts.
            shape = replace(shape, rows=1)
        refusal = self.refusal(weight, shape, machine)
        return refusal or [tiling.parameters() for tiling in self.tilings(shape, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a product.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        weight = encoded_weight(task)
        if isinstance(weight, Rejected):
            raise RejectionError(weight.reason)
        machine = kernel_machine(weight.plain, target, devices=self.devices)
        rewrite = product_rewrite(weight.plain)
        if isinstance(machine, Rejected) or isinstance(rewrite, Rejected):
            raise RejectionError("not a matrix product for kernels")
        with rewrite.module.context:
            product = ProductLayer.of(rewrite, machine.lanes)
            refusal = self.refusal(weight, product.shape, machine)
            if refusal is not None:
                raise RejectionError(refusal.reason)
            encoded = EncodedProduct.of(product, weight, len(task.inputs), Tiling.of(parameters))
            # A subgroup of a GPU has no loop whose ends its rows tell.
            parts = self.parts(replace(encoded, one_of=1) if machine.in_subgroups else encoded)
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device)
        return KernelLayer.of(task, rewrite, inputs, output, parts)


@dataclass(frozen=True)
class EncodedProduct:
    """A layer that becomes a kernel; the packings of its weight's parts are set.

    Attributes:
        nest: loops over tiles of the result.
        blocks: the weight in memory.
        image: strides of the LHS, each row a pixel.
        columns: rows of the LHS in a row of the nest.
        memories: positions of the LHS and of the weight's parts among the buffers.
        one_of: of how many equal parts of a row of the LHS at most one is not zero.
    """

    nest: Nest
    blocks: PackedBlocks
    image: ImageStrides
    columns: int
    memories: tuple[int, ...]
    one_of: int = 1

    @staticmethod
    def of(product: ProductLayer, weight: EncodedWeight, inputs: int, tiling: Tiling) -> EncodedProduct:
        """A product, of whose layer ``inputs`` arguments are activations.

        Raises:
            RejectionError: if the layer cannot be computed so.
        """
        codes = product.weight
        if codes != weight.parts[0] or product.rewrite.packings[codes] != Packing():
            raise RejectionError("the layer reshapes its weight in blocks of integers")
        blocks = PackedBlocks(weight.encoding, product.lanes, tiling.vectors)
        for part, packing in zip(weight.parts, blocks.packings(len(weight.parts)), strict=True):
            product.rewrite.set_packing(part, packing.steps)
        encoded = EncodedProduct._by(product, blocks, tuple(inputs + part for part in weight.parts), tiling)
        return replace(encoded, one_of=weight.one_of)

    @staticmethod
    def rounding(product: ProductLayer, bits: int, block: int, tiling: Tiling) -> EncodedProduct:
        """A product by a weight of floats that is rounded to codes when it is packed.

        Raises:
            RejectionError: if the layer cannot be computed so.
        """
        encoding = BlockEncoding(bits, block, product.shape.depth, product.shape.columns)
        blocks = PackedBlocks(encoding, product.lanes, tiling.vectors, has_scales=True)
        product.rewrite.extend_packing(product.weight, (InBlocks(encoding, *blocks.packings(2)),))
        # Codes and scales are in one memory.
        return EncodedProduct._by(product, blocks, (product.memories[1],) * 2, tiling)

    @staticmethod
    def _by(product: ProductLayer, blocks: PackedBlocks, parts: tuple[int, ...], tiling: Tiling) -> EncodedProduct:
        """The product by a weight whose parts are at these positions among the buffers."""
        columns, lhs = chunk(product.rows, tiling.columns), product.lhs
        loops = (product.batches, *product.axes, product.result, product.epilogue, product.lanes)
        nest = Nest(*loops, product.shape.columns, tiling).joined(columns)
        image = ImageStrides(lhs.batch, columns * lhs.column, lhs.column, lhs.block, lhs.blocks)
        return EncodedProduct(nest, blocks, image, columns, (product.memories[0], *parts))

    def rounded_rows(self, element: DotElement) -> RoundedRows:
        """How each workgroup rounds the rows that it multiplies by an instruction."""
        most = largest_range(self.nest.rows.output, self.nest.groups[0]) * self.columns
        return RoundedRows(self.blocks, self.image, self.columns, most, bytes_of(element))


def refused_dots(of: BlockEncoding, element: DotElement, machine: Machine) -> Rejected | None:
    """Why rows that are rounded to an instruction's integers cannot be multiplied by codes; None if they can."""
    if of.bits > element.most_bits:
        return Rejected(f"its codes of {of.bits} bits are too large for the instruction")
    if min(of.block, of.depth) * most_integer(bytes_of(element)) * ((1 << of.bits) - 1) > _MOST_SUM:
        return Rejected(f"sums of {min(of.block, of.depth)} products of a block may exceed 32 bits")
    return element.refusal(machine)


def bytes_of(element: DotElement) -> int:
    """Bytes of an integer of which the instruction multiplies as many as fill a word."""
    return WORD_BYTES // element.group
