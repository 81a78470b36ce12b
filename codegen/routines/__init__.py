"""All routines, candidate 0 first."""

from __future__ import annotations

from sartor.codegen.routine import Routine
from sartor.codegen.routines.blocked import Blocked
from sartor.codegen.routines.channels_last import ChannelsLast
from sartor.codegen.routines.stock import Stock
from sartor.codegen.routines.tiled import TiledConvolution

ROUTINES: tuple[Routine, ...] = (Stock(), ChannelsLast(), Blocked(), TiledConvolution())
