"""Emit Winograd's minimal filtering as one kernel: blocks of tiles are encoded, multiplied and decoded in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.microkernel import Lhs, Prefetch, Rhs, multiply_add
from sartor.codegen.kernels.winograd.exact import ExactDecoder, ExactEncoder
from sartor.codegen.kernels.winograd.filters import FilterTransform
from sartor.codegen.kernels.winograd.geometry import WinogradConvolution
from sartor.codegen.kernels.winograd.integers import IntegerDecoder, IntegerEncoder, integer_starts
from sartor.codegen.kernels.winograd.transforms import Decoder, Encoder
from sartor.codegen.mlir.iree_compiler import ir

_MOST_TILES = 8
# Filters of a product that wait in the first-level cache, of at least 32 KiB.
_WAITING_BYTES = 32 << 10


@dataclass(frozen=True)
class WinogradCode:
    """The kernel of a convolution by Winograd's method."""

    convolution: WinogradConvolution

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.convolution.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.convolution.lanes

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code; the last buffer is the workspace."""
        _Writer(self.convolution, asm, memories, group).write()


def _transforms(of: WinogradConvolution) -> tuple[type[Encoder], type[Decoder]]:
    """How tiles are encoded and decoded."""
    if of.is_exact:
        return ExactEncoder, ExactDecoder
    return (IntegerEncoder, IntegerDecoder) if of.is_integer else (Encoder, Decoder)


class _Writer:
    def __init__(
        self, of: WinogradConvolution, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]
    ) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._group = group
        self._space = memories[-1]
        number = asm.add(group[0], asm.mul(group[1], of.groups[0]), asm.mul(group[2], of.groups[0] * of.groups[1]))
        self._start = asm.mul(number, of.workspace)
        encoder, decoder = _transforms(of)
        self._encoder = encoder(of, asm, memories, self._start)
        self._decoder = decoder(of, asm, memories, self._start)

    def write(self) -> None:
        """Emit blocks of tiles, one after the other."""
        of, asm, tiling = self._of, self._asm, self._of.tiling
        runs = -(-of.tiles // tiling.columns)
        size = -(-runs // tiling.groups) * tiling.columns
        first = asm.mul(self._group[0], size)
        end = asm.minimum(asm.add(first, size), of.tiles)
        if of.transforms_filters:
            transform = FilterTransform(of, asm, self._memories, self._start)
            # Once, and not in a workgroup without tiles.
            once = asm.minimum(asm.add(first, 1), end)
            asm.repeat(
                first, once, 1, lambda _: self._each_panel(lambda panel: transform.write(panel, self._own(panel)))
            )
        asm.repeat(
            first, end, tiling.block, lambda begin: self._block(begin, asm.minimum(end, asm.add(begin, tiling.block)))
        )

    def _block(self, first: Index, end: Index) -> None:
        asm = self._asm

        def encode(tile: Index, carried: list[ir.Value]) -> list[ir.Value]:
            self._encoder.write(self._group[2], tile, asm.sub(tile, first))
            return carried

        # Channels are encoded by one invocation of a GPU each, and read by all. The block before was multiplied.
        asm.barrier()
        asm.loop(first, end, 1, [], encode)
        asm.barrier()

        def every(panel: Index) -> None:
            self._multiply(panel, asm.sub(end, first))
            self._decode(panel, first, end)

        self._each_panel(every)

    def _each_panel(self, work: Callable[[Index], None]) -> None:
        """Emit a loop over the panels of the workgroup."""
        of, asm = self._of, self._asm
        start = asm.mul(self._group[1], of.tiling.panels)

        def every(panel: Index, carried: list[ir.Value]) -> list[ir.Value]:
            work(panel)
            return carried

        asm.loop(start, asm.minimum(of.grid.panels, asm.add(start, of.tiling.panels)), 1, [], every)

    def _own(self, panel: Index) -> Index:
        """The number of a panel among those of the workgroup."""
        return self._asm.sub(panel, self._asm.mul(self._group[1], self._of.tiling.panels))

    @property
    def _filters(self) -> ir.Value:
        """The memory that transformed filters are read from."""
        return self._space if self._of.transforms_filters else self._memories[self._of.memories[1]]

    def _panel_start(self, panel: Index) -> Index:
        """The offset of a panel of transformed filters in their memory."""
        of, asm = self._of, self._asm
        if not of.transforms_filters:
            return asm.mul(panel, of.panel_elements)
        return asm.add(self._start, of.scales, asm.mul(self._own(panel), of.panel_elements))

    def _multiply(self, panel: Index, tiles: Index) -> None:
        """Emit the n^2 products of encoded tiles by a panel of filters."""
        of, asm, tiling = self._of, self._asm, self._of.tiling
        filters = self._panel_start(panel)

        def multiply(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            starts = self._starts(panel, index)

            def rows(row: Index, inner: list[ir.Value]) -> list[ir.Value]:
                lhs = asm.add(self._start, asm.mul(index, tiling.block * of.row), asm.mul(row, of.row))
                rhs = asm.add(filters, asm.mul(index, of.filters))
                product = asm.add(asm.mul(index, of.product), asm.mul(row, of.panel * of.float_size))
                target = asm.add(self._start, of.encoded, product)
                self._register_tile((lhs, rhs, target), starts, self._prefetch(rhs, row))
                return inner

            asm.loop(0, tiles, tiling.columns, [], rows)
            return carried

        asm.loop(0, of.points, 1, [], multiply)

    def _prefetch(self, filters: Index, row: Index) -> Prefetch | None:
        """The part of the next product's filters that a register tile fetches while it computes.

        If a product has one register tile, filters are read once, and soon: from the second-level cache they would come
        too late, depending on the line at which an image begins. Several tiles share filters, which must not make room.
        """
        of, asm, tiling = self._of, self._asm, self._of.tiling
        tiles = tiling.block // tiling.columns
        if tiles > _MOST_TILES:
            return None
        workgroup_range = -(-of.step // tiles)
        number = asm.divide(row, tiling.columns)[0]
        start = asm.add(filters, of.filters, asm.mul(number, of.steps * workgroup_range))
        is_soon = tiles == 1 and of.filters * of.multiplier.bytes <= _WAITING_BYTES
        return Prefetch(start, workgroup_range, is_soon)

    def _starts(self, panel: Index, point: Index) -> list[ir.Value]:
        """The initial sums of each vector of a panel."""
        of, asm, vectors = self._of, self._asm, self._of.tiling.vectors
        if of.is_integer:
            return integer_starts(of, asm, self._memories[of.memories[1]], panel, point)
        word, real = ir.IntegerType.get_signless(32), ir.F32Type.get()
        return [asm.splat(ir.IntegerAttr.get(word, 0) if of.is_exact else ir.FloatAttr.get(real, 0.0))] * vectors

    def _register_tile(
        self, offsets: tuple[Index, Index, Index], starts: list[ir.Value], prefetch: Prefetch | None
    ) -> None:
        of, asm, tiling = self._of, self._asm, self._of.tiling
        lhs, rhs, target = offsets
        totals = multiply_add(
            asm,
            Lhs(self._space, lhs, {row: row * of.row for row in range(tiling.columns)}),
            Rhs(
                self._filters,
                rhs,
                of.step,
                [(place * of.lanes * of.multiplier.group, of.lanes) for place in range(tiling.vectors)],
                prefetch,
            ),
            of.steps,
            tiling.unroll,
            starts * tiling.columns,
            of.multiplier,
        )
        for index, total in enumerate(totals):
            row, vector_of_row = divmod(index, tiling.vectors)
            offset = (row * of.panel + vector_of_row * of.lanes) * of.float_size
            asm.store_words(total, self._space, asm.add(target, offset))

    def _decode(self, panel: Index, first: Index, end: Index) -> None:
        asm = self._asm

        def every(tile: Index, carried: list[ir.Value]) -> list[ir.Value]:
            self._decoder.write(self._group[2], tile, panel, asm.sub(tile, first))
            return carried

        asm.loop(first, end, 1, [], every)
