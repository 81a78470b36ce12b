"""Lowers ONNX Runtime's fused float operators to the standard operators from which it fused them.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.arithmetic.activations import emit_tanh_gelu
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

# Where a node names none: of the standard operators, and of what ONNX Runtime fuses with additions.
_EPSILON, _FUSED_EPSILON = 1e-5, 1e-12

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Attributes of the activations that ONNX Runtime fuses, in the order of declaration."""


def _activate(emit: Emitter, value: str, name: str, parameters: Mapping[str, Any], output: str) -> None:
    """Emit the activation of a FusedConv or FusedGemm."""
    if name == "Clip":
        bounds = [emit.like(bound, emit.node.input[0], "bound") for bound in parameters.values()]
        emit("Clip", value, *bounds, part="activation", output=output)
        return
    if name not in _PARAMETERS:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has the activation {name!r}, which is not known; "
            "compile the model as it was before ONNX Runtime optimised it"
        )
    emit(name, value, part="activation", output=output, **parameters)


def _fused_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit, settings, output = Emitter(editor, node), attributes(node), node.output[0]
    kept = {key: value for key, value in settings.items() if not key.startswith("activation")}
    addend, activation = optional_input(node, 3), settings.get("activation")
    result = emit(
        "Conv",
        *[name for name in node.input[:3] if name],
        output="" if addend or activation else output,
        **kept,
    )
    if addend:
        result = emit("Add", result, addend, part="add", output="" if activation else output)
    if activation:
        keys = _PARAMETERS.get(activation, ("min", "max"))
        given = map(float, settings.get("activation_params") or [])
        _activate(emit, result, activation, dict(zip(keys, given, strict=False)), output)
    return emit.nodes


def _fused_gemm(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit, settings = Emitter(editor, node), attributes(node)
    kept = {key: value for key, value in settings.items() if not key.startswith("activation")}
    result = emit("Gemm", *node.input, **kept)
    name = settings.get("activation", "Relu")
    keys = {key: f"activation_{key}" for key in _PARAMETERS.get(name, ())}
    _activate(
        emit,
        result,
        name,
        {parameter: settings[key] for parameter, key in keys.items() if key in settings},
        node.output[0],
    )
    return emit.nodes


def _fused_matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    emit, settings = Emitter(editor, node), attributes(node)
    operands = []
    for name, side, part in ((node.input[0], "A", "left"), (node.input[1], "B", "right")):
        rank = editor.rank(name)
        if rank is None:
            return None
        order = list(range(rank))
        if settings.get(f"transBatch{side}") and rank > 2:
            # From [rows, batches, columns].
            order = [*order[1:-1], 0, rank - 1]
        if settings.get(f"trans{side}") and rank > 1:
            order[-2:] = order[:-3:-1]
        if order != sorted(order):
            name = emit("Transpose", name, part=f"{part}_transpose", perm=order)
        operands.append(name)
    alpha = settings.get("alpha", 1.0)
    product = emit("MatMul", *operands, output="" if alpha != 1.0 else node.output[0])
    if alpha != 1.0:
        emit("Mul", product, emit.like(alpha, node.input[0], "alpha"), part="scale", output=node.output[0])
    return emit.nodes


def _gelu(emit: Emitter, value: str, output: str = "") -> str:
    """``x (1 + erf(x / sqrt 2)) / 2`` (Hendrycks and Gimpel 2016)."""
    half, one = emit.like(0.5, emit.node.input[0], "half"), emit.like(1.0, emit.node.input[0], "one")
    scaled = emit("Mul", value, emit.like(math.sqrt(0.5), emit.node.input[0], "sqrt_half"), part="scale")
    cdf = emit("Add", emit("Erf", scaled), one, part="add_one")
    return emit("Mul", emit("Mul", value, half, part="half"), cdf, part="product", output=output)


def _exact_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    _gelu(emit, node.input[0], node.output[0])
    return emit.nodes


def _bias_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    _gelu(emit, emit("Add", node.input[0], node.input[1], part="bias"), node.output[0])
    return emit.nodes


def _bias_split_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """The left half of ``x + bias`` times the GELU of the right half, as gates of diffusion networks have it."""
    shape, width = editor.shape(node.input[0]), editor.shape(node.input[1])
    last = shape[-1] if shape else width[0] if width else None
    if last is None:
        return None
    emit = Emitter(editor, node)
    biased = emit("Add", node.input[0], node.input[1], part="bias")
    sizes = emit.constant([last // 2, last // 2], "sizes")
    left, right = emit.many("Split", biased, sizes, part="split", outputs=("", ""), axis=-1)
    emit("Mul", left, _gelu(emit, right), part="gate", output=node.output[0])
    return emit.nodes


def _fast_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit, source, bias = Emitter(editor, node), node.input[0], optional_input(node, 1)
    value = emit("Add", source, bias, part="bias") if bias else source
    emit_tanh_gelu(emit, value)
    return emit.nodes


def _quick_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit, source = Emitter(editor, node), node.input[0]
    alpha = emit.like(attributes(node).get("alpha", 1.702), source, "alpha")
    gate = emit("Sigmoid", emit("Mul", source, alpha, part="scale"))
    emit("Mul", source, gate, part="product", output=node.output[0])
    return emit.nodes


def _bias_add(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    biased = emit("Add", node.input[0], node.input[1], part="bias")
    emit("Add", biased, node.input[2], output=node.output[0])
    return emit.nodes


def _outputs(node: NodeProto, count: int) -> list[str]:
    return [node.output[index] if index < len(node.output) else "" for index in range(count)]


def _refuse_statistics(node: NodeProto, names: list[str], editor: GraphEditor) -> None:
    if any(name and (editor.consumers(name) or editor.is_output(name)) for name in names):
        raise UnsupportedModelError(
            f"{describe_node(node)} returns its mean or deviation, which only training needs; "
            "export the model for inference"
        )


def _layer_norm(emit: Emitter, value: str, gamma: str, beta: str, output: str, usual: float = _EPSILON) -> None:
    inputs = [value, gamma, *([beta] if beta else [])]
    settings = attributes(emit.node)
    emit(
        "LayerNormalization",
        *inputs,
        output=output,
        axis=settings.get("axis", -1),
        epsilon=settings.get("epsilon", usual),
    )


def _rms_norm(
    emit: Emitter, value: str, gamma: str, output: str, usual: float = _EPSILON, axis: int = -1, kind: int = 0
) -> None:
    """``x / sqrt(mean(x^2) + eps) * gamma`` from ``axis`` (< 0) on (Zhang and Sennrich 2019), in float32.

    The result has the type ``kind``, or that of the node's first input.
    """
    source, epsilon = emit.node.input[0], attributes(emit.node).get("epsilon", usual)
    wide = emit("Cast", value, part="widen", to=TensorProto.FLOAT)
    square = emit("Mul", wide, wide, part="square")
    total = emit("ReduceSum", square, emit.constant(list(range(axis, 0)), "axes"), part="sum", keepdims=1)
    # The shape may not be known yet, and that of gamma does not tell: it may be spread over the values.
    sizes = emit("Shape", value, part="sizes", start=axis)
    count = emit("Cast", emit("ReduceProd", sizes, part="product", keepdims=0), part="count", to=TensorProto.FLOAT)
    mean = emit(
        "Add",
        emit("Div", total, count, part="mean"),
        emit.constant(epsilon, "epsilon", "float32"),
        part="epsilon",
    )
    normal = emit("Div", wide, emit("Sqrt", mean, part="root"))
    narrow = emit("Cast", normal, part="narrow", to=kind or helper.np_dtype_to_tensor_dtype(emit.dtype(source)))
    emit("Mul", narrow, gamma, part="scale", output=output)


def _layer_normalization(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """Of ONNX Runtime, whose scale and bias may have another type than the values; the result then has theirs."""
    _refuse_statistics(node, list(node.output[1:]), editor)
    emit, output = Emitter(editor, node), node.output[0]
    value, gamma, beta = node.input[0], node.input[1], optional_input(node, 2)
    kinds = {editor.element_type(value), editor.element_type(gamma)}
    if 0 in kinds or len(kinds) == 1:
        _layer_norm(emit, value, gamma, beta, output)
        return emit.nodes
    wide = TensorProto.DOUBLE if TensorProto.DOUBLE in kinds else TensorProto.FLOAT
    value, gamma, beta = (name and emit("Cast", name, part="widen", to=wide) for name in (value, gamma, beta))
    normal = editor.fresh(f"{output}/normal")
    _layer_norm(emit, value, gamma, beta, normal)
    emit("Cast", normal, part="narrow", output=output, to=editor.element_type(node.input[1]))
    return emit.nodes


def _simplified_layer_normalization(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Over the dimensions from ``axis`` on; the result has the type of the scale."""
    _refuse_statistics(node, list(node.output[1:]), editor)
    axis, rank, kind = attributes(node).get("axis", -1), editor.rank(node.input[0]), editor.element_type(node.input[1])
    if (axis >= 0 and rank is None) or not kind:
        return None
    emit = Emitter(editor, node)
    _rms_norm(emit, node.input[0], node.input[1], node.output[0], axis=axis if axis < 0 else axis - rank, kind=kind)
    return emit.nodes


def _skip_sum(emit: Emitter, bias: str, output: str) -> str:
    node = emit.node
    total = emit("Add", node.input[0], node.input[1], part="skip", output="" if bias else output)
    return emit("Add", total, bias, part="bias", output=output) if bias else total


def _skip_layer_normalization(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    output, mean, deviation, total = _outputs(node, 4)
    _refuse_statistics(node, [mean, deviation], editor)
    emit = Emitter(editor, node)
    value = _skip_sum(emit, optional_input(node, 4), total)
    _layer_norm(emit, value, node.input[2], optional_input(node, 3), output, _FUSED_EPSILON)
    return emit.nodes


def _skip_simplified_layer_normalization(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    output, mean, deviation, total = _outputs(node, 4)
    _refuse_statistics(node, [mean, deviation], editor)
    emit = Emitter(editor, node)
    _rms_norm(emit, _skip_sum(emit, optional_input(node, 3), total), node.input[2], output, _FUSED_EPSILON)
    return emit.nodes


def _embed_layer_normalization(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """BERT's first layer: sum and normalise word, position and segment embeddings."""
    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    emit = Emitter(editor, node)
    output, mask_index, total = _outputs(node, 3)
    segments, positions = optional_input(node, 1), optional_input(node, 8)
    positions = positions or emit.constant([list(range(shape[1]))], "positions")  # type: ignore[list-item]
    words = emit("Gather", node.input[2], node.input[0], part="words", axis=0)
    places = emit("Gather", node.input[3], positions, part="positions", axis=0)
    value = emit("Add", words, places, part="add_positions", output="" if segments else total)
    if segments:
        kinds = emit("Gather", node.input[4], segments, part="segments", axis=0)
        value = emit("Add", value, kinds, part="add_segments", output=total)
    _layer_norm(emit, value, node.input[5], node.input[6], output, _FUSED_EPSILON)
    if mask_index and (mask := optional_input(node, 7)):
        emit("ReduceSum", mask, emit.constant([1], "axes"), part="mask_index", output=mask_index, keepdims=0)
    elif mask_index:
        # ONNX Runtime counts nothing where there is no mask.
        emit("Identity", emit.constant(np.zeros(shape[0]), "lengths", np.int32), part="mask_index", output=mask_index)
    return emit.nodes


FUSED_FLOATS: Mapping[str, Lowering] = {
    "BiasAdd": _bias_add,
    "BiasGelu": _bias_gelu,
    "BiasSplitGelu": _bias_split_gelu,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _exact_gelu,
    "LayerNormalization": _layer_normalization,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
    "TransposeMatMul": _fused_matmul,
}
