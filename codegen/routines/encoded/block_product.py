"""Matrix products by weights in blocks of small integers, by our own kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import QUANTISED, schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.block_dots import BlockDots
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.kernels.encoded.packed_blocks import WORD_BITS, PackedBlocks
from sartor.codegen.kernels.encoded.rounded_rows import RoundedRows
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts, build_kernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.partition import largest_range, long_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine

# Vectors of a panel. One row needs no more than hide latencies; with more rows, each word that is decoded should serve
# as many as the registers hold.
_WIDTHS_OF_ROW = (4, 2, 8, 1)
_WIDTHS = (4, 2, 1)
_MOST_ROWS = 8
# Registers of a tile beside sums: for each vector a scale, words and an element, or words and codes in bytes; and the
# table of codes, and a number of a row. Totals of integer sums are needed at the end of a block only.
_OF_VECTOR, _OF_VECTOR_IN_BYTES, _OTHERS = 3, 2, 2


@dataclass(frozen=True)
class _BlockRoutine(ABC):
    """A kernel of products by weights in blocks of integers.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str

    @abstractmethod
    def refusal(self, weight: EncodedWeight, machine: Machine) -> Rejected | None:
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
        machine, shape = kernel_machine(weight.plain, target), product_shape(weight.plain)
        if isinstance(machine, Rejected):
            return machine
        if isinstance(shape, Rejected):
            return shape
        refusal = self.refusal(weight, machine)
        return refusal or [tiling.parameters() for tiling in self.tilings(shape, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a product.

        Raises:
            ValueError: if there is no kernel for the layer.
        """
        weight = encoded_weight(task)
        if isinstance(weight, Rejected):
            raise ValueError(weight.reason)
        machine, rewrite = kernel_machine(weight.plain, target), product_rewrite(weight.plain)
        if isinstance(machine, Rejected) or isinstance(rewrite, Rejected):
            raise ValueError("not a matrix product for kernels")
        refusal = self.refusal(weight, machine)
        if refusal is not None:
            raise ValueError(refusal.reason)
        with rewrite.module.context:
            product = ProductLayer.of(rewrite, machine.lanes)
            parts = self.parts(EncodedProduct.of(product, weight, len(task.inputs), Tiling.of(parameters)))
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
    """

    nest: Nest
    blocks: PackedBlocks
    image: ImageStrides
    columns: int
    memories: tuple[int, ...]

    @staticmethod
    def of(product: ProductLayer, weight: EncodedWeight, inputs: int, tiling: Tiling) -> EncodedProduct:
        """A product, of whose layer ``inputs`` arguments are activations.

        Raises:
            ValueError: if the layer cannot be computed so.
        """
        codes = product.weight
        if codes != weight.parts[0] or product.rewrite.packings[codes] != Packing():
            raise ValueError("the layer reshapes its weight in blocks of integers")
        blocks = PackedBlocks(weight.encoding, product.lanes, tiling.vectors)
        for part, packing in zip(weight.parts, blocks.packings(len(weight.parts)), strict=True):
            product.rewrite.set_packing(part, packing.steps)
        columns, lhs = chunk(product.rows, tiling.columns), product.lhs
        loops = (product.batches, *product.axes, product.result, product.epilogue, product.lanes)
        nest = Nest(*loops, product.shape.columns, tiling).joined(columns)
        image = ImageStrides(lhs.batch, columns * lhs.column, lhs.column, lhs.block, lhs.blocks)
        memories = (product.memories[0], *(inputs + part for part in weight.parts))
        return EncodedProduct(nest, blocks, image, columns, memories)


@dataclass(frozen=True)
class BlockProduct(_BlockRoutine):
    """Multiplies f32 by codes, which are decoded in registers."""

    name: str = "block_product"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_product", sizes=Tiling.names())

    def refusal(self, weight: EncodedWeight, machine: Machine) -> Rejected | None:
        return None

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        widths = _WIDTHS_OF_ROW if (shape.rows or 1) == 1 else _WIDTHS
        return _tilings(shape, machine, widths, _OF_VECTOR)

    def parts(self, product: EncodedProduct) -> KernelParts:
        return KernelParts(BlockContraction(product.nest, product.blocks, product.image, product.memories))


@dataclass(frozen=True)
class BlockDotProduct(_BlockRoutine):
    """Rounds rows to 8 bits, block by block, and multiplies them by codes.

    Every workgroup rounds the rows that it reads.

    Attributes:
        storage: the type that the kernel computes in; activations and the result have the model's.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    name: str = "block_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        return Traits(
            family="block_dots",
            precision=QUANTISED,
            instruction=self.element,
            converts=True,
            scales_rows=True,
            sizes=Tiling.names(),
        )

    def refusal(self, weight: EncodedWeight, machine: Machine) -> Rejected | None:
        if machine.lanes % (WORD_BITS // weight.encoding.bits):
            return Rejected("a vector holds fewer numbers than a word has codes")
        return self.element.refusal(machine)

    def tilings(self, shape: MatmulShape, machine: Machine) -> list[Tiling]:
        widths = _WIDTHS_OF_ROW if (shape.rows or 1) == 1 else _WIDTHS
        return _tilings(shape, machine, widths, _OF_VECTOR_IN_BYTES)

    def parts(self, product: EncodedProduct) -> KernelParts:
        nest = product.nest
        most = largest_range(nest.rows.output, nest.groups[0]) * product.columns
        rows = RoundedRows(product.blocks, product.image, product.columns, most)
        code = BlockDots(nest, product.blocks, rows, product.memories, self.element)
        return KernelParts(code, code.workspace, product.memories[0])


def _tilings(shape: MatmulShape, machine: Machine, widths: Sequence[int], of_vector: int) -> list[Tiling]:
    """Sizes worth trying, best guess first.

    Args:
        shape: of the product.
        machine: the CPU.
        widths: vectors of a panel.
        of_vector: registers for each vector of a panel beside sums.
    """
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    found = []
    for wide in widths:
        if wide > vectors and wide > 1:
            continue
        free = machine.registers - _OTHERS - of_vector * wide
        most = 1 if rows == 1 else min(rows, _MOST_ROWS, max(1, free // wide))
        tile = -(-rows // -(-rows // most))
        panels = -(-vectors // wide)
        found.append(Tiling(1, tile, wide, 1, long_workgroups(panels, machine.threads), 1))
    return list(dict.fromkeys(found))
