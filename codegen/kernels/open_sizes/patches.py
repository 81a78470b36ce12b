"""What the windows of an image read, gathered for some places of the result at a time, for images of any size."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, product_shape
from sartor.codegen.analysis.window_loops import WindowLoops
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.epilogue import constant_of
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps, moves
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_PATCH_RANK = 6
_STAGES = 2
_INNER = (3, 4)


@dataclass(frozen=True)
class Side:
    """Windows along the height or the width of an image.

    Attributes:
        input: extent of the image.
        output: number of windows.
        kernel: taps of a window.
        stride: between windows.
        dilation: between taps.
        padding: pixels of padding before the image.
        is_padded: whether there is padding, before the image or after it.
    """

    input: Count
    output: Count
    kernel: int
    stride: int
    dilation: int
    padding: int
    is_padded: bool

    def start(self, asm: Assembler, place: Index) -> Index:
        """The pixel that the first tap of a window reads; negative for padding."""
        return asm.add(asm.mul(place, self.stride), -self.padding)

    def is_within(self, asm: Assembler, start: Index) -> Condition:
        """Whether all taps of a window lie on the image."""
        if not self.is_padded:
            return True
        last = asm.add(start, (self.kernel - 1) * self.dilation)
        return asm.all_of(asm.less(-1, start), asm.less(last, asm.size(self.input)))

    def hits(self, asm: Assembler, pixel: Index) -> Condition:
        """Whether a pixel lies on the image."""
        if not self.is_padded:
            return True
        return asm.all_of(asm.less(-1, pixel), asm.less(pixel, asm.size(self.input)))

    def taps(self, asm: Assembler, start: Index) -> tuple[Index, Index]:
        """First and end of the taps of a window that lie on the image; the end is at most the first if none does."""
        if not self.is_padded:
            return 0, self.kernel
        first = asm.maximum(0, asm.divide_up(asm.sub(0, start), self.dilation))
        return first, asm.minimum(self.kernel, asm.divide_up(asm.sub(asm.size(self.input), start), self.dilation))

    def inner(self, asm: Assembler) -> tuple[Index, Index]:
        """First and end of the windows of which all taps lie on the image; the end is at least the first."""
        output = asm.size(self.output)
        if not self.is_padded:
            return 0, output
        first = asm.minimum(output, -(-self.padding // self.stride))
        beyond = asm.add(asm.size(self.input), self.padding - (self.kernel - 1) * self.dilation)
        return first, asm.maximum(first, asm.minimum(output, asm.divide_up(beyond, self.stride)))

    def opened(self, other: Side, fit: Fit) -> Side:
        """The windows for any size, by those for the two sizes of ``fit``.

        Raises:
            RejectionError: if they differ in more than the extents.
        """
        input, output = (
            fit.dim(_number(one), _number(two)) for one, two in ((self.input, other.input), (self.output, other.output))
        )
        side = Side(input, output, self.kernel, self.stride, self.dilation, self.padding, self.is_padded)
        if side != Side(input, output, other.kernel, other.stride, other.dilation, other.padding, other.is_padded):
            raise RejectionError("windows are not the same for all sizes")
        return side


@dataclass(frozen=True)
class Patches:
    """The windows of images ``[N, H, W, C]`` of zeros beyond their borders, as ``[N, OH, OW, KH, KW, C]``.

    Attributes:
        rows: windows along H.
        columns: windows along W.
        channels: C.
    """

    rows: Side
    columns: Side
    channels: int

    @property
    def depth(self) -> int:
        """Elements of a patch."""
        return self.rows.kernel * self.columns.kernel * self.channels

    def opened(self, other: Patches, fit: Fit) -> Patches:
        """The patches for any size, by those for the two sizes of ``fit``.

        Raises:
            RejectionError: if they differ in more than sizes.
        """
        if self.channels != other.channels:
            raise RejectionError("the number of channels is known only when it runs")
        return Patches(self.rows.opened(other.rows, fit), self.columns.opened(other.columns, fit), self.channels)

    def gather(
        self, asm: Assembler, image: ir.Value, target: ir.Value, places: tuple[Index, Index], start: Index = 0
    ) -> None:
        """Emit the copies of some patches, one behind the other.

        Args:
            asm: emits the code.
            image: memory that is read.
            target: memory that is written, from ``start`` on.
            places: number of the first patch among those of all images, and how many there are.
            start: offset of the first patch.
        """
        first, count = places
        line, column = asm.divide(first, asm.size(self.columns.output))
        batch, row = asm.divide(line, asm.size(self.rows.output))

        def every(number: Index, place: list[ir.Value]) -> list[ir.Value]:
            self._copy(asm, image, target, place, asm.add(start, asm.mul(number, self.depth)))
            return self._next(asm, place)

        asm.loop(0, count, 1, [asm.value(size) for size in (batch, row, column)], every)

    def _next(self, asm: Assembler, place: list[ir.Value]) -> list[ir.Value]:
        """The next place of the result: its image, row and column."""
        batch, row, column = place
        zero, following = asm.value(0), [asm.value(asm.add(position, 1)) for position in (batch, row, column)]
        is_next_row = _equal(following[2], asm.value(asm.size(self.columns.output)))
        reached = arith.select(is_next_row, following[1], row)
        is_next_image = _equal(reached, asm.value(asm.size(self.rows.output)))
        return [
            arith.select(is_next_image, following[0], batch),
            arith.select(is_next_image, zero, reached),
            arith.select(is_next_row, zero, following[2]),
        ]

    def _copy(self, asm: Assembler, image: ir.Value, target: ir.Value, place: list[ir.Value], into: Index) -> None:
        """Emit the copy of a patch: of whole rows where it lies on the image, else tap by tap."""
        rows, columns, channels = self.rows, self.columns, self.channels
        batch, *position = place
        top, left = (side.start(asm, start) for side, start in zip((rows, columns), position, strict=True))
        line = asm.times(asm.size(columns.input), channels)
        begin = asm.add(asm.times(asm.add(asm.times(batch, asm.size(rows.input)), top), line), asm.mul(left, channels))
        adjacent = columns.kernel if columns.dilation == 1 else 1

        def taps(row: Index, first: Index) -> tuple[Index, Index]:
            source = asm.add(begin, asm.times(line, asm.mul(row, rows.dilation)))
            return (
                asm.add(source, asm.mul(first, columns.dilation * channels)),
                asm.add(into, asm.mul(row, columns.kernel * channels), asm.mul(first, channels)),
            )

        def copy(row: Index, first: Index, count: int) -> None:
            source, there = taps(row, first)
            asm.copy((image, source), (target, there), count * channels)

        def whole() -> None:
            for row in range(rows.kernel):
                for first in range(0, columns.kernel, adjacent):
                    copy(row, first, adjacent)

        def bordered() -> None:
            asm.repeat(0, rows.kernel, 1, lambda row: asm.repeat(0, columns.kernel, 1, functools.partial(tap, row)))

        def tap(row: Index, number: Index) -> None:
            pixel = [
                asm.add(at, asm.mul(tap, side.dilation))
                for at, tap, side in ((top, row, rows), (left, number, columns))
            ]
            asm.branch(
                asm.all_of(rows.hits(asm, pixel[0]), columns.hits(asm, pixel[1])),
                lambda: copy(row, number, 1),
                lambda: asm.fill(asm.zero_of(image), target, taps(row, number)[1], channels),
            )

        asm.branch(asm.all_of(rows.is_within(asm, top), columns.is_within(asm, left)), whole, bordered)


def patches_of(task: Task) -> Patches:
    """The patches that a task gathers, of known sizes.

    Raises:
        RejectionError: if it does anything else.
    """
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        ops = [view.operation for view in body_of(rewrite.function).operations]
        gathers = [op for op in ops if moves(op) and len(indexing_maps(op)[0].results) < _PATCH_RANK]
        if len(gathers) != 1 or len(task.inputs) != 1 or len(task.results[0].shape) != _PATCH_RANK:
            raise RejectionError("it does not gather patches of an image")
        places = list(indexing_maps(gathers[0])[0].results)
        sides = [WindowLoops.of(place, _INNER) for place in places[1:3]]
        _, height, width, channels = task.inputs[0].shape
        low, is_padded = _padding(gathers[0].operands[0])
    if sides[0] is None or sides[1] is None or tensor_parts(gathers[0].operands[0])[0][-1] != channels:
        raise RejectionError("it gathers no patches of windows")
    shape = task.results[0].shape
    rows, columns = (
        Side(extent, shape[1 + axis], shape[3 + axis], side.stride, side.dilation, low[axis], is_padded)
        for axis, (side, extent) in enumerate(zip((sides[0], sides[1]), (height, width), strict=True))
    )
    return Patches(rows, columns, channels)


def gathered_product(task: Task) -> MatmulShape | Rejected:
    """The product of a task that gathers patches and multiplies them."""
    if task.opened is None or len(task.stages) != _STAGES or task.stages[1].task.kind is not LayerKind.CONTRACTION:
        return Rejected("not a convolution of open sizes")
    if task.stages[0].task.weights:
        return Rejected("patches are not of an activation")
    return product_shape(task.stages[1].task)


def _padding(image: ir.Value) -> tuple[tuple[int, int], bool]:
    """Pixels of padding above and left of what is gathered, and whether there is padding."""
    op = defining_op(image)
    return ((0, 0), False) if op is None else (padding_by(op, (0.0,)), True)


def padding_by(pad: ir.Operation, fillings: tuple[float, ...]) -> tuple[int, int]:
    """Pixels of padding above and left of an image ``[N, H, W, C]``.

    Raises:
        RejectionError: if an op does not pad it, or pads it with another number than ``fillings``, or elsewhere.
    """
    if pad.name != "tensor.pad" or len(pad.operands) != 1:
        raise RejectionError("what windows read is computed in the layer")
    filling = constant_of(list(pad.regions[0].blocks[0].operations)[-1].operation.operands[0])
    low, high = (list(ir.DenseI64ArrayAttr(pad.attributes[f"static_{name}"])) for name in ("low", "high"))
    if filling is None or ir.FloatAttr(filling).value not in fillings or any((low[0], low[3], high[0], high[3])):
        raise RejectionError(f"the image is padded with something other than {fillings[0]}")
    return low[1], low[2]


def _equal(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, one, other)


def _number(count: Count) -> int:
    if not isinstance(count, int):
        raise RejectionError("a size is known only when it runs")
    return count
