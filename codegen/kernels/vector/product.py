"""A matrix product as a contraction: rows of the LHS are pixels, columns of the RHS are channels."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Storage, cut, panel_bytes_beside, stored_as
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.isa.multipliers import DotElement, widening
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.kernels.vector.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.vector.dot_packing import DotPacking, pack_dot_matrix
from sartor.codegen.kernels.vector.filter_scales import scales_of


def product_contraction(
    layer: ProductLayer, tiling: Tiling, element: DotElement | None = None, weights: Storage | None = None
) -> Contraction:
    """The contraction of a product; an RHS that is a weight is packed into panels.

    Args:
        layer: the layer that becomes a kernel.
        tiling: sizes of tiles.
        element: instruction that multiplies groups, if the RHS is a weight; None for single numbers in f32.
        weights: how an RHS that is a weight is stored for sums of f32; None for as it is.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    contraction = unjoined_contraction(layer, tiling, element, weights)
    contraction = contraction.joined(chunk(layer.rows, tiling.columns))
    contraction.check()
    return contraction


def unjoined_contraction(
    layer: ProductLayer, tiling: Tiling, element: DotElement | None, weights: Storage | None
) -> Contraction:
    """As ``product_contraction``, with all rows as the pixels of one row of an image."""
    nest = Nest(layer.batches, *layer.axes, layer.result, layer.epilogue, layer.lanes, layer.shape.columns, tiling)
    packed = None if element is None else _dots(layer, tiling, element)
    filters = _rhs(layer, tiling, weights) if packed is None else packed.strides
    beside = panel_bytes_beside(weights, tiling.vectors * layer.lanes)
    return Contraction(
        nest=nest,
        depth=layer.shape.depth,
        image=layer.lhs,
        filters=filters,
        memories=layer.memories,
        multiplier=widening(weights) if element is None else element.multiplier(),
        meaning=scales_of(weights, filters.panel, beside) if packed is None else packed.meaning,
    )


def _rhs(layer: ProductLayer, tiling: Tiling, weights: Storage | None) -> FilterStrides:
    """Strides of the RHS; packs it if it is a weight, and stores it as ``weights`` says.

    Raises:
        RejectionError: if it is no weight, and it is to be stored so.
    """
    batch, depth = layer.rhs_strides()
    panel = tiling.vectors * layer.lanes
    index = layer.rewrite.weight_index(layer.rewrite.root.operands[1])
    if index is None or batch:
        if weights is not None:
            raise RejectionError("the RHS is not a weight, or there are several products")
        return FilterStrides(batch, panel, 0, 0, depth, layer.lanes, padded=False)
    _pack(layer, index, panel, weights)
    size = layer.shape.depth * panel + panel_bytes_beside(weights, panel)
    return FilterStrides(0, size, 0, 0, panel, layer.lanes, padded=True)


def _pack(layer: ProductLayer, index: int, panel: int, weights: Storage | None) -> None:
    """Pack a weight from ``[K, N]`` to ``[N / panel, K, panel]``, the last panel filled up with zeros."""
    depth, columns = layer.shape.depth, layer.shape.columns
    steps = cut(((depth,), (-(-columns // panel), panel)), (1, 0, 2))
    layer.rewrite.extend_packing(index, stored_as(steps, weights, 1, panel))


def _dots(layer: ProductLayer, tiling: Tiling, element: DotElement) -> DotPacking:
    """Pack the RHS for an instruction that multiplies groups."""
    index = layer.weight
    matrix = TensorType((layer.shape.depth, layer.shape.columns), element.dtype)
    packed = pack_dot_matrix(matrix, tiling.vectors * layer.lanes, layer.lanes, element)
    layer.rewrite.extend_packing(index, packed.packing)
    return packed
