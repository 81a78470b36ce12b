"""Analysis of a depthwise convolution or a pooling over images of any size, alone or behind its patches or its padding.

Both read windows of each channel by itself. What is read of a padded image lies on the image itself, as padding changes
no result: zeros that are multiplied, or what a reduction starts from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.window_loops import WindowLoops
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.open_sizes.patches import Patches, Side, padding_by, patches_of
from sartor.codegen.kernels.windows.sliding import Combine
from sartor.codegen.kernels.windows.window import multiply_add, neutral_fillings, reduction_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, indexing_maps, loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_IMAGE_RANK, _PATCH_RANK = 4, 6


@dataclass(frozen=True)
class WindowForm:
    """A window over each channel.

    Attributes:
        windows: what is read.
        image: position of the image, or of what is gathered of it, among the buffers of the layer.
        filters: position of the filters ``[KH, KW, C]``; None for a pooling.
        combine: emits the new accumulator from a pixel, its filter or None, and the accumulator.
        epilogue: the ops around the reduction, whose accesses take all places of a result for one row.
        result: how results are stored.
    """

    windows: Patches
    image: int
    filters: int | None
    combine: Combine
    epilogue: Epilogue
    result: Access

    def opened(self, other: WindowForm, fit: Fit) -> WindowForm:
        """The form for any size, by those for the two sizes of ``fit``.

        Raises:
            RejectionError: if they differ in more than sizes.
        """
        if self._described() != other._described():
            raise RejectionError("windows are not computed alike for all sizes")
        return replace(self, windows=self.windows.opened(other.windows, fit))

    def _described(self) -> tuple[object, ...]:
        return self.image, self.filters, self.epilogue.reads, self.result


def window_form(task: Task, rewrite: Rewrite, lanes: int) -> WindowForm:
    """The form of a task of known sizes, or of two stages the first of which pads or gathers.

    Args:
        task: the task.
        rewrite: of its last stage.
        lanes: elements of a vector.

    Raises:
        RejectionError: if it computes anything else.
    """
    root, arguments = rewrite.root, list(body_of(rewrite.function).arguments)
    returned = list(body_of(rewrite.function).operations)[-1].operation.operands
    if list(returned) != [rewrite.chain.result] or root.operands[0] not in arguments:
        raise RejectionError("the layer is not a window and elementwise ops after it")
    shape, _ = tensor_parts(root.results[0])
    is_gathered = len(tensor_parts(root.operands[0])[0]) == _PATCH_RANK
    windows = _gathered(task, root) if is_gathered else _slid(task, root)
    locate = Locating(arguments, shape, lanes)
    return WindowForm(
        windows=windows,
        image=arguments.index(root.operands[0]),
        filters=arguments.index(root.operands[1]) if is_gathered else None,
        combine=multiply_add if is_gathered else reduction_of(root),
        epilogue=Epilogue.of(rewrite.chain, locate),
        result=Access(len(arguments), 0, 0, windows.channels, lanes),
    )


@dataclass(frozen=True)
class Locating:
    """Finds how vectors of a result are read from arguments, by the number of their place.

    Attributes:
        arguments: of the layer.
        shape: of the result, with channels last.
        lanes: elements of a vector.
    """

    arguments: list[ir.Value]
    shape: tuple[int, ...]
    lanes: int

    def __call__(self, value: ir.Value, indexing: ir.AffineMap) -> Access:
        read = [result.position if isinstance(result, ir.AffineDimExpr) else None for result in indexing.results]
        shape, _ = tensor_parts(value)
        if value not in self.arguments:
            raise RejectionError("an operand is computed in the layer, but not by its chain")
        argument, channels = self.arguments.index(value), len(self.shape) - 1
        if read == [*range(len(self.shape))] and shape == self.shape:
            return Access(argument, 0, 0, self.shape[-1], self.lanes)
        if read[-1:] == [channels] and shape[:-1] == (1,) * (len(shape) - 1) and shape[-1] == self.shape[-1]:
            return Access(argument, 0, 0, 0, self.lanes)
        if all(size == 1 for size in shape):
            return Access(argument, 0, 0, 0, None)
        raise RejectionError("an operand is neither an image of the result's size nor one number for each channel")


def _gathered(task: Task, root: ir.Operation) -> Patches:
    """The windows of a depthwise convolution of patches ``[N, OH, OW, KH, KW, C]``."""
    loops = [
        [result.position for result in maps.results if isinstance(result, ir.AffineDimExpr)]
        for maps in indexing_maps(root)
    ]
    if len(loops) != 3 or len(loops[0]) != _PATCH_RANK:
        raise RejectionError("it is no depthwise convolution")
    batch, high, wide, row, column, channel = loops[0]
    weights = _function_inputs(root)[1:]
    if loops[1:] != [[row, column, channel], [batch, high, wide, channel]] or root.operands[1] not in weights:
        raise RejectionError("it is no depthwise convolution by a weight")
    if not _multiplies(root) or len(task.stages) != 2:
        raise RejectionError("it is no depthwise convolution of patches")
    return patches_of(task.stages[0].task)


def _slid(task: Task, root: ir.Operation) -> Patches:
    """The windows of a pooling of an image ``[N, H, W, C]``, which a first stage may pad."""
    maps, sizes = indexing_maps(root), loop_sizes(root)
    kinds = ["reduction" in str(kind) for kind in ir.ArrayAttr(root.attributes["iterator_types"])]
    reduced = [loop for loop, is_reduced in enumerate(kinds) if is_reduced]
    places = list(maps[0].results)
    results = [result.position for result in maps[-1].results if isinstance(result, ir.AffineDimExpr)]
    sides = [WindowLoops.of(place, reduced) for place in places[1:3]]
    if len(places) != _IMAGE_RANK or sides[0] is None or sides[1] is None or len(reduced) != 2:
        raise RejectionError("it is no pooling")
    outer = [places[0].position, sides[0].moved, sides[1].moved, places[3].position]
    if outer != results or len(root.operands) != 3:
        raise RejectionError("it is no pooling")
    first = task.stages[0].task if task.stages else task
    low, is_padded = _padding(first, neutral_fillings(root)) if task.stages else ((0, 0), False)
    _, height, width, channels = first.inputs[0].shape
    rows, columns = (
        Side(extent, sizes[side.moved], sizes[side.reduced], side.stride, side.dilation, padding, is_padded)
        for side, extent, padding in zip((sides[0], sides[1]), (height, width), low, strict=True)
    )
    return Patches(rows, columns, channels)


def _padding(task: Task, fillings: tuple[float, ...]) -> tuple[tuple[int, int], bool]:
    """Pixels of padding that a task puts above and left of its image, and that there is some.

    Raises:
        RejectionError: if it does anything else, or pads with another number than ``fillings``.
    """
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        ops = [view.operation for view in body_of(rewrite.function).operations]
        pads = [op for op in ops if op.name not in ("arith.constant", "util.return")]
        if len(pads) != 1:
            raise RejectionError("something else than padding is before a pooling")
        return padding_by(pads[0], fillings), True


def _function_inputs(root: ir.Operation) -> list[ir.Value]:
    return list(root.operation.block.arguments)


def _multiplies(root: ir.Operation) -> bool:
    """Whether the region of a reduction adds products."""
    names = [view.operation.name for view in body_of(root).operations]
    return names == ["arith.mulf", "arith.addf", "linalg.yield"]
