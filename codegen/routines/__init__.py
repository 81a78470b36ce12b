"""All routines, candidate 0 first."""

from __future__ import annotations

from collections.abc import Iterable

from sartor.codegen.kernels.factors import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.kernels.matrix_unit import INTEGER
from sartor.codegen.routine import Routine
from sartor.codegen.routines.blocked import Blocked
from sartor.codegen.routines.channels_last import ChannelsLast
from sartor.codegen.routines.data_tiled import DataTiled
from sartor.codegen.routines.direct import Direct
from sartor.codegen.routines.fused_winograd import FusedWinograd
from sartor.codegen.routines.im2col import Im2col
from sartor.codegen.routines.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.join import Join
from sartor.codegen.routines.product import Product
from sartor.codegen.routines.rowwise import Rowwise
from sartor.codegen.routines.separable import FusedSeparable
from sartor.codegen.routines.stock import Stock
from sartor.codegen.routines.stored import Stored
from sartor.codegen.routines.tile_convolution import TileConvolution
from sartor.codegen.routines.tile_product import TileProduct
from sartor.codegen.routines.tiled import TiledConvolution
from sartor.codegen.routines.tiled_depthwise import TiledDepthwise
from sartor.codegen.routines.tiled_matmul import TiledMatmul
from sartor.codegen.routines.transposed import Transposed
from sartor.codegen.routines.whole_numbers import WholeFactor, WholeResult
from sartor.codegen.routines.window import SlidingWindow
from sartor.codegen.routines.winograd import Winograd

KERNELS: tuple[Routine, ...] = (
    Direct(),
    Direct("direct_blocked", blocked=True),
    Product(),
    SlidingWindow(),
    SlidingWindow("window_blocked", blocked=True),
    FusedWinograd(),
    FusedWinograd("fused_winograd_blocked", blocked=True),
    Join(),
    Join("join_blocked", blocked=True),
    Rowwise(),
)
"""Those that write code of their own."""

LOWERINGS: tuple[Routine, ...] = (
    TiledConvolution(),
    TiledMatmul(),
    TiledDepthwise(),
    Winograd(),
    ChannelsLast(),
    Blocked(),
    Im2col(),
    Im2colMatmul(),
    DataTiled(),
    Transposed(),
)
"""Those that leave the code to IREE, in other layouts, tiles and forms than candidate 0."""

ROUTINES: tuple[Routine, ...] = (Stock(), *KERNELS, *LOWERINGS)

FUSED_ROUTINES: tuple[Routine, ...] = (Stock(), FusedSeparable(), FusedSeparable("separable_blocked", blocked=True))
"""Those for fused tasks."""

_BFLOAT: tuple[Routine, ...] = (
    TileConvolution(),
    TileProduct(),
    Direct("dots", storage="bf16", element=BFLOAT_DOTS),
    Product("dots", storage="bf16", element=BFLOAT_DOTS),
    FusedWinograd("fused_winograd_dots", storage="bf16", element=BFLOAT_DOTS),
    FusedWinograd(storage="bf16"),
    Direct(storage="bf16"),
    Product(storage="bf16"),
    SlidingWindow(storage="bf16"),
    Join(storage="bf16"),
    Rowwise(storage="bf16"),
    Stored(Stock()),
    Stored(ChannelsLast()),
)

_INTEGER: tuple[Routine, ...] = (
    TileConvolution(storage="i8", element=INTEGER),
    TileConvolution("tiles_of_bf16", output="i8"),
    TileProduct(storage="i8", element=INTEGER),
    TileProduct("tiles_to_f32", storage="i8", element=INTEGER, output="f32"),
    Direct("dots", storage="i8", element=INTEGER_DOTS),
    Product("dots", storage="i8", element=INTEGER_DOTS),
    Product("dots_to_f32", storage="i8", element=INTEGER_DOTS, output="f32"),
    FusedWinograd("fused_winograd_dots", storage="i8", element=BFLOAT_DOTS),
    FusedWinograd("fused_winograd_bytes", storage="i8", element=INTEGER_DOTS),
    Direct(storage="i8"),
    Product(storage="i8"),
    SlidingWindow(storage="i8"),
    Join(storage="i8"),
    Rowwise(storage="i8"),
    Stored(Stock(), "i8"),
    Stored(ChannelsLast(), "i8"),
)

WHOLE_NUMBERS: tuple[Routine, ...] = (
    WholeFactor(TileConvolution(storage="i8", element=INTEGER)),
    WholeFactor(TileProduct(storage="i8", element=INTEGER)),
    WholeFactor(Direct("dots", storage="i8", element=INTEGER_DOTS)),
    WholeFactor(Product("dots", storage="i8", element=INTEGER_DOTS)),
    WholeFactor(Direct(storage="i8")),
    WholeFactor(Product(storage="i8")),
    WholeResult(Stock()),
    WholeResult(ChannelsLast()),
    WholeResult(Rowwise()),
)
"""Those for models that quantise what they multiply when they run."""

_HALF: tuple[Routine, ...] = (
    Direct(storage="f16"),
    Product(storage="f16"),
    SlidingWindow(storage="f16"),
    Join(storage="f16"),
    Rowwise(storage="f16"),
    Stored(Stock(), "f16"),
    Stored(ChannelsLast(), "f16"),
)

LOW_PRECISION: dict[str, tuple[Routine, ...]] = {"bf16": _BFLOAT, "i8": (*_INTEGER, *WHOLE_NUMBERS), "f16": _HALF}
"""Those that store what is between layers in a narrower type, by that type."""


def routines_for(types: Iterable[str]) -> tuple[Routine, ...]:
    """All that compute in f32, then those of these narrower types."""
    return (*ROUTINES, *(each for dtype in types for each in LOW_PRECISION.get(dtype, ())))
