"""Convolutions of images with channels last, by ONNX Runtime's Conv on images with channels first.

NhwcConv stores its filter as [M, kH, kW, C / groups] (ONNX Runtime's ``nhwc_conv_op_test``; the text of its schema was
copied from Conv's), NhwcFusedConv as Conv does, [M, C / groups, kH, kW], as its schema and ``conv_fp16_test`` have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sartor.reference.trusted.oracles.activations import activated
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded
from sartor.reference.trusted.oracles.standard import evaluate
from sartor.runtime.driver.signature import Array

_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_OPSET = 17


def nhwc_conv(call: Call) -> list[Array]:
    """NhwcConv."""
    image, weight = call.given(0), call.given(1)
    result = _convolved(call, image, np.moveaxis(weight, -1, 1), call.input(2))
    return [rounded(result, image)]


def nhwc_fused_conv(call: Call) -> list[Array]:
    """NhwcFusedConv: what is added comes before the activation."""
    image, added = call.given(0), call.input(3)
    result = _convolved(call, image, call.given(1), call.input(2))
    if added is not None:
        result = result + added.astype(np.float64)
    parameters: Sequence[float] = call.attributes.get("activation_params", ())
    return [rounded(activated(call.text("activation"), result, parameters), image)]


def fused_conv(call: Call) -> list[Array]:
    """FusedConv, for activations that ONNX Runtime's kernel does not know."""
    image, added = call.given(0), call.input(3)
    last = np.moveaxis(image, 1, -1)
    result = np.moveaxis(_convolved(call, last, call.given(1), call.input(2)), -1, 1)
    if added is not None:
        result = result + added.astype(np.float64)
    parameters: Sequence[float] = call.attributes.get("activation_params", ())
    return [rounded(activated(call.text("activation"), result, parameters), image)]


def _convolved(call: Call, image: Array, weight: Array, bias: Array | None) -> Array:
    """A convolution of images with channels last by a filter with channels second, not rounded to narrow types."""
    attributes = {name: value for name, value in call.attributes.items() if name in _ATTRIBUTES}

    operands = [np.moveaxis(image, -1, 1), weight, *([] if bias is None else [bias])]
    (result,) = evaluate("Conv", [operand.astype(np.float32) for operand in operands], attributes, _OPSET)
    return np.moveaxis(result, 1, -1).astype(np.float64)
