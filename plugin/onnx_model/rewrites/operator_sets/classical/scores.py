"""Scores of classifiers and regressors: what is computed of them at the end, and the labels that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.walk import describe_node

# Winitzki's approximation of the inverse of the error function, with the digits that ONNX Runtime has.
_PI, _WINITZKI, _ROOT_OF_2 = 3.14159, 0.147, 1.41421356
# Scores below this size count as zeros, which are left out.
_ZERO = 1e-7


def transformed(emit: Emitter, scores: str, transform: str, output: str) -> str:
    """Scores [rows, targets] after a ``post_transform``, as a value named ``output``.

    Raises:
        UnsupportedModelError: the transform is not known.
    """
    if transform not in _TRANSFORMS:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has the post_transform {transform!r}, which is not known"
        )
    return _TRANSFORMS[transform](emit, scores, output)


def _none(emit: Emitter, scores: str, output: str) -> str:
    return emit("Identity", scores, part="scores", output=output)


def _logistic(emit: Emitter, scores: str, output: str) -> str:
    return emit("Sigmoid", scores, part="logistic", output=output)


def _softmax(emit: Emitter, scores: str, output: str) -> str:
    return emit("Softmax", scores, part="softmax", output=output, axis=-1)


def _softmax_zero(emit: Emitter, scores: str, output: str) -> str:
    """A softmax of the scores that are not zero; zeros stay so."""
    best = emit("ArgMax", scores, part="best", axis=-1, keepdims=1)
    largest = emit("GatherElements", scores, best, part="largest", axis=1)
    size = emit("Abs", scores, part="size")
    counts = emit("Greater", size, emit.constant(_ZERO, "zero", np.float32), part="counts")
    terms = emit("Exp", emit("Sub", scores, largest, part="below"), part="terms")
    none = emit.constant(0.0, "none", np.float32)
    kept = emit("Where", counts, terms, none, part="kept")
    total = emit("ReduceSum", kept, emit.constant([-1], "axis"), part="total", keepdims=1)
    small = emit("Mul", scores, emit("Exp", emit("Neg", largest, part="lowest"), part="unit"), part="small")
    return emit("Div", emit("Where", counts, terms, small, part="either"), total, part="softmax_zero", output=output)


def _probit(emit: Emitter, scores: str, output: str) -> str:
    """The normal distribution's quantiles."""

    def number(value: float) -> str:
        return emit.constant(value, "probit", np.float32)

    centred = emit("Sub", emit("Mul", scores, number(2), part="double"), number(1), part="centre")
    below, above = (emit(name, number(1), centred, part="side") for name in ("Sub", "Add"))
    logarithm = emit("Log", emit("Mul", below, above, part="product"), part="logarithm")
    half = emit("Mul", logarithm, number(0.5), part="half")
    first = emit("Add", half, number(2 / (_PI * _WINITZKI)), part="first")
    second = emit("Mul", logarithm, number(1 / _WINITZKI), part="second")
    inner = emit("Sub", emit("Mul", first, first, part="square"), second, part="inner")
    root = emit("Sqrt", emit("Sub", emit("Sqrt", inner, part="root"), first, part="outer"), part="error_inverse")
    is_negative = emit("Less", centred, number(0), part="is_negative")
    signed = emit("Where", is_negative, emit("Neg", root, part="negative"), root, part="signed")
    return emit("Mul", signed, number(_ROOT_OF_2), part="probit", output=output)


_TRANSFORMS = {
    "LOGISTIC": _logistic,
    "NONE": _none,
    "PROBIT": _probit,
    "SOFTMAX": _softmax,
    "SOFTMAX_ZERO": _softmax_zero,
}


def both_scores(emit: Emitter, score: str, output: str, *, is_signed: bool, transform: str) -> str:
    """Scores of both classes [rows, 2] of the one that is computed [rows, 1].

    Args:
        emit: of the node.
        score: of the positive class.
        output: the name of the result.
        is_signed: whether the negative class has the opposite number; else both add up to one.
        transform: the post_transform: a logistic one is taken of opposite numbers, others have no effect.
    """
    if transform == "LOGISTIC":
        opposite = emit("Concat", emit("Neg", score, part="other"), score, part="both", axis=1)
        return _logistic(emit, opposite, output)
    one = emit.constant(1.0, "one", np.float32)
    other = emit("Neg", score, part="other") if is_signed else emit("Sub", one, score, part="other")
    return emit("Concat", other, score, part="both", output=output, axis=1)


def integer_labels(emit: Emitter, settings: Mapping[str, Any]) -> Array:
    """The labels of a classifier's classes; none if it lists none.

    Raises:
        UnsupportedModelError: labels that are read are texts.
    """
    if settings.get("classlabels_strings") and is_read(emit, 0):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} gives texts as labels, and modules compute with numbers only; train it with "
            "integers as labels, or cut the model to its probabilities by onnx.utils.extract_model"
        )
    names = settings.get("classlabels_ints") or settings.get("classlabels_int64s") or []
    return (
        np.asarray(names, np.int64)
        if names
        else np.arange(len(settings.get("classlabels_strings", [])), dtype=np.int64)
    )


def is_read(emit: Emitter, index: int) -> bool:
    """Whether a result of the node is an output, or is read by another node; it has a name in any case."""
    name = emit.node.output[index] if index < len(emit.node.output) else ""
    return bool(name) and (emit.editor.is_output(name) or bool(emit.editor.consumers(name)))


def best_label(emit: Emitter, scores: str, labels: Array, output: str) -> None:
    """Emit the label of the first of the largest scores, [rows]."""
    best = emit("ArgMax", scores, part="best", axis=1, keepdims=0)
    emit("Gather", emit.constant(labels, "labels"), best, part="label", output=output, axis=0)


def label_above(emit: Emitter, score: str, bound: float, pair: Sequence[int], output: str) -> None:
    """Emit the second label of a pair where a score [rows, 1] exceeds a bound, else the first; [rows]."""
    row = emit("Reshape", score, emit.constant([-1], "flat"), part="row")
    above = emit("Greater", row, emit.constant(bound, "bound", np.float32), part="above")
    low, high = (emit.constant(np.asarray(label, np.int64), "label") for label in pair)
    emit("Where", above, high, low, part="label", output=output)


def rows_of_features(emit: Emitter, name: str, *, keeps_double: bool = False) -> str | None:
    """What a model reads as rows of features [rows, features] in float32; None if its shape is not known yet.

    Raises:
        UnsupportedModelError: it has more than two dimensions.
    """
    shape = emit.editor.shape(name)
    if shape is None:
        return None
    if not 1 <= len(shape) <= 2:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} reads a tensor of {len(shape)} dimensions, where rows of features were "
            "expected"
        )
    if len(shape) == 1:
        name = emit("Unsqueeze", name, emit.constant([0], "row"), part="rows")
    kept = (np.float32, np.float64) if keeps_double else (np.float32,)
    kind = emit.dtype(emit.node.input[0])
    return name if kind in kept else emit("Cast", name, part="floats", to=TensorProto.FLOAT)
