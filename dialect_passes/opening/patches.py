"""Takes the windows of a convolution out of it: what is left multiplies the patch of each window by a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.window_loops import WindowLoops
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps, loop_sizes
from sartor.codegen.mlir.rewriting.chain import root_of
from sartor.codegen.mlir.rewriting.convert import Converted
from sartor.codegen.subgraphs.fusion import task_of

_RANK = 4


@dataclass(frozen=True)
class Patched:
    """A convolution that reads patches.

    Attributes:
        slot: the activation that they are gathered from, and in whose place they are read.
        task: gathers them; None if the image itself is what is read.
    """

    slot: int
    task: Task | None


def patched(converted: Converted) -> Patched | None:
    """Let a convolution over images in NHWC read patches, in place; None if it is left as it is.

    It is, if the image is read by something else in the layer too, or padded by other values than zeros.
    """
    with shared_context() as context, ir.Location.unknown(context):
        root = root_of(converted.function)
        convolution = None if root is None else _Convolution.of(root, converted)
        return None if convolution is None else convolution.patched()


def padding_apart(converted: Converted) -> Patched | None:
    """Let a layer over images in NHWC read a padded image, in place; None if it pads nothing that it reads only so, or
    with a number that is known only when it runs.

    IREE 3.13 rejects some pads of open size in loops over windows: "expected no unbounded stack allocations".
    """
    with shared_context() as context, ir.Location.unknown(context):
        block = body_of(converted.function)
        inputs = list(block.arguments)[: len(converted.task.inputs)]
        for op in [view.operation for view in block.operations]:
            if op.name != "tensor.pad" or op.operands[0] not in inputs or len(list(op.operands[0].uses)) > 1:
                continue
            if _border(op) is None:
                continue
            image = op.operands[0]
            source, padded = (TensorType.parse(str(value.type)) for value in (image, op.results[0]))
            text = f"""util.func public @layer(%arg0: {source}) -> {padded} {{
{_pad_text(op)}  util.return %padded : {padded}
}}"""
            image.set_type(op.results[0].type)
            op.results[0].replace_all_uses_with(image)
            op.erase()
            _sign(converted.function)
            return Patched(inputs.index(image), task_of(LayerKind.FIXED, text, (source,), (), (padded,)))
    return None


def _pad_text(pad: ir.Operation) -> str:
    """The lines that pad ``%arg0`` as an op does, with a constant."""
    source, padded = (TensorType.parse(str(value.type)) for value in (pad.operands[0], pad.results[0]))
    low, top = (list(ir.DenseI64ArrayAttr(pad.attributes[f"static_{name}"])) for name in ("low", "high"))
    return f"""  %border = arith.constant {_border(pad)}
  %padded = tensor.pad %arg0 low{low} high{top} {{
  ^bb0(%n: index, %h: index, %w: index, %c: index):
    tensor.yield %border : {source.dtype}
  }} : {source} to {padded}
"""


@dataclass(frozen=True)
class _Convolution:
    """A convolution over images in NHWC.

    Attributes:
        root: its reduction.
        function: the layer.
        slot: number of the image among the arguments.
        pad: pads the image; None if nothing does.
        windows: along H and W.
    """

    root: ir.Operation
    function: ir.Operation
    slot: int
    pad: ir.Operation | None
    windows: tuple[WindowLoops, WindowLoops]

    @staticmethod
    def of(root: ir.Operation, converted: Converted) -> _Convolution | None:
        """The convolution of a root, if it multiplies one image by a weight, and nothing else reads the image."""
        image, pad = root.operands[0], defining_op(root.operands[0])
        if pad is not None:
            image = pad.operands[0]
            if pad.name != "tensor.pad" or len(list(pad.results[0].uses)) > 1 or not _pads_zeros(pad):
                return None
        inputs = list(body_of(converted.function).arguments)[: len(converted.task.inputs)]
        if image not in inputs or len(list(image.uses)) > 1:
            return None
        places = list(indexing_maps(root)[0].results)
        kinds = ir.ArrayAttr(root.attributes["iterator_types"])
        reduced = [loop for loop, kind in enumerate(kinds) if "reduction" in str(kind)]
        windows = [WindowLoops.of(place, reduced) for place in places[1:3]]
        if len(places) != _RANK or windows[0] is None or windows[1] is None:
            return None
        if not all(isinstance(places[axis], ir.AffineDimExpr) for axis in (0, 3)):
            return None
        return _Convolution(root, converted.function, inputs.index(image), pad, (windows[0], windows[1]))

    def patched(self) -> Patched:
        """Let it read patches."""
        high, wide = self.windows
        sizes, argument = loop_sizes(self.root), list(body_of(self.function).arguments)[self.slot]
        is_plain = self.pad is None and all((sizes[window.reduced], window.stride) == (1, 1) for window in self.windows)
        maps = indexing_maps(self.root)
        batch, *_, channel = (result.position for result in maps[0].results if isinstance(result, ir.AffineDimExpr))
        # An image of patches of one pixel is the image, with a dimension of one for each side of the window.
        loops = [batch, high.moved, wide.moved, *([] if is_plain else [high.reduced, wide.reduced]), channel]
        maps[0] = ir.AffineMap.get(maps[0].n_dims, 0, [ir.AffineDimExpr.get(loop) for loop in loops])
        image = TensorType.parse(str(argument.type))
        patches = TensorType(tuple(sizes[loop] for loop in loops), image.dtype)
        task = None if is_plain else self._gathering(image, patches)
        argument.set_type(ir.Type.parse(str(patches)))
        if self.pad is not None:
            self.pad.results[0].replace_all_uses_with(argument)
            self.pad.erase()
        self.root.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(map_of_operand) for map_of_operand in maps]
        )
        _sign(self.function)
        return Patched(self.slot, task)

    def _gathering(self, image: TensorType, patches: TensorType) -> Task:
        """A task that gathers patches, as ``[N, OH, OW, KH, KW, C]``."""
        high, wide = (
            f"d{axis} * {axis_of_window.stride} + d{2 + axis} * {axis_of_window.dilation}"
            for axis, axis_of_window in self._axes
        )
        before = "" if self.pad is None else _pad_text(self.pad)
        padded = image if self.pad is None else TensorType.parse(str(self.pad.results[0].type))
        loops = ", ".join(f"d{axis}" for axis in range(len(patches.shape)))
        kinds = ", ".join(['"parallel"'] * len(patches.shape))
        text = f"""util.func public @layer(%arg0: {image}) -> {patches} {{
{before}  %empty = tensor.empty() : {patches}
  %patches = linalg.generic {{indexing_maps = [affine_map<({loops}) -> (d0, {high}, {wide}, d5)>,
      affine_map<({loops}) -> ({loops})>], iterator_types = [{kinds}]}}
      ins(%{"padded" if before else "arg0"} : {padded}) outs(%empty : {patches}) {{
  ^bb0(%in: {image.dtype}, %out: {image.dtype}):
    linalg.yield %in : {image.dtype}
  }} -> {patches}
  util.return %patches : {patches}
}}"""
        return task_of(LayerKind.FIXED, text, (image,), (), (patches,))

    @property
    def _axes(self) -> Sequence[tuple[int, WindowLoops]]:
        return [*enumerate(self.windows, 1)]


def _pads_zeros(pad: ir.Operation) -> bool:
    """Whether a pad fills the border with zeros."""
    border = _border(pad)
    return isinstance(border, ir.FloatAttr) and bool(border.value == 0)


def _border(pad: ir.Operation) -> ir.Attribute | None:
    """The number that a pad fills the border with; None if it is known only when the layer runs."""
    (yielded,) = list(pad.regions[0].blocks[0].operations)[-1].operation.operands
    value = defining_op(yielded)
    return value.attributes["value"] if value is not None and value.name == "arith.constant" else None


def _sign(function: ir.Operation) -> None:
    """Set the function's signature from its body."""
    block = body_of(function)
    returned = list(block.operations)[-1].operation.operands
    kind = ir.FunctionType.get([argument.type for argument in block.arguments], [value.type for value in returned])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
