"""Folds batch normalisation in inference mode into the convolution or Gemm before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused

# Axis of the output channels in the weight; a transposed Gemm differs.
_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1}


@dataclass(frozen=True)
class _Affine:
    """Batch normalisation as an affine function of channel c: ``scale[c] * x + shift[c]``, in double precision."""

    scale: Array
    shift: Array


def fold_batch_norm(model: ModelProto) -> tuple[str, ...]:
    """Fold batch normalisations into the weights and bias of a convolution or Gemm whose result they alone read.

    ``W'[c] = s[c] W[c]`` and ``b'[c] = s[c] (b[c] - mean[c]) + beta[c]`` with ``s = gamma / sqrt(var + eps)``
    (Ioffe and Szegedy 2015, section 3.1), computed in double precision and rounded once. Returns the names of the
    folded normalisations.
    """
    editor = GraphEditor(model.graph)
    folded = editor.rewrite(lambda node: [] if _fold_into_producer(node, editor) else None)
    if folded:
        drop_unused(model)
    return folded


def _fold_into_producer(norm: NodeProto, editor: GraphEditor) -> bool:
    if norm.op_type != "BatchNormalization":
        return False
    root = editor.producer(norm.input[0])
    affine = _affine(norm, editor)
    if root is None or affine is None or editor.only_consumer(norm.input[0]) is None:
        return False
    if root.domain not in ("", "ai.onnx") or root.op_type not in _CHANNEL_AXIS:
        return False
    folded = _folded_weights(root, affine, editor)
    if folded is None:
        return False
    weight, bias = folded
    names = [root.input[0], editor.add_constant(f"{root.name}/weight", weight)]
    root.input[:] = [*names, editor.add_constant(f"{root.name}/bias", bias)]
    root.output[0] = norm.output[0]
    return True


def _affine(norm: NodeProto, editor: GraphEditor) -> _Affine | None:
    settings = attributes(norm)
    parameters = [editor.constant(name) for name in norm.input[1:5]]
    if settings.get("training_mode") or any(value is None for value in parameters):
        return None
    gamma, beta, mean, variance = (np.asarray(value, np.float64) for value in parameters)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + settings.get("epsilon", 1e-5))
        return _Affine(scale, beta - scale * mean)


def _folded_weights(root: NodeProto, affine: _Affine, editor: GraphEditor) -> tuple[Array, Array] | None:
    """The new weight and bias, or None if they are not constant or overflow the weight's type."""
    weight = editor.constant(root.input[1])
    bias_name = optional_input(root, 2)
    bias = editor.constant(bias_name) if bias_name else np.zeros(1)
    if weight is None or bias is None or weight.ndim < 2:
        return None
    settings = attributes(root)
    if root.op_type == "Gemm":
        bias = bias * settings.get("beta", 1.0)
        if settings.get("beta", 1.0) != 1.0:
            return None
    channels = len(affine.scale)
    # A column of a Gemm is one number for each row.
    if bias.size != 1 and bias.shape not in ((channels,), (1, channels)):
        return None
    shifted = affine.scale * bias.reshape(-1).astype(np.float64) + affine.shift
    with np.errstate(over="ignore"):
        scaled = _scale_channels(root, weight, affine.scale, settings)
        if scaled is None:
            return None
        result = scaled, shifted.astype(weight.dtype)
    return result if all(np.isfinite(values).all() for values in result) else None


def _scale_channels(root: NodeProto, weight: Array, scale: Array, settings: dict[str, int]) -> Array | None:
    group = settings.get("group", 1)
    if root.op_type == "ConvTranspose":
        if weight.shape[1] * group != len(scale):
            return None
        grouped = weight.reshape(group, -1, *weight.shape[1:])
        factors = scale.reshape(group, 1, -1, *[1] * (weight.ndim - 2))
        return _product(grouped, factors).reshape(weight.shape)
    axis = 0 if root.op_type == "Gemm" and settings.get("transB") else _CHANNEL_AXIS[root.op_type]
    if weight.shape[axis] != len(scale):
        return None
    return _product(weight, scale.reshape([-1 if index == axis else 1 for index in range(weight.ndim)]))


def _product(weight: Array, factors: Array) -> Array:
    """Multiply in double precision and round once, without a copy of all weights in double precision."""
    return np.multiply(weight, factors, out=np.empty(weight.shape, weight.dtype), dtype=np.float64, casting="unsafe")
