"""Strided slices of images, read where they lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import defining_op
from sartor.codegen.mlir.snippet import tensor_parts

SLICE = "tensor.extract_slice"
_BATCH, _CHANNEL, _ROW, _COLUMN = range(IMAGE_RANK)


@dataclass(frozen=True)
class Slice:
    """Elements of an image ``[N, C, H, W]`` at a distance from each other.

    Attributes:
        origin: the image.
        offsets: first element along each dimension.
        steps: distances along each dimension.
    """

    origin: ir.Value
    offsets: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the slice is taken from no other image, but is one."""
        return defining_op(self.origin) is None and not any(self.offsets) and set(self.steps) == {1}

    def access(self, image: Access, lanes: int) -> Access:
        """The access to the slice, given that to the image.

        Raises:
            RejectionError: if channels that are not neighbours are read from blocks, or a vector would span two blocks.
        """
        channel, step = self.offsets[_CHANNEL], self.steps[_CHANNEL]
        if image.vector is None:
            raise RejectionError("the image has no vectors of channels")
        if image.vector != lanes and (step > 1 or channel % lanes):
            raise RejectionError("a slice of channels does not consist of blocks")
        distances = {_BATCH: image.batch, _ROW: image.row, _COLUMN: image.column}
        first = sum(self.offsets[axis] * distance for axis, distance in distances.items())
        return replace(
            image.from_channel(channel, lanes),
            batch=image.batch * self.steps[_BATCH],
            row=image.row * self.steps[_ROW],
            column=image.column * self.steps[_COLUMN],
            vector=image.vector * step,
            base=image.from_channel(channel, lanes).base + first,
        )


def slice_of(value: ir.Value) -> Slice:
    """A value as a slice, followed back through slices of slices.

    Raises:
        RejectionError: if a slice has sizes that are computed, or drops dimensions.
    """
    op = defining_op(value)
    if op is None or op.name != SLICE:
        return Slice(value, (0,) * IMAGE_RANK, (1,) * IMAGE_RANK)
    offsets, sizes, steps = (
        tuple(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
    )
    if len(op.operands) != 1 or tensor_parts(value)[0] != sizes:
        raise RejectionError("a slice has computed sizes or drops dimensions")
    inner = slice_of(op.operands[0])
    return Slice(
        inner.origin,
        tuple(start + step * offset for start, step, offset in zip(inner.offsets, inner.steps, offsets, strict=True)),
        tuple(one * other for one, other in zip(inner.steps, steps, strict=True)),
    )
