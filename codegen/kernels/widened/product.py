"""Matrix products by a weight whose LHS is widened strip by strip."""

from __future__ import annotations

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.kernels.isa.word_pairs import WordPairElement
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.widened.packing import pack_pair_matrix
from sartor.codegen.kernels.widened.rows import WidenedRows
from sartor.codegen.kernels.widened.sequence import sequence_strips
from sartor.codegen.kernels.widened.strips import SCRATCH, WidenedStrips
from sartor.codegen.kernels.widened.tilings import StripTiling, StripWork


def product_strips(layer: ProductLayer, tiling: StripTiling, element: WordPairElement) -> WidenedStrips:
    """The kernel of a product; sets the packing of its weight.

    Args:
        layer: the layer that becomes a kernel.
        tiling: sizes of strips and tiles.
        element: the instruction.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    weight, shape, lanes = layer.weight, layer.shape, layer.lanes
    matrix = TensorType((shape.depth, shape.columns), element.dtype)
    packed = pack_pair_matrix(matrix, tiling.vectors * lanes, lanes, element)
    layer.rewrite.extend_packing(weight, packed.packing)
    lhs, filters = layer.memories
    rows = WidenedRows(layer.axes[0], layer.rows, shape.depth, layer.lhs)
    contraction = Contraction(
        nest=Nest(
            layer.batches,
            *layer.axes,
            layer.result,
            layer.epilogue,
            lanes,
            shape.columns,
            tiling.tiling,
            loads_early=True,
        ),
        depth=rows.depth,
        image=rows.strides,
        filters=packed.strides,
        memories=(SCRATCH, filters),
        multiplier=element.multiplier(),
        meaning=packed.meaning,
    )
    contraction.check()
    return sequence_strips(contraction, rows, lhs, tiling.band)


def product_work(shape: MatmulShape) -> StripWork:
    """What is cut into strips, for a product."""
    rows, pairs = shape.rows or 1, -(-shape.depth // 2)
    return StripWork(rows, rows, shape.columns, pairs, True, lambda band: band * 2 * pairs)
