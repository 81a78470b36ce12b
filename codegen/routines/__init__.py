"""All routines, candidate 0 first."""

from __future__ import annotations

from sartor.codegen.routine import Routine
from sartor.codegen.routines.blocked import Blocked
from sartor.codegen.routines.channels_last import ChannelsLast
from sartor.codegen.routines.data_tiled import DataTiled
from sartor.codegen.routines.direct import Direct
from sartor.codegen.routines.fused_winograd import FusedWinograd
from sartor.codegen.routines.im2col import Im2col
from sartor.codegen.routines.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.product import Product
from sartor.codegen.routines.separable import FusedSeparable
from sartor.codegen.routines.stock import Stock
from sartor.codegen.routines.tiled import TiledConvolution
from sartor.codegen.routines.tiled_depthwise import TiledDepthwise
from sartor.codegen.routines.tiled_matmul import TiledMatmul
from sartor.codegen.routines.transposed import Transposed
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
