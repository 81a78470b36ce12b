"""Windowed operators: makes their padding explicit, and cuts off input that no window reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, node_rewrite, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes

_WINDOWED = ("Conv", "ConvInteger", "AveragePool", "LpPool", "MaxPool")


@dataclass(frozen=True)
class Window:
    """Geometry of a windowed operator, one entry per spatial dimension.

    Attributes:
        sizes: of the input.
        kernel: taps of a window.
        strides: distance of neighbouring windows.
        dilations: distance of neighbouring taps.
        pads: before and after the input.
    """

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def extent(self, axis: int) -> int:
        """Input positions that one window spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def unread(self, axis: int) -> int:
        """Number of padded input positions after the first window; negative if that does not fit."""
        begin, end = self.pads[axis]
        return begin + self.sizes[axis] + end - self.extent(axis)

    def fitting(self, axis: int) -> int:
        """Number of windows that lie within the padded input."""
        return self.unread(axis) // self.strides[axis] + 1

    def rounded_up(self, axis: int) -> int:
        """Number of windows if one that lies within the padded input in part counts as well."""
        return -(-self.unread(axis) // self.strides[axis]) + 1


@node_rewrite(*_WINDOWED, "ConvTranspose")
def explicit_padding(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace ``auto_pad`` by explicit pads, as the ONNX operator pages define it, where shapes are known."""
    settings = attributes(node)
    mode = settings.get("auto_pad", "NOTSET")
    if node.op_type == "ConvTranspose":
        if "output_shape" not in settings:
            return _with_transposed_pads(node, editor)
        mode = mode if mode.startswith("SAME") else "SAME_LOWER"
    if not mode.startswith("SAME"):
        return None
    bare = without(node, ("auto_pad", "pads", "output_shape"))
    window = window_of(bare, editor)
    if window is None:
        return None
    totals = _transposed_totals(window, settings) if "output_shape" in settings else _same_totals(window)
    if min(totals) < 0:
        # A longer result ends with what only the bias is added to.
        rank, longer = len(totals), [max(-total, 0) for total in totals]
        extra = [added + more for added, more in zip(settings.get("output_padding", [0] * rank), longer, strict=True)]
        bare = without(bare, ("output_padding",))
        bare.attribute.append(helper.make_attribute("output_padding", extra))
        totals = [max(total, 0) for total in totals]
    bare.attribute.append(helper.make_attribute("pads", _shared(totals, mode)))
    return [bare]


def pad_transposed(model: ModelProto) -> tuple[str, ...]:
    """Replace ``auto_pad`` of a ``ConvTranspose`` by the pads that ONNX Runtime takes, which follow from the kernel.

    With ``output_padding``, ONNX's own inference finds another size: 21 where 10 elements become 20 by a stride of 2.
    """
    return rewrite_nodes(model, _with_transposed_pads)


def maxima_of_floats(model: ModelProto) -> tuple[str, ...]:
    """Take maxima of int8 of f32, which is exact, where IREE 3.13 does not pad by the least number of 8 bits.

    It does so only where pads before and after the input are equal, and pads by 0 elsewhere, also where the number of
    windows is rounded up. In three dimensions its importer crashes.
    """
    if names := rewrite_nodes(model, _of_floats):
        infer_shapes(model)
    return names


@node_rewrite(*_WINDOWED)
def round_down(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Drop ``ceil_mode`` where rounding down gives as many windows, so that nothing is padded for a rest."""
    window = window_of(node, editor) if attributes(node).get("ceil_mode") else None
    output = editor.shape(node.output[0])
    if window is None or output is None or any(window.fitting(axis) != size for axis, size in enumerate(output[2:])):
        return None
    return [without(node, ("ceil_mode",))]


def trim_windows(model: ModelProto) -> tuple[str, ...]:
    """Cut off the input after the last window in dimensions that have one window.

    IREE 3.13 removes such a dimension with its stride and then refuses the input as too long: "inferred operand has
    shape's dimension to be 4, but found 3" for a kernel of 3 over 2 elements padded by 1 on each side, with stride 2.
    """
    if any(_is_unknown(node, editor) for editor in editors(model.graph) for node in editor.nodes):
        # An earlier rewrite computes the window in another type.
        infer_shapes(model)
    return rewrite_nodes(model, _trimmed)


def _of_floats(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "MaxPool" or editor.element_type(node.input[0]) != TensorProto.INT8:
        return None
    window, settings = window_of(node, editor), attributes(node)
    if window is None or not (len(window.sizes) > 2 or settings.get("ceil_mode") or _is_unequal(window)):
        return None
    emit = Emitter(editor, node)
    wide = emit("Cast", node.input[0], part="wide", to=TensorProto.FLOAT)
    largest, *_ = emit.many("MaxPool", wide, outputs=("", *node.output[1:]), part="largest", **settings)
    emit("Cast", largest, output=node.output[0], to=TensorProto.INT8)
    return emit.nodes


def _is_unequal(window: Window) -> bool:
    return any(begin != end for begin, end in window.pads)


def window_of(node: NodeProto, editor: GraphEditor) -> Window | None:
    """Geometry of ``node``, or None if its shapes are not static or its padding is not explicit."""
    shape, settings = editor.shape(node.input[0]), attributes(node)
    kernel = settings.get("kernel_shape")
    if kernel is None and node.op_type.startswith("Conv"):
        weight = editor.shape(node.input[1])
        kernel = weight[2:] if weight else None
    if shape is None or kernel is None or settings.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    rank = len(kernel)
    ones = [1] * rank
    pads = (
        settings.get("pads", [0] * (2 * rank)) if settings.get("auto_pad", "NOTSET") == "NOTSET" else [0] * (2 * rank)
    )
    return Window(
        tuple(shape[2:]),
        tuple(kernel),
        tuple(settings.get("strides", ones)),
        tuple(settings.get("dilations", ones)),
        tuple(zip(pads[:rank], pads[rank:], strict=True)),
    )


def _is_unknown(node: NodeProto, editor: GraphEditor) -> bool:
    return node.op_type in _WINDOWED and not (editor.shape(node.input[0]) and editor.shape(node.output[0]))


def _with_transposed_pads(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    options = attributes(node)
    mode = options.get("auto_pad", "NOTSET")
    if node.op_type != "ConvTranspose" or node.domain or "output_shape" in options or not mode.startswith("SAME"):
        return None
    kernel = options.get("kernel_shape") or (editor.shape(node.input[1]) or ())[2:]
    defaults = {"strides": 1, "dilations": 1, "output_padding": 0}
    given = [options.get(name, [default] * len(kernel)) for name, default in defaults.items()]
    if not kernel or any(len(values) != len(kernel) for values in given):
        return None
    axes = zip(kernel, *given, strict=True)
    totals = [(taps - 1) * apart + 1 + extra - stride for taps, stride, apart, extra in axes]
    bare = without(node, ("auto_pad", "pads"))
    # The result is larger where the kernel is smaller than the stride.
    bare.attribute.append(helper.make_attribute("pads", _shared([max(total, 0) for total in totals], mode)))
    return [bare]


def _shared(totals: Sequence[int], mode: str) -> list[int]:
    """Pads of the begins and then of the ends, of which ``auto_pad`` names the one that has more of an odd total."""
    low = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
    return [*low, *(total - begin for total, begin in zip(totals, low, strict=True))]


def _same_totals(window: Window) -> list[int]:
    """Total padding of each dimension for an output of ``ceil(input / stride)``."""
    totals = []
    for axis, (size, stride) in enumerate(zip(window.sizes, window.strides, strict=True)):
        windows = -(-size // stride)
        totals.append(max((windows - 1) * stride + window.extent(axis) - size, 0))
    return totals


def _transposed_totals(window: Window, settings: dict[str, Sequence[int]]) -> list[int]:
    """Total padding of a transposed convolution for its ``output_shape``."""
    rank = len(window.sizes)
    extra = settings.get("output_padding", [0] * rank)
    return [
        window.strides[axis] * (window.sizes[axis] - 1) + extra[axis] + window.extent(axis) - wanted
        for axis, wanted in enumerate(settings["output_shape"])
    ]


def _trimmed(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type not in _WINDOWED:
        return None
    window, output = window_of(node, editor), editor.shape(node.output[0])
    # Attributes that contradict the operands leave a shape of another rank, which is refused later.
    if window is None or output is None or len(output) != len(window.sizes) + 2:
        return None
    unread = [window.unread(axis) if output[axis + 2] == 1 else 0 for axis in range(len(window.sizes))]
    if max(unread) <= 0:
        return None
    emit = Emitter(editor, node)
    pads = [min(high, max(rest, 0)) for (_, high), rest in zip(window.pads, unread, strict=True)]
    ends = {
        axis: window.sizes[axis] - (rest - cut)
        for axis, (rest, cut) in enumerate(zip(unread, pads, strict=True))
        if rest > cut
    }
    source = node.input[0]
    if ends:
        operands = [[0] * len(ends), list(ends.values()), [axis + 2 for axis in ends]]
        names = [emit.constant(values, hint) for values, hint in zip(operands, ("starts", "ends", "axes"), strict=True)]
        source = emit("Slice", source, *names, part="trim")
    bare = without(node, ("auto_pad", "pads"))
    bare.input[0] = source
    high = [end - cut for (_, end), cut in zip(window.pads, pads, strict=True)]
    bare.attribute.append(helper.make_attribute("pads", [*(begin for begin, _ in window.pads), *high]))
    return [*emit.nodes, bare]


def without(node: NodeProto, names: tuple[str, ...]) -> NodeProto:
    """A copy of a node that lacks these attributes."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(item for item in node.attribute if item.name not in names)
    return copy
