"""The last check of a prepared model: refuses nodes that would fail to compile, or compile to wrong results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker

from sartor.devices import VULKAN
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, optional_input, static_shape
from sartor.onnx_model.graphs.limits import MAX_RANK, MAX_VALUE_BYTES
from sartor.onnx_model.graphs.names import SUPPRESSION_BODY, naming_origins
from sartor.onnx_model.graphs.negative_sizes import SIZED
from sartor.onnx_model.graphs.open_shapes import open_origin
from sartor.onnx_model.graphs.prepared import PreparedModel
from sartor.onnx_model.graphs.tensor_data import element_bits
from sartor.onnx_model.graphs.walk import describe_node, subgraphs
from sartor.onnx_model.preparing.simplify import weights_as_inputs
from sartor.onnx_model.rewrites.control_flow.trip_counts import begins, goes_on
from sartor.onnx_model.rewrites.windowed.windows import window_of

_PADDING = frozenset({"AveragePool", "Conv", "ConvInteger", "DeformConv", "LpPool", "MaxPool", "QLinearConv"})
# Of these IREE has approximations in float32 alone; the linker misses a library's function, or there is no lowering.
_NOT_IN_DOUBLE = frozenset({"Acos", "Asin", "Atan", "Cos", "Erf", "Gelu", "Mish", "Sin", "Tan", "Tanh"})
# Of these IREE's code for Vulkan takes the bits of float64 for those of float32, or is refused.
_NOT_IN_DOUBLE_ON_VULKAN = _NOT_IN_DOUBLE | {
    *("Acosh", "Asinh", "Atanh", "Celu", "Cosh", "Elu", "Exp", "Log", "LogSoftmax", "Pow", "ReduceLogSum"),
    *("ReduceLogSumExp", "Selu", "Sigmoid", "Sinh", "Softmax", "Softplus", "Swish"),
}
_ELEMENT_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}


def check_prepared(model: ModelProto) -> None:
    """Check a prepared model.

    Raises:
        UnsupportedModelError: the model is not valid ONNX, an input or output is not a tensor of static shape, a value
            has an unknown rank or is too large, or IREE compiles an operator to wrong results.
    """
    editor = GraphEditor(model.graph)
    for value in (*model.graph.input, *model.graph.output):
        _check_signature(value, editor)
    try:
        checker.check_model(weights_as_inputs(model))
    except (checker.ValidationError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UnsupportedModelError(f"the model is not valid ONNX: {first}") from None
    for value in model.graph.input:
        _check_size(value.name, f"input '{value.name}' is", editor)
    for node in editor.nodes:
        _check_results(node, editor)
        _check_reads(node, editor)
    for edited in editors(model.graph):
        for node in edited.nodes:
            _check_lowering(node, edited)


def has_doubles(model: ModelProto) -> bool:
    """Whether a value is float64; in other models IREE's importer adds such numbers, which some code cannot hold."""
    return any(
        editor.element_type(name) == TensorProto.DOUBLE
        for editor in editors(model.graph)
        for node in editor.nodes
        for name in (*node.input, *node.output)
        if name
    )


def check_doubles(prepared: PreparedModel, device: str, advice: str = "cast around it") -> None:
    """Check a model whose values of float64 are not lowered as float32, for a kind of device.

    Args:
        prepared: the model.
        device: the kind of device.
        advice: what to do if it cannot be computed.

    Raises:
        UnsupportedModelError: IREE lacks an operator in float64; the message names the node.
    """
    for editor in editors(prepared.model.graph):
        for node in editor.nodes:
            if _is_missing(node, editor, device):
                told = f"{describe_node(node)} computes in float64, which IREE 3.13 lacks for this operator"
                error = UnsupportedModelError(f"{told}; {advice}")
                raise naming_origins(error, prepared.described)


def check_sizes(model: ModelProto) -> tuple[str, ...]:
    """Check the sizes of all values, before rewrites compute tables for them; changes nothing.

    Raises:
        UnsupportedModelError: a value is too large.
    """
    editor = GraphEditor(model.graph)
    for node in editor.nodes:
        for name in node.output:
            # Types that rewrites leave open are inferred later.
            if name and editor.element_type(name) in _ELEMENT_TYPES:
                _check_size(name, f"{describe_node(node)} computes", editor)
    return ()


def check_negative(model: ModelProto) -> tuple[str, ...]:
    """Check that no size is negative before onnxslim infers shapes, which slices of one let end; changes nothing.

    Raises:
        UnsupportedModelError: a value has a negative size, and there are slices.
    """
    editor = GraphEditor(model.graph)
    if any(node.op_type == "Slice" for node in editor.nodes):
        for node in editor.nodes:
            _check_negative(node, editor)
    return ()


def check_training(model: ModelProto) -> tuple[str, ...]:
    """Check that no Dropout drops values, before onnxslim removes each of them; changes nothing.

    Raises:
        UnsupportedModelError: a Dropout is in training mode, or may be.
    """
    for editor in editors(model.graph):
        for node in editor.nodes:
            if _may_train(node, editor):
                raise UnsupportedModelError(
                    f"{describe_node(node)} draws random numbers, so that no result could be checked; "
                    "export the model for inference"
                )
    return ()


def _is_missing(node: NodeProto, editor: GraphEditor, device: str) -> bool:
    if node.domain or editor.element_type(node.input[0]) != TensorProto.DOUBLE:
        return False
    missing = _NOT_IN_DOUBLE_ON_VULKAN if device == VULKAN else _NOT_IN_DOUBLE
    return node.op_type in missing


def _check_signature(value: ValueInfoProto, editor: GraphEditor) -> None:
    if value.type.tensor_type.elem_type not in _ELEMENT_TYPES:
        raise UnsupportedModelError(
            f"'{value.name}' is not a tensor of numbers; only those are supported: give the part of the model between "
            "tensors of numbers, as onnx.utils.extract_model cuts it out"
        )
    if static_shape(value.type) is None:
        node = editor.producer(value.name)
        computed = f", computed by {describe_node(node)}," if node is not None else ""
        raise UnsupportedModelError(
            f"the shape of '{value.name}'{computed} depends on the data, and has no upper bound that is known; "
            f"end the model before it{_or_constant(value.name, editor)}"
        )


def _or_constant(name: str, editor: GraphEditor) -> str:
    """What else to do about an open shape."""
    origin = open_origin(name, editor)
    return "" if origin is None else f", or give {describe_node(origin)} operands that are constant"


def _check_size(name: str, what: str, editor: GraphEditor) -> None:
    rank = editor.rank(name) or 0
    if rank > MAX_RANK:
        raise UnsupportedModelError(f"{what} a value of {rank} dimensions; at most {MAX_RANK} are supported")
    size = math.prod(editor.shape(name) or ()) * element_bits(editor.element_type(name)) // 8
    if size > MAX_VALUE_BYTES:
        raise UnsupportedModelError(
            f"{what} a value of {size} bytes, more than the {MAX_VALUE_BYTES} that are supported; "
            "bind smaller dimensions"
        )


def _check_results(node: NodeProto, editor: GraphEditor) -> None:
    for name in node.output:
        if name and editor.rank(name) is None:
            raise UnsupportedModelError(
                f"the rank of '{name}', computed by {describe_node(node)}, cannot be known before it runs; "
                f"only tensors of known rank are supported; end the model before it{_or_constant(name, editor)}"
            )
        if name:
            _check_size(name, f"{describe_node(node)} computes", editor)
    _check_negative(node, editor)


def _check_negative(node: NodeProto, editor: GraphEditor) -> None:
    for name in node.output:
        if name and min(editor.shape(name) or (0,), default=0) < 0:
            is_given = node.op_type in SIZED and not node.domain
            cause = "is given a size below zero; give other" if is_given else "reads what is too small; give larger"
            raise UnsupportedModelError(
                f"{describe_node(node)} computes a value of shape {list(editor.shape(name) or ())}, as it {cause} "
                "inputs with --shape, or export the model again"
            )


def _check_reads(node: NodeProto, editor: GraphEditor) -> None:
    """Make sure that what a node makes of its input to read it, which is no value of the model, has a possible size."""
    settings, shape = attributes(node), editor.shape(node.input[0]) if node.input else None
    if shape is None or node.domain:
        return
    if node.op_type == "DepthToSpace" and shape[1] % settings["blocksize"] ** 2:
        raise UnsupportedModelError(
            f"{describe_node(node)} makes blocks of {settings['blocksize']} x {settings['blocksize']} of {shape[1]} "
            "channels, which that does not divide; export the model again"
        )
    if node.op_type == "ScatterND" and (numbers := (editor.shape(node.input[1]) or (0,))[-1]) > len(shape):
        # IREE 3.13 crashes.
        raise UnsupportedModelError(
            f"{describe_node(node)} has indices of {numbers} numbers for a value of {len(shape)} dimensions; "
            "export the model again"
        )
    if node.op_type in _PADDING:
        size = (
            math.prod([*shape[:2], *_padded(shape[2:], settings)])
            * element_bits(editor.element_type(node.input[0]))
            // 8
        )
        if size > MAX_VALUE_BYTES:
            raise UnsupportedModelError(
                f"{describe_node(node)} pads its input to {size} bytes, more than the {MAX_VALUE_BYTES} that are "
                "supported; use a smaller kernel_shape and smaller pads"
            )
        _check_window(node, editor)


def _check_window(node: NodeProto, editor: GraphEditor) -> None:
    """Refuse a window that does not fit: there is none, but ONNX's shape inference rounds a negative rest up to one."""
    window, result = window_of(node, editor), editor.shape(node.output[0])
    if window is None or result is None:
        return
    for axis, size in enumerate(result[2:]):
        if size > 0 and window.unread(axis) < 0:
            raise UnsupportedModelError(
                f"{describe_node(node)} has a window of {window.extent(axis)} elements over an input of "
                f"{sum(window.pads[axis], window.sizes[axis])} with its padding, into which it does not fit; "
                "give larger inputs with --shape, or export the model again"
            )


def _padded(sizes: Sequence[int], settings: Mapping[str, Any]) -> list[int]:
    """The sizes of an image with what a window's attributes add to its ends; prepared models have no ``auto_pad``."""
    rank = len(sizes)
    pads = settings.get("pads", [0] * 2 * rank)
    return [size + pads[axis] + pads[axis + rank] for axis, size in enumerate(sizes)]


def _check_lowering(node: NodeProto, editor: GraphEditor) -> None:
    reason = _WRONG.get(node.op_type) if not node.domain else None
    if reason is not None and (what := reason(node, editor)):
        raise UnsupportedModelError(
            f"{describe_node(node)} is not supported: IREE 3.13 compiles {what} to wrong results; "
            f"{_ADVICE.get(node.op_type, 'replace the operator')} before exporting"
        )


def _may_train(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is a Dropout that may drop values, as in training."""
    mode = optional_input(node, 2) if node.op_type == "Dropout" and not node.domain else ""
    if not mode:
        return False
    ratio = editor.constant(optional_input(node, 1))
    known = editor.constant(mode)
    return (known is None or bool(known.any())) and (ratio is None or bool(ratio.any()))


def _grid_sample(node: NodeProto, editor: GraphEditor) -> str:
    # gather_grid_sample replaces the other kinds. For these IREE reads outside the image.
    if editor.element_type(node.input[1]) not in (TensorProto.FLOAT, 0):
        return "GridSample at positions that are not float32"
    is_cubic = attributes(node).get("mode") in ("cubic", "bicubic")
    return "cubic GridSample of volumes" if is_cubic else "GridSample of so many pixels"


def _average_pool(node: NodeProto, editor: GraphEditor) -> str:
    # pad_rounded_up replaces ceil_mode, except for windows that ONNX counts although ONNX Runtime does not.
    return "AveragePool with windows after the input" if attributes(node).get("ceil_mode") else ""


def _determinant(node: NodeProto, editor: GraphEditor) -> str:
    # Lowered before, unless a matrix is larger.
    return "Det of matrices of more than five rows"


def _max_pool(node: NodeProto, editor: GraphEditor) -> str:
    # gather_pool_indices replaces the other kinds of windows.
    return "MaxPool with Indices of such windows" if len(node.output) > 1 else ""


def _loop(node: NodeProto, editor: GraphEditor) -> str:
    # It runs on: unroll_loops writes out those that are short, and a loop of suppression may run on.
    body = next(subgraphs(node), None)
    if body is None:
        return "Loop without a body"
    if body.name == SUPPRESSION_BODY:
        return ""
    if not begins(node, editor):
        return "Loop that may not begin"
    return "" if goes_on(body, editor) else "Loop whose body decides when it ends"


# Found by running ONNX's operator tests.
_WRONG: Mapping[str, Callable[[NodeProto, GraphEditor], str]] = {
    "AveragePool": _average_pool,
    "Det": _determinant,
    "GridSample": _grid_sample,
    "Loop": _loop,
    "MaxPool": _max_pool,
}
# What a loop needs to be written otherwise.
_ADVICE: Mapping[str, str] = {
    "Loop": "give it a number of steps that a constant bounds, states of one shape, and in a branch no rows to collect,"
}
