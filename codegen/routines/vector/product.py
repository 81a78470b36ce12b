"""Matrix products by our own kernel: with a weight, of a vector, in batches, in attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape, is_by_weight
from sartor.codegen.ir.layer import F32, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.pairs import DEVICES_OF_PAIRS, PairElement, refused_pairs
from sartor.codegen.kernels.layers.dot_choice import refused, tilings_by, worth_trying
from sartor.codegen.kernels.layers.instruction_traits import dot_traits, rounding_arithmetic, storage_of
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import ProductRoutine
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, shared_by_rows, tilings, with_panels_of_many
from sartor.codegen.kernels.open_sizes.open_row_product import OpenRowProduct, open_row_product
from sartor.codegen.kernels.open_sizes.open_rows import OpenRows, open_rows
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.product import product_contraction
from sartor.codegen.kernels.vector.row_product import RowProduct, row_product
from sartor.codegen.mlir.kernel_machine import CPU_ONLY, devices_storing
from sartor.codegen.mlir.machine import Machine

# Of these shapes of register tiles one workgroup for all rows and panels is tried too.
_WHOLE = 2
# Of any number of rows there is code for each height of a register tile. More sums in all take a GPU's driver too long
# to compile: Mesa ten seconds and more where each has a GELU.
_SUMS_OF_ALL_HEIGHTS = 64


@dataclass(frozen=True)
class Product(ProductRoutine):
    """Matrix product in register tiles, with the RHS in panels and elementwise ops fused.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        element: instruction that multiplies groups; None for single numbers in f32.
        weights: narrower type that filters are stored in and widened from, if single numbers in f32 are multiplied;
            None for f32. They are rounded to it in 8 bits, else only if activations are as well.
    """

    name: str = "product"
    element: DotElement | None = None
    weights: str | None = None

    @property
    def traits(self) -> Traits:
        is_plain = self.element is None and self.weights is None and self.storage is None
        is_integer = self.element is not None and self.element.is_quantised and self.storage == QUANTISED
        traits = dot_traits(super().traits, "product", self.element, self.weights, self.storage)
        return replace(traits, opens=is_plain or is_integer)

    @property
    def arithmetic(self) -> str | None:
        """The type that filters are rounded to while values keep theirs in memory; None if they are not."""
        return rounding_arithmetic(self.weights)

    @property
    def devices(self) -> tuple[str, ...]:
        if isinstance(self.element, PairElement):
            return DEVICES_OF_PAIRS
        is_plain = self.element is None and self.weights is None
        return devices_storing(self.storage) if is_plain else CPU_ONLY

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> list[Tiling] | Rejected:
        refusal = None if self.element is None else self.element.refusal(machine)
        if isinstance(self.element, PairElement):
            refusal = refusal or refused_pairs(machine, self.element, self.storage, shape.depth)
        if self.weights is not None and not is_by_weight(task):
            refusal = Rejected("the RHS is not a weight, or there are several products")
        if refusal is not None:
            return refusal
        depth = shape.depth if self.element is None else -(-shape.depth // self.element.group)
        work = Work(1, shape.rows or 1, shape.columns, depth, positions_join=True).by(self.element)
        usual = worth_trying(tilings_by(self.element, work, machine), machine, self.storage, self.element)
        if task.opened is not None and machine.in_subgroups:
            return list(dict.fromkeys(map(_lower, usual)))
        if task.opened is not None and is_by_weight(task):
            return shared_by_rows(usual, work, machine)
        return with_panels_of_many(usual, work, machine) if (shape.rows or 1) == 1 and is_by_weight(task) else usual

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        depth, is_by_weight = product.shape.depth, product.is_by_weight
        refusal = refused(machine, self.storage, self.element, depth) if is_by_weight else None
        if is_by_weight and product.rewrite.task.opened is None:
            refusal = refusal or refused_pairs(machine, self.element, self.storage, depth)
        if refusal is not None:
            raise RejectionError(refusal.reason)
        tiling, weights = Tiling.of(parameters), storage_of(self.weights, self.storage)
        if product.rewrite.task.opened is not None:
            code: Contraction | OpenRows = open_rows(
                product, product.rewrite.task.opened.fit, tiling, weights, self.element
            )
        else:
            code = product_contraction(product, tiling, self.element, weights)
        return KernelParts(code, factor=code.memories[0])


def _lower(tiling: Tiling) -> Tiling:
    """The tiling with register tiles of so few rows that the tiles of all heights have few sums."""
    most = _SUMS_OF_ALL_HEIGHTS // tiling.vectors
    return replace(tiling, columns=max(rows for rows in range(1, tiling.columns + 1) if rows * (rows + 1) // 2 <= most))


@dataclass(frozen=True)
class RowScaledProduct(ProductRoutine):
    """Product of f32 by a weight in 8 bits; each row of the LHS is quantised by its own range.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS. Every workgroup quantises the
    rows that it reads, so if one thread runs all, one workgroup may be best.

    Attributes:
        element: instruction that multiplies groups of numbers without a sign by signed ones.
    """

    name: str = "row_dots"
    storage: str | None = QUANTISED
    element: DotElement = INTEGER_DOTS

    @property
    def traits(self) -> Traits:
        """Activations and the result have the model's types; 8 bits are used within the kernel only."""
        traits = dot_traits(super().traits, "product", self.element)
        return replace(traits, converts=True, scales_rows=True, opens=True)

    def tilings(self, task: Task, shape: MatmulShape, machine: Machine) -> Sequence[Tiling] | Rejected:
        refusal = self.element.refusal(machine)
        if refusal is not None:
            return refusal
        work = Work(1, shape.rows or 1, shape.columns, -(-shape.depth // self.element.group), positions_join=True)
        offered = tilings(work, machine)
        whole = (
            [replace(tiling, row_groups=1, panel_groups=1) for tiling in offered[:_WHOLE]]
            if machine.threads == 1
            else []
        )
        return list(dict.fromkeys([*whole, *offered]))

    def parts(self, product: ProductLayer, parameters: Parameters, machine: Machine) -> KernelParts:
        opened, tiling = product.rewrite.task.opened, Tiling.of(parameters)
        code: RowProduct | OpenRowProduct
        if opened is None:
            code = row_product(product, tiling, self.element)
        else:
            code = open_row_product(product, opened.fit, tiling, self.element)
        return KernelParts(code, code.workspace, code.lhs)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a product.

        Raises:
            RejectionError: if there is none.
        """
        if not all(tensor.is_f32 for tensor in (*task.inputs, *task.results)):
            raise RejectionError("it does not compute in f32")
        layer = super().layer(task, parameters, target)
        inputs = tuple(schema.stored_as(F32) for schema in layer.inputs)
        return replace(layer, inputs=inputs, output=layer.output.stored_as(F32))
