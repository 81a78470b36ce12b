"""Lowers models of support vectors to products, their kernels' functions and votes of pairs of classes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering
from sartor.onnx_model.rewrites.operator_sets.classical.scores import (
    best_label,
    both_scores,
    integer_labels,
    is_read,
    rows_of_features,
    transformed,
)

_PAIR = 2


@dataclass(frozen=True)
class _Kernel:
    """A kernel function, by its name and its parameters."""

    name: str
    gamma: float
    offset: float
    degree: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> _Kernel:
        gamma, offset, degree = [*settings.get("kernel_params", []), 0.0, 0.0, 0.0][:3]
        return cls(settings.get("kernel_type", "LINEAR"), gamma, offset, degree)

    def applied(self, emit: Emitter, rows: str, vectors: Array) -> str:
        """The function of rows of features and vectors [vectors, features]: [rows, vectors].

        Raises:
            UnsupportedModelError: the function is not known.
        """
        if self.name == "RBF":
            return self._by_distance(emit, rows, vectors)
        matrix = emit.constant(np.ascontiguousarray(vectors.T), "vectors")
        product = emit("MatMul", rows, matrix, part="product")
        if self.name == "LINEAR":
            return product
        scaled = emit("Mul", product, _number(emit, self.gamma), part="gamma")
        moved = emit("Add", scaled, _number(emit, self.offset), part="offset")
        if self.name == "POLY":
            return emit("Pow", moved, _number(emit, self.degree), part="power")
        if self.name == "SIGMOID":
            return emit("Tanh", moved, part="kernel")
        raise UnsupportedModelError(f"{describe_node(emit.node)} has the kernel {self.name!r}, which is not known")

    def _by_distance(self, emit: Emitter, rows: str, vectors: Array) -> str:
        raised = emit("Unsqueeze", rows, emit.constant([1], "axis"), part="raise")
        difference = emit("Sub", raised, emit.constant(vectors, "vectors"), part="difference")
        square = emit("Mul", difference, difference, part="square")
        distance = emit("ReduceSum", square, emit.constant([2], "features"), part="distance", keepdims=0)
        return emit("Exp", emit("Mul", distance, _number(emit, -self.gamma), part="gamma"), part="kernel")


def _number(emit: Emitter, value: float) -> str:
    return emit.constant(value, "parameter", np.float32)


def _regressor(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``SVMRegressor(x)``: one column; of one class its sign."""
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0])
    if rows is None:
        return None
    coefficients, rho = (np.asarray(settings[name], np.float32) for name in ("coefficients", "rho"))
    count = settings.get("n_supports", 0)
    if count:
        vectors = np.asarray(settings["support_vectors"], np.float32).reshape(count, -1)
        rows = _Kernel.of(settings).applied(emit, rows, vectors)
    is_class = bool(settings.get("one_class"))
    matrix, bias = emit.constant(coefficients[:, None], "coefficients"), emit.constant(rho[:1], "rho")
    score = emit("Gemm", rows, matrix, bias, output="" if is_class else node.output[0])
    if is_class:
        above = emit("Greater", score, _number(emit, 0), part="above")
        emit("Where", above, _number(emit, 1), _number(emit, -1), part="sign", output=node.output[0])
    return emit.nodes


def _classifier(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``SVMClassifier(x)`` by support vectors: a score for each pair of classes, and the label with most votes.

    Of two classes both have a score.
    """
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0])
    if rows is None:
        return None
    labels, transform, counts = (
        integer_labels(emit, settings),
        settings.get("post_transform", "NONE"),
        settings.get("vectors_per_class") or [],
    )
    _check(node, settings, labels, transform)
    vectors = np.asarray(settings["support_vectors"], np.float32).reshape(sum(counts), -1)
    values = _Kernel.of(settings).applied(emit, rows, vectors)
    matrix = _by_pair(np.asarray(settings["coefficients"], np.float32).reshape(-1, len(vectors)), counts)
    pairs = matrix.shape[1]
    rho = emit.constant(np.asarray(settings["rho"][:pairs], np.float32), "rho")
    scores = emit("Gemm", values, emit.constant(matrix, "coefficients"), rho)
    if is_read(emit, 0):
        best_label(emit, _votes(emit, scores, len(labels)), labels, node.output[0])
    if is_read(emit, 1) and pairs > 1:
        transformed(emit, scores, transform, node.output[1])
    elif is_read(emit, 1):
        both_scores(emit, scores, node.output[1], is_signed=transform == "NONE", transform=transform)
    return emit.nodes


def _check(node: NodeProto, settings: Mapping[str, Any], labels: Array, transform: str) -> None:
    if not settings.get("vectors_per_class") or (len(labels) == _PAIR and transform == "PROBIT"):
        raise UnsupportedModelError(
            f"{describe_node(node)} has no support vectors, or scores that ONNX does not define; train the model by "
            "sklearn.svm.SVC, or as a linear classifier"
        )
    if settings.get("prob_a"):
        raise UnsupportedModelError(
            f"{describe_node(node)} couples probabilities of pairs of classes until they change little, which is not "
            "supported; train it with probability=False"
        )


def _by_pair(coefficients: Array, counts: list[int]) -> Array:
    """Coefficients [vectors, pairs] of those [classes - 1, vectors], which have a row less as no class meets itself."""
    ends = np.cumsum(counts)
    places = [slice(int(end) - count, int(end)) for end, count in zip(ends, counts, strict=True)]
    pairs = list(itertools.combinations(range(len(counts)), _PAIR))
    matrix = np.zeros((coefficients.shape[1], len(pairs)), np.float32)
    for column, (first, second) in enumerate(pairs):
        matrix[places[first], column] = coefficients[second - 1, places[first]]
        matrix[places[second], column] = coefficients[first, places[second]]
    return matrix


def _votes(emit: Emitter, scores: str, classes: int) -> str:
    """How many pairs each class has won, [rows, classes], as numbers."""
    pairs = list(itertools.combinations(range(classes), _PAIR))
    wins, losses = np.zeros((len(pairs), classes), np.float32), np.zeros((len(pairs), classes), np.float32)
    for row, (first, second) in enumerate(pairs):
        wins[row, first], losses[row, second] = 1, 1
    won = emit("Greater", scores, _number(emit, 0), part="won")
    gained = emit(
        "MatMul", emit("Cast", won, part="wins", to=TensorProto.FLOAT), emit.constant(wins, "wins"), part="wins"
    )
    lost = emit("Cast", emit("Not", won, part="lost"), part="losses", to=TensorProto.FLOAT)
    return emit("Add", gained, emit("MatMul", lost, emit.constant(losses, "losses"), part="losses"), part="votes")


SUPPORT_VECTORS: Mapping[str, Lowering] = {"SVMClassifier": _classifier, "SVMRegressor": _regressor}
