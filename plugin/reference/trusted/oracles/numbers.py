"""Functions of arrays that definitions share, in float64."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from sartor.runtime.driver.signature import Array


def rounded(value: Array, like: Array) -> Array:
    """A result rounded once, to the element type of an operand."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(like.dtype)


def rounded_to(value: Array, kind: int | None, like: Array) -> Array:
    """A result rounded once, to a ``TensorProto.DataType``, or to the type of an operand where it is not known."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(like.dtype if kind is None else helper.tensor_dtype_to_np_dtype(kind))


def sigmoid(value: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    tail = np.exp(-np.abs(value))
    return np.asarray(np.where(value >= 0, 1 / (1 + tail), tail / (1 + tail)))


def erf(value: Array) -> Array:
    """The error function of each element."""
    return np.vectorize(math.erf, otypes=[np.float64])(value) if value.size else value.astype(np.float64)


def gelu(value: Array) -> Array:
    """x times the normal distribution's function of x, by erf."""
    return np.asarray(0.5 * value * (1 + erf(value / np.sqrt(2))))


def fast_gelu(value: Array) -> Array:
    """GELU by tanh: Hendrycks and Gimpel, Gaussian Error Linear Units, section 2."""
    return np.asarray(0.5 * value * (1 + np.tanh(np.sqrt(2 / np.pi) * (value + 0.044715 * value**3))))


def softmax(value: Array, axis: int = -1) -> Array:
    """exp(x) over its sum along an axis; rows without a finite number are zero."""
    highest = np.max(value, axis=axis, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(value - np.where(np.isfinite(highest), highest, 0))
    total = np.sum(powers, axis=axis, keepdims=True)
    return np.asarray(np.divide(powers, total, out=np.zeros_like(powers), where=total != 0))
