"""Strips of a sequence of pixels, each of which a result reads alone, as for 1x1 convolutions and products."""

from __future__ import annotations

from dataclasses import replace

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.widened.rows import WidenedRows
from sartor.codegen.kernels.widened.strips import Strip, WidenedStrips


def sequence_strips(contraction: Contraction, rows: WidenedRows, source: int, band: int) -> WidenedStrips:
    """The kernel over strips of ``band`` pixels, and of the rest.

    Args:
        contraction: over widened rows of the image as they are.
        rows: how these are widened.
        source: position of the image among the buffers.
        band: pixels of a strip.

    Raises:
        RejectionError: if rows of the image or of the layer's operands are not adjacent.
    """
    if rows.image.row != rows.width * rows.image.column:
        raise RejectionError("rows of the image are not adjacent")
    pixels = rows.rows.input * rows.width
    band = min(band, pixels)
    main = _strip(contraction, rows, band, pixels // band, 0)
    rest = pixels % band
    return WidenedStrips(source, main, _strip(contraction, rows, rest, 1, pixels - rest) if rest else None)


def _strip(contraction: Contraction, rows: WidenedRows, columns: int, count: int, first: int) -> Strip:
    """``count`` strips of ``columns`` pixels from pixel ``first`` on."""

    def moved(access: Access) -> Access:
        return replace(access, base=access.base + first * access.column)

    joined = contraction.joined(columns)
    axis = Axis(count, count, 1, 1, 1, 0)
    nest = replace(
        joined.nest,
        rows=axis,
        result=moved(joined.nest.result),
        epilogue=joined.nest.epilogue.map_accesses(moved),
    )
    image = replace(rows.image, row=columns * rows.image.column)
    widened = WidenedRows(axis, columns, rows.channels, image)
    return Strip(replace(joined, nest=nest), widened, first * rows.image.column, 1)
