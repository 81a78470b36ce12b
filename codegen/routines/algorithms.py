"""The algorithms of routines, whatever the format, each with the reason why it has no more formats."""

from __future__ import annotations

from collections.abc import Callable

from sartor.codegen.ir.variants.formats import Algorithm, Format, Layout, Work, alone, kernel
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.kernels.isa.multipliers import DotElement
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
from sartor.codegen.routines.encoded.narrowed_product import NarrowedProduct, NarrowedWordProduct
from sartor.codegen.routines.formats import (
    FROM_LAST,
    I8_DOTS,
    PLANES,
    ROUNDED_BLOCKS,
    ROUNDED_PAIR_BLOCKS,
    ROUNDED_WORD_BLOCKS,
    TO_LAST,
)
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree.transposed import Transposed
from sartor.codegen.routines.iree.view import View
from sartor.codegen.routines.iree_tiled.blocked import Blocked
from sartor.codegen.routines.iree_tiled.cooperative import CooperativePatches, CooperativeProduct
from sartor.codegen.routines.iree_tiled.region import RegionConvolution
from sartor.codegen.routines.iree_tiled.tiled_matmul import TiledMatmul
from sartor.codegen.routines.iree_tiled.winograd import Winograd
from sartor.codegen.routines.open_sizes.attention import OpenAttentionKernel
from sartor.codegen.routines.open_sizes.blocked_attention import BlockedAttentionKernel
from sartor.codegen.routines.open_sizes.convolution import OpenConvolutionKernel
from sartor.codegen.routines.open_sizes.join import OpenJoinKernel
from sartor.codegen.routines.open_sizes.joined_product import OpenJoinedProduct
from sartor.codegen.routines.open_sizes.patches import OpenPatchesKernel
from sartor.codegen.routines.open_sizes.separable import OpenSeparableKernel
from sartor.codegen.routines.open_sizes.strips import OpenStripsKernel
from sartor.codegen.routines.open_sizes.transpose import OpenTransposeKernel
from sartor.codegen.routines.open_sizes.versions import OpenVersions
from sartor.codegen.routines.open_sizes.window import OpenWindowKernel
from sartor.codegen.routines.open_sizes.winograd import SMALL_SIDES, OpenWinogradKernel
from sartor.codegen.routines.storing.elementwise import ElementwiseImages
from sartor.codegen.routines.storing.table import TableLookUp
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd, SubgroupWinograd, WordPairWinograd
from sartor.codegen.routines.vector.join import Join, JoinEnlarged, JoinSlices
from sartor.codegen.routines.vector.neon_dots import NeonDots
from sartor.codegen.routines.vector.product import Product, RowScaledProduct
from sartor.codegen.routines.vector.recurrent import Recurrent
from sartor.codegen.routines.vector.rowwise import Rowwise
from sartor.codegen.routines.vector.separable import FusedSeparable
from sartor.codegen.routines.vector.single import FewChannels, SingleChannel
from sartor.codegen.routines.vector.window import ConvertedWindow, PairedWindow, SlidingWindow
from sartor.codegen.routines.widened.pairs import WordPairConvolution, WordPairProduct
from sartor.devices import CPU, CUDA, VULKAN

_CPU, _VULKAN, _CUDA = (CPU,), (VULKAN,), (CUDA,)
_VECTORS, _EVERYWHERE = (*_CPU, *_VULKAN), (*_CPU, *_VULKAN, *_CUDA)
_BOTH = (Layout.OWN, Layout.BLOCKED)

_BY_IREE = "IREE's code has narrower types by conversions around it alone"
_BASELINE = "not written: it is a lowering in the model's own types, beside kernels"
_FEW = "not written: layers of so few output channels are rare, and take a small part of a network's time"
_OPEN = "not written: sizes that are known only when it runs are computed in f32"
_FUSED = "not written: it gains by what two layers do not store between them, which narrower types shrink"
_ENCODED = "rows have the model's type, or are rounded within the kernel"
_FOLLOWS = "it reads the form that products have chosen for the weight"
_MATRICES = "threads and tensor cores multiply no other types"
_TILES = "AMX multiplies bf16 or 8 bits, in tiles that the kernel fills itself"
_WORDS = "it widens 8 bits to pairs of 16 bits"
_WHOLE = "it is for 8 bits: in floats such a layer is fused, or lowered by IREE"
_TRANSFORMED = (
    "transformed tiles and filters have more digits than images and filters have, and are stored in the kernel's types"
)


def _block_product(name: str, form: Format) -> Routine:
    return BlockProduct() if form.block is None else NarrowedProduct(name, block=form.block)


def _block_panels(name: str, form: Format) -> Routine:
    return BlockPanels() if form.block is None else NarrowedProduct(name, decodes=True, block=form.block)


def _block_words(name: str, form: Format) -> Routine:
    assert isinstance(form.instruction, DotElement)
    if form.block is None:
        return BlockWordProduct(name, element=form.instruction)
    return NarrowedWordProduct(name, block=form.block, element=form.instruction)


def _region(name: str, form: Format) -> Routine:
    return RegionConvolution(name, channels_last=form.layout is Layout.OWN)


def _view(name: str, form: Format) -> Routine:
    return View(name, reads=form is not TO_LAST, writes=form is not FROM_LAST)


def _of_panels(kind: Callable[[int], Routine]) -> Callable[[str, Format], Routine]:
    return lambda _name, form: kind(form.vectors or 0)


def _lowering(
    name: str, kind: Callable[[], Routine], only: str = _BASELINE, devices: tuple[str, ...] = _CPU
) -> Algorithm:
    return Algorithm(name, alone(kind), only, Work.LOWERED, devices=devices)


def _cuda(name: str, kind: Callable[..., Routine], only: str = _MATRICES, work: Work = Work.MULTIPLIES) -> Algorithm:
    return Algorithm(name, kernel(kind), only, work, devices=_CUDA)


# Code by IREE.
STOCK = _lowering("stock", Stock, _BY_IREE, _EVERYWHERE)
CHANNELS_LAST = _lowering("nhwc", ChannelsLast, _BY_IREE, _EVERYWHERE)
TILED_MATMUL = _lowering("tiled product", TiledMatmul)
REGION = Algorithm(
    "region", _region, _BASELINE, Work.LOWERED, (Layout.OWN, Layout.PLANES), _VULKAN, names={PLANES: "region_nchw"}
)
WINOGRAD = _lowering("winograd", Winograd, devices=_EVERYWHERE)
BLOCKED_CHANNELS = _lowering("nchwc", Blocked)
IM2COL_MATMUL = _lowering("im2col_matmul", Im2colMatmul, devices=(*_VULKAN, *_CUDA))
TRANSPOSED = _lowering("transposed", Transposed, devices=_EVERYWHERE)
VIEW = Algorithm("view", _view, "it leaves all numbers where they are, of any type", Work.MOVES, devices=_EVERYWHERE)
COOPERATIVE = _lowering("cooperative", CooperativeProduct, "cooperative matrices multiply f16", _VULKAN)
COOPERATIVE_PATCHES = _lowering("cooperative_patches", CooperativePatches, COOPERATIVE.only, _VULKAN)

# Kernels of convolutions and products in vector registers.
DIRECT = Algorithm("direct", kernel(Direct), layouts=_BOTH, devices=_VECTORS, by_product=True)
PRODUCT = Algorithm("product", kernel(Product), devices=_VECTORS, by_product=True)
SINGLE = Algorithm("single", kernel(SingleChannel), _FEW, layouts=(*_BOTH, Layout.PLANES))
FEW = Algorithm("few", kernel(FewChannels), _FEW, layouts=(*_BOTH, Layout.PLANES))
FUSED_WINOGRAD = Algorithm("fused_winograd", kernel(FusedWinograd), _TRANSFORMED, layouts=_BOTH)
TRANSFORMING_WINOGRAD = Algorithm(
    "transforming_winograd",
    kernel(FusedWinograd, transforms_filters=True),
    "it reads filters as the model has them, in f32",
    layouts=_BOTH,
)
SUBGROUP_WINOGRAD = Algorithm(
    "subgroup_winograd", kernel(SubgroupWinograd), "not written: it was measured in f32", devices=_VULKAN
)
WORD_WINOGRAD = Algorithm("winograd_word_pairs", kernel(WordPairWinograd), _WORDS)
ROW_DOTS = Algorithm(
    "row_dots",
    kernel(RowScaledProduct),
    "it rounds rows of f32 to 8 bits within the kernel",
    names={I8_DOTS: "row_dots"},
)
NEON = Algorithm("neon", kernel(NeonDots), "AArch64 has these instructions for bf16 and 8 bits", by_product=True)
WORD_CONVOLUTION = Algorithm("strips of convolutions", kernel(WordPairConvolution), _WORDS, by_product=True)
WORD_PRODUCT = Algorithm("strips of products", kernel(WordPairProduct), _WORDS, by_product=True)
TILE_CONVOLUTION = Algorithm("tiles of convolutions", kernel(TileConvolution), _TILES, by_product=True)
TILE_PRODUCT = Algorithm("tiles of products", kernel(TileProduct), _TILES, by_product=True)

# By weights in blocks of integers, and look-ups in what such products read.
BLOCK_PRODUCT = Algorithm(
    "block_product",
    _block_product,
    _ENCODED,
    devices=_EVERYWHERE,
    names=dict.fromkeys(ROUNDED_BLOCKS, "product_by_i4"),
)
BLOCK_PANELS = Algorithm("block_panels", _block_panels, _ENCODED, names=dict.fromkeys(ROUNDED_BLOCKS, "panels_by_i4"))
BLOCK_WORDS = Algorithm(
    "block_words",
    _block_words,
    _ENCODED,
    by_product=True,
    names={
        **dict.fromkeys(ROUNDED_WORD_BLOCKS, "words_by_i4"),
        **dict.fromkeys(ROUNDED_PAIR_BLOCKS, "word_pairs_by_i4"),
    },
)
BLOCK_DOTS = Algorithm("block_dots", kernel(BlockDotProduct), _ENCODED, by_product=True)
LOOKED_UP_COLUMNS = Algorithm("look-up of codes", _of_panels(LookedUpColumns), _FOLLOWS, devices=_EVERYWHERE)
LOOKED_UP_TABLES = Algorithm("look-up of floats", _of_panels(LookedUpTables), _FOLLOWS)

# Of other layers.
WINDOW = Algorithm("window", kernel(SlidingWindow), "", Work.WINDOWS, _BOTH, _VECTORS)
CONVERTED_WINDOW = Algorithm(
    "converted_window", kernel(ConvertedWindow), "only 8 bits take several instructions to become f32", Work.WINDOWS
)
WORD_WINDOW = Algorithm("window_word_pairs", kernel(PairedWindow), _WORDS)
JOIN = Algorithm("join", kernel(Join), "", Work.MOVES, _BOTH, _VECTORS)
JOIN_SLICES = Algorithm("join_slices", kernel(JoinSlices), "", Work.MOVES, _BOTH)
JOIN_ENLARGED = Algorithm("join_enlarged", kernel(JoinEnlarged), "", Work.MOVES, _BOTH)
ROWWISE = Algorithm("rowwise", kernel(Rowwise), "", Work.MOVES, devices=_VECTORS)
RECURRENT = Algorithm("recurrent", alone(Recurrent), "not written: rounding adds up over the steps")
ELEMENTWISE = Algorithm("elementwise", kernel(ElementwiseImages), _WHOLE, Work.MOVES)
TABLE = Algorithm("table", kernel(TableLookUp), _WHOLE, Work.MOVES)
SEPARABLE = Algorithm("separable", kernel(FusedSeparable), _FUSED, layouts=_BOTH)

# Of sizes that are known only when it runs.
OPEN_WINDOW = Algorithm("open_window", alone(OpenWindowKernel), _OPEN, Work.WINDOWS)
OPEN_PATCHES = Algorithm("open_patches", alone(OpenPatchesKernel), _OPEN)
OPEN_ATTENTION = Algorithm("open_attention", alone(OpenAttentionKernel), _OPEN)
BLOCKED_ATTENTION = Algorithm("blocked_attention", alone(BlockedAttentionKernel), _OPEN)
OPEN_CONVOLUTION = Algorithm("open_convolution", alone(OpenConvolutionKernel), _OPEN)
OPEN_STRIPS = Algorithm("open_strips", alone(OpenStripsKernel), _OPEN)
OPEN_WINOGRAD = Algorithm("open_winograd", alone(OpenWinogradKernel), _OPEN)
CONVOLUTION_OR_WINOGRAD = Algorithm("convolution_or_winograd", kernel(OpenVersions, few=OpenConvolutionKernel()), _OPEN)
WINOGRAD_BY_SIZE = Algorithm("winograd_by_size", kernel(OpenVersions, few=OpenWinogradKernel(sides=SMALL_SIDES)), _OPEN)
OPEN_TRANSPOSE = Algorithm("open_transpose", alone(OpenTransposeKernel), _OPEN)
OPEN_JOIN = Algorithm("open_join", alone(OpenJoinKernel), _OPEN)
OPEN_JOINED_PRODUCT = Algorithm("open_joined_product", alone(OpenJoinedProduct), _OPEN)
OPEN_SEPARABLE = Algorithm("open_separable", alone(OpenSeparableKernel), _OPEN)
FUSED_OPEN_WINDOW = Algorithm("fused_open_window", kernel(OpenWindowKernel, fuses=True), _OPEN, Work.WINDOWS)

# On CUDA.
IMPLICIT = _cuda("implicit", Implicit)
IREE_IMPLICIT = _cuda("iree_implicit", IreeImplicit, "not written: IREE's tiles for it multiply floats")
THREAD_WINDOW = _cuda("thread_window", ThreadWindows, work=Work.WINDOWS)
WARP_ROW = _cuda("warp_row", WarpRow, "not written: rows are summed in floats", Work.MOVES)
TENSOR_SEPARABLE = _cuda("separable_product", TensorSeparable)
TENSOR_ATTENTION = _cuda("attention", AttentionKernel)
