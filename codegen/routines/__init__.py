"""The list of all routines, candidate 0 first, and selections from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.kernels.isa.amx import INTEGER
from sartor.codegen.kernels.isa.byte_pairs import BYTE_PAIRS
from sartor.codegen.kernels.isa.half_pairs import HALF_PAIRS
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.kernels.isa.pairs import PAIRS
from sartor.codegen.kernels.isa.small_pairs import SMALL_PAIRS
from sartor.codegen.kernels.isa.word_sums import PAIR_SUMS
from sartor.codegen.routines.amx.tile_convolution import TileConvolution
from sartor.codegen.routines.amx.tile_product import TileProduct
from sartor.codegen.routines.cuda.attention import AttentionKernel
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.codegen.routines.cuda.iree_implicit import IreeImplicit
from sartor.codegen.routines.cuda.separable import TensorSeparable
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from sartor.codegen.routines.cuda.warp_rows import WarpRow
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct, BlockWordProduct
from sartor.codegen.routines.encoded.looked_up_columns import LookedUpColumns
from sartor.codegen.routines.encoded.looked_up_tables import LookedUpTables
from sartor.codegen.routines.encoded.narrowed_product import NarrowedProduct
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.data_tiled import DataTiled
from sartor.codegen.routines.iree.im2col import Im2col
from sartor.codegen.routines.iree.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree.stored import Stored
from sartor.codegen.routines.iree.transposed import Transposed
from sartor.codegen.routines.iree.view import View
from sartor.codegen.routines.iree_tiled.blocked import Blocked
from sartor.codegen.routines.iree_tiled.cooperative import CooperativePatches, CooperativeProduct
from sartor.codegen.routines.iree_tiled.region import RegionConvolution
from sartor.codegen.routines.iree_tiled.tiled import TiledConvolution
from sartor.codegen.routines.iree_tiled.tiled_depthwise import TiledDepthwise
from sartor.codegen.routines.iree_tiled.tiled_matmul import TiledMatmul
from sartor.codegen.routines.iree_tiled.winograd import Winograd
from sartor.codegen.routines.open_sizes.attention import OpenAttentionKernel
from sartor.codegen.routines.open_sizes.blocked_attention import BlockedAttentionKernel
from sartor.codegen.routines.open_sizes.convolution import OpenConvolutionKernel
from sartor.codegen.routines.open_sizes.patches import OpenPatchesKernel
from sartor.codegen.routines.open_sizes.window import OpenWindowKernel
from sartor.codegen.routines.storing.elementwise import ElementwiseImages
from sartor.codegen.routines.storing.half import Half
from sartor.codegen.routines.storing.integers import IntegerFactor, IntegerResult, WholeKernelResult
from sartor.codegen.routines.storing.table import TableLookUp
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd, SubgroupWinograd, WordPairWinograd
from sartor.codegen.routines.vector.join import Join, JoinEnlarged, JoinSlices
from sartor.codegen.routines.vector.neon_dots import NEON_BFLOAT_DOTS, NEON_DOTS, SDOT
from sartor.codegen.routines.vector.product import Product, RowScaledProduct
from sartor.codegen.routines.vector.recurrent import Recurrent
from sartor.codegen.routines.vector.rowwise import Rowwise
from sartor.codegen.routines.vector.separable import FusedSeparable
from sartor.codegen.routines.vector.single import FewChannels, SingleChannel
from sartor.codegen.routines.vector.window import SlidingWindow
from sartor.codegen.routines.widened.pairs import WORD_PAIR_ROUTINES

_VULKAN, _CUDA = ("vulkan",), ("cuda",)

ROUTINES: tuple[Routine, ...] = (
    Stock(),
    # Kernels of our own.
    Direct(),
    Direct("direct_blocked", blocked=True),
    Product(),
    # The same by filters in fewer bytes, which are widened where they are read.
    Direct("direct_by_f16", weights="f16"),
    Direct("direct_by_f16_blocked", blocked=True, weights="f16"),
    Product("product_by_f16", weights="f16"),
    Direct("direct_by_bf16", weights="bf16"),
    Direct("direct_by_bf16_blocked", blocked=True, weights="bf16"),
    Product("product_by_bf16", weights="bf16"),
    Direct("direct_pairs", element=PAIRS),
    Product("product_pairs", element=PAIRS),
    SlidingWindow(),
    SlidingWindow("window_blocked", blocked=True),
    SingleChannel(),
    SingleChannel("single_blocked", blocked=True),
    SingleChannel("single_planes", by_planes=True),
    FewChannels(),
    FewChannels("few_blocked", blocked=True),
    FewChannels("few_planes", by_planes=True),
    FusedWinograd(),
    FusedWinograd("fused_winograd_blocked", blocked=True),
    # The same by filters as the model has them.
    FusedWinograd("transforming_winograd", transforms_filters=True),
    FusedWinograd("transforming_winograd_blocked", blocked=True, transforms_filters=True),
    SubgroupWinograd(),
    Join(),
    Join("join_blocked", blocked=True),
    JoinSlices(),
    JoinSlices("join_slices_blocked", blocked=True),
    JoinEnlarged(),
    JoinEnlarged("join_enlarged_blocked", blocked=True),
    Rowwise(),
    Recurrent(),
    OpenWindowKernel(),
    OpenPatchesKernel(),
    # By weights in blocks of integers.
    BlockProduct(),
    BlockPanels(),
    BlockWordProduct(),
    BlockWordProduct("block_word_pairs", element=PAIR_SUMS),
    *(LookedUpColumns(vectors) for vectors in (8, 4, 2, 1)),
    # In tables of floats that are weights of products.
    *(LookedUpTables(vectors) for vectors in (0, 4, 3, 2, 1, 6, 8)),
    # The same for models in f16.
    Half(Direct()),
    Half(Direct("direct_blocked", blocked=True)),
    Half(Product()),
    Half(SlidingWindow()),
    Half(SlidingWindow("window_blocked", blocked=True)),
    Half(SingleChannel()),
    Half(SingleChannel("single_blocked", blocked=True)),
    Half(SingleChannel("single_planes", by_planes=True)),
    Half(FewChannels()),
    Half(FewChannels("few_blocked", blocked=True)),
    Half(FewChannels("few_planes", by_planes=True)),
    Half(FusedWinograd()),
    Half(FusedWinograd("fused_winograd_blocked", blocked=True)),
    Half(Join()),
    Half(Join("join_blocked", blocked=True)),
    Half(JoinSlices()),
    Half(JoinSlices("join_slices_blocked", blocked=True)),
    Half(JoinEnlarged()),
    Half(JoinEnlarged("join_enlarged_blocked", blocked=True)),
    Half(Rowwise()),
    # On GPUs too.
    Half(Direct(storage="f16"), _VULKAN),
    Half(Product(storage="f16"), _VULKAN),
    Half(SlidingWindow(), _VULKAN),
    Half(Join(), _VULKAN),
    Half(Rowwise(), _VULKAN),
    Half(Implicit(storage="f16"), _CUDA),
    Half(ThreadWindows(storage="f16"), _CUDA),
    Half(WarpRow(storage="f16"), _CUDA),
    # Code by IREE, with other layouts, tiles and packed weights than candidate 0.
    TiledConvolution(),
    TiledMatmul(),
    TiledDepthwise(),
    RegionConvolution(),
    RegionConvolution("region_nchw", channels_last=False),
    Winograd(),
    ChannelsLast(),
    Blocked(),
    Im2col(),
    Im2colMatmul(),
    DataTiled(),
    Transposed(),
    View("view_from_last", reads=True),
    View("view_to_last", writes=True),
    View("view_between_last", reads=True, writes=True),
    # Kernels of our own for GPUs.
    Implicit(),
    IreeImplicit(),
    ThreadWindows(),
    WarpRow(),
    # For fused tasks.
    FusedSeparable(),
    FusedSeparable("separable_blocked", blocked=True),
    TensorSeparable(),
    TensorSeparable(arithmetic="tf32"),
    TensorSeparable(storage="bf16"),
    TensorSeparable(storage="f16"),
    OpenAttentionKernel(),
    BlockedAttentionKernel(),
    OpenConvolutionKernel(),
    OpenWindowKernel("fused_open_window", fuses=True),
    AttentionKernel(),
    AttentionKernel(arithmetic="tf32"),
    AttentionKernel(storage="bf16"),
    AttentionKernel(storage="f16"),
    # With products of f32 rounded to TF32.
    Implicit(arithmetic="tf32"),
    # With activations in bf16.
    TileConvolution(),
    TileProduct(),
    Direct("dots", storage="bf16", element=BFLOAT_DOTS),
    Product("dots", storage="bf16", element=BFLOAT_DOTS),
    FusedWinograd("fused_winograd_dots", storage="bf16", element=BFLOAT_DOTS),
    *NEON_BFLOAT_DOTS,
    Implicit(storage="bf16"),
    IreeImplicit(storage="bf16"),
    ThreadWindows(storage="bf16"),
    WarpRow(storage="bf16"),
    FusedWinograd(storage="bf16"),
    Direct(storage="bf16"),
    Product(storage="bf16"),
    Direct("direct_by_bf16", storage="bf16", weights="bf16"),
    Product("product_by_bf16", storage="bf16", weights="bf16"),
    SlidingWindow(storage="bf16"),
    Join(storage="bf16"),
    JoinSlices(storage="bf16"),
    JoinEnlarged(storage="bf16"),
    Rowwise(storage="bf16"),
    Stored(Stock()),
    Stored(ChannelsLast()),
    # With activations in 8 bits.
    Implicit(storage="i8"),
    Implicit("implicit_to_f32", storage="i8", output="f32"),
    ThreadWindows(storage="i8"),
    TileConvolution(storage="i8", element=INTEGER),
    TileConvolution("tiles_of_bf16", output="i8"),
    TileProduct(storage="i8", element=INTEGER),
    TileProduct("tiles_to_f32", storage="i8", element=INTEGER, output="f32"),
    Direct("dots", storage="i8", element=INTEGER_DOTS),
    Product("dots", storage="i8", element=INTEGER_DOTS),
    Product("dots_to_f32", storage="i8", element=INTEGER_DOTS, output="f32"),
    RowScaledProduct(),
    BlockDotProduct(),
    BlockDotProduct("block_byte_pairs", element=BYTE_PAIRS),
    BlockDotProduct("block_neon_dots", element=SDOT),
    # With filters in 8 bits, which are widened where they are read, and all else in the model's own types.
    Direct("direct_by_i8", weights="i8"),
    Direct("direct_by_i8_blocked", blocked=True, weights="i8"),
    Product("product_by_i8", weights="i8"),
    # With weights in blocks of 4 bits, which are decoded where they are read, and all else in the model's own types.
    *(NarrowedProduct(block=block) for block in FOUR_BITS),
    *(NarrowedProduct("panels_by_i4", decodes=True, block=block) for block in FOUR_BITS),
    IntegerFactor(Product("dots", storage="i8", element=INTEGER_DOTS), calibrated=True),
    FusedWinograd("fused_winograd_dots", storage="i8", element=BFLOAT_DOTS),
    FusedWinograd("fused_winograd_bytes", storage="i8", element=INTEGER_DOTS),
    Direct(storage="i8"),
    Product(storage="i8"),
    SlidingWindow(storage="i8"),
    Join(storage="i8"),
    JoinSlices(storage="i8"),
    JoinEnlarged(storage="i8"),
    Rowwise(storage="i8"),
    ElementwiseImages(),
    TableLookUp(),
    Stored(Stock(), "i8"),
    Stored(ChannelsLast(), "i8"),
    *NEON_DOTS,
    WordPairWinograd(),
    Direct("byte_pairs", storage="i8", element=SMALL_PAIRS),
    Product("byte_pairs", storage="i8", element=SMALL_PAIRS),
    Product("byte_pairs_to_f32", storage="i8", element=SMALL_PAIRS, output="f32"),
    *WORD_PAIR_ROUTINES,
    # For models that find quantisation ranges at run time.
    IntegerFactor(TileConvolution(storage="i8", element=INTEGER)),
    IntegerFactor(TileProduct(storage="i8", element=INTEGER)),
    IntegerFactor(Direct("dots", storage="i8", element=INTEGER_DOTS)),
    IntegerFactor(Product("dots", storage="i8", element=INTEGER_DOTS)),
    IntegerFactor(Direct(storage="i8")),
    IntegerFactor(Product(storage="i8")),
    IntegerResult(Stock()),
    IntegerResult(ChannelsLast()),
    WholeKernelResult(Rowwise()),
    # With activations in f16.
    Implicit(storage="f16"),
    IreeImplicit(storage="f16"),
    ThreadWindows(storage="f16"),
    WarpRow(storage="f16"),
    CooperativeProduct(),
    CooperativePatches(),
    Direct("half_pairs", storage="f16", element=HALF_PAIRS),
    Product("half_pairs", storage="f16", element=HALF_PAIRS),
    Direct(storage="f16"),
    Product(storage="f16"),
    Direct("direct_by_f16", storage="f16", weights="f16"),
    Product("product_by_f16", storage="f16", weights="f16"),
    SlidingWindow(storage="f16"),
    Join(storage="f16"),
    JoinSlices(storage="f16"),
    JoinEnlarged(storage="f16"),
    Rowwise(storage="f16"),
    Stored(Stock(), "f16"),
    Stored(ChannelsLast(), "f16"),
)
"""All routines. Their traits tell which models and layers they are for."""

FUSED_ROUTINES: tuple[Routine, ...] = (ROUTINES[0], *(each for each in ROUTINES if each.traits.fuses))
"""Routines for fused tasks, after candidate 0."""

_UNFUSED = tuple(each for each in ROUTINES if not each.traits.fuses)

LOW_PRECISION: Mapping[str, tuple[Routine, ...]] = {
    dtype: tuple(each for each in _UNFUSED if each.traits.precision == dtype)
    for dtype in dict.fromkeys(each.traits.precision for each in _UNFUSED)
    if dtype is not None
}
"""Routines that round to a narrower type what they store or multiply, by that type."""


def routines_for(types: Iterable[str]) -> tuple[Routine, ...]:
    """Routines for tasks that are not fused: those in the model's own types, then those that store in ``types``."""
    own = (each for each in _UNFUSED if each.traits.precision is None)
    return (*own, *(each for dtype in types for each in LOW_PRECISION.get(dtype, ())))
