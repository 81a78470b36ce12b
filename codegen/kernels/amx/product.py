"""Matrix products for AMX."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.amx.emitter import TileKernel
from sartor.codegen.kernels.amx.interleaving import Interleaving
from sartor.codegen.kernels.amx.packing import pack_matrix
from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.isa.amx import TileElement
from sartor.codegen.kernels.isa.multipliers import check_sums
from sartor.codegen.kernels.layers.product_layer import ProductLayer


def tile_product(layer: ProductLayer, tiling: TileTiling, element: TileElement) -> TileKernel:
    """The kernel of a product with AMX; an RHS that is a weight is packed into tiles, others are interleaved.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    depth = layer.shape.depth
    check_sums(depth, is_quantised=element.is_quantised)
    interleaving = None
    if layer.is_by_weight:
        filters = TensorType((depth, layer.shape.columns), element.dtype)
        layer.rewrite.extend_packing(layer.weight, pack_matrix(filters, tiling, layer.lanes, element))
    else:
        interleaving = _interleaving(layer, tiling, element)
    # An LHS that is a weight is stored in f32, so it has to be copied to the type that AMX reads.
    is_weight = layer.memories[0] >= len(layer.rewrite.task.inputs)
    rows, columns = layer.axes
    return TileKernel(
        batches=layer.batches,
        channels=layer.shape.columns,
        input_channels=depth,
        rows=rows,
        columns=columns,
        image=layer.lhs,
        memories=layer.memories,
        result=layer.result,
        epilogue=layer.epilogue,
        lanes=layer.lanes,
        tiling=tiling,
        element=element,
        is_staged=is_weight or depth % tiling.depth != 0,
        interleaving=interleaving,
    )


def _interleaving(layer: ProductLayer, tiling: TileTiling, element: TileElement) -> Interleaving:
    """How an RHS that is no weight is copied.

    Raises:
        RejectionError: if its columns are not adjacent, or integers are multiplied, or too few rows read the copy.
    """
    if element.is_quantised:
        raise RejectionError("integers are multiplied by weights only")
    if layer.rows == 1:
        raise RejectionError("a single row does not justify a copy of the RHS")
    batch, row = layer.rhs_strides()
    return Interleaving(batch, row, layer.shape.depth, element.group, layer.lanes, tiling)
