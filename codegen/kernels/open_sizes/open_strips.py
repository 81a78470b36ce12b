"""A convolution over images of any size whose register tiles read strips of the image in place of patches.

A strip has what the windows of a part of a line read, once, and stays in the first-level cache while each panel of
filters is multiplied by it. Of few channels a patch is so short that to gather it takes as long as to multiply it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.open_sizes.open_convolution import check_read_once
from sartor.codegen.kernels.open_sizes.open_rows import OpenRows
from sartor.codegen.kernels.open_sizes.patches import Patches
from sartor.codegen.kernels.open_sizes.row_cut import cut_rows
from sartor.codegen.kernels.open_sizes.strips import Strips, pixels_of
from sartor.codegen.kernels.windows.row_strips import Wiring
from sartor.codegen.mlir.iree_compiler import ir

# Half of the smallest first-level caches; filters and results need the rest.
_MOST_SCRATCH = (16 << 10) // 4
# A longer part of a line gains nothing.
_MOST_TILES = 8


@dataclass(frozen=True)
class OpenStrips:
    """A product whose rows are windows of strips.

    Attributes:
        strips: of which a workgroup fills one after the other.
        product: multiplies them.
        wirings: the buffers of what makes patches, then those of the product, as if it read them.
    """

    strips: Strips
    product: OpenRows
    wirings: tuple[Wiring, Wiring]

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.product.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.product.lanes

    @property
    def _tiles(self) -> int:
        """Register tiles of a strip."""
        return self.strips.places // self.product.tiles.nest.tiling.columns

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        strip = asm.scratch(self.strips.elements, ir.MemRefType(memories[0].type).element_type)
        buffers = [*memories, strip]
        (image, *_), operands = ([buffers[index] for index in wiring] for wiring in self.wirings)
        width = asm.size(self.strips.windows.columns.output)
        cut = cut_rows(asm, width, self.product.tiles.nest.tiling.columns)
        parts = asm.maximum(1, asm.divide_up(cut.tiles, self._tiles))
        lines = asm.divide(asm.size(self.product.rows), asm.maximum(1, width))[0]

        def part(number: Index) -> None:
            """Fill a strip for some tiles of a line, and multiply it by the workgroup's panels."""
            line, of_line = asm.divide(number, parts)
            tile = asm.mul(of_line, self._tiles)
            last = asm.minimum(cut.tiles, asm.add(tile, self._tiles))
            first, begin = cut.row(asm, tile), asm.times(line, width)
            self.strips.fill(asm, (image, strip), line, (first, asm.sub(cut.row(asm, last), first)))
            tiles = cut.parts(asm, (tile, last)).moved(asm, begin)
            shift = asm.sub(0, asm.mul(asm.add(begin, first), self.strips.rows.stride))
            self.product.tiles.nest.write_panels(
                asm, group, lambda panel: self.product.write_parts(asm, operands, tiles, panel, shift)
            )

        asm.repeat(*workgroup_range(asm, asm.times(lines, parts), self.groups[0], group[0]), 1, part)


def open_strips(windows: Patches, product: OpenRows, wirings: tuple[Wiring, Wiring], *, in_planes: bool) -> OpenStrips:
    """The kernel of a convolution.

    Args:
        windows: of the image.
        product: of patches by filters.
        wirings: the buffers of what makes patches, then those of the product.
        in_planes: whether the image is in ONNX's layout.

    Raises:
        RejectionError: if what the windows of a register tile read does not fit a workgroup, or ops after the product
            read patches.
    """
    check_read_once(product)
    tiles, depth = product.tiles, windows.channels
    tiling, step = tiles.nest.tiling, tiles.filters.depth
    places = most_places(windows, tiling.columns)
    if not places:
        raise RejectionError(f"what the windows of {tiling.columns} places read does not fit a workgroup")
    strips = Strips(windows, in_planes, places, tiles.nest.lanes)
    filters = replace(tiles.filters, row=windows.columns.kernel * depth * step, column=depth * step)
    nest = replace(tiles.nest, rows=strips.rows, columns=strips.columns)
    tiles = replace(tiles, nest=nest, depth=depth, image=strips.strides, filters=filters)
    return OpenStrips(strips, replace(product, tiles=tiles), wirings)


def most_places(windows: Patches, columns: int) -> int:
    """The places of a strip: of as many register tiles of ``columns`` as fit a workgroup's memory, but not many."""
    lines = windows.channels * windows.rows.kernel
    fitting = [
        tiles for tiles in range(_MOST_TILES + 1) if lines * pixels_of(windows, tiles * columns) <= _MOST_SCRATCH
    ]
    return max(fitting, default=0) * columns
