"""Lowers linear models to products: regressors, and classifiers with their labels and scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

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
    label_above,
    rows_of_features,
    transformed,
)

_PAIR = 2


def _regressor(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``LinearRegressor(x)``: one column for each target."""
    emit, settings = Emitter(editor, node), attributes(node)
    rows, targets = rows_of_features(emit, node.input[0]), settings.get("targets", 1)
    if rows is None:
        return None
    intercepts = settings.get("intercepts", [])
    biases = np.asarray(intercepts if len(intercepts) == targets else [0] * targets, np.float32)
    # Of a single target ONNX Runtime takes no other function than this.
    transform = settings.get("post_transform", "NONE")
    is_plain = transform == "NONE" or (targets == 1 and transform != "PROBIT")
    scores = _product(emit, rows, biases, node.output[0] if is_plain else "")
    if not is_plain:
        transformed(emit, scores, transform, node.output[0])
    return emit.nodes


def _classifier(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``LinearClassifier(x)``: the label of each row, and a score for each class.

    One row of coefficients is the second class's of two, whose label has to have a positive score.
    """
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0])
    if rows is None:
        return None
    biases = np.asarray(settings.get("intercepts", []), np.float32)
    labels = integer_labels(emit, settings)
    scores = _product(emit, rows, biases, "")
    if is_read(emit, 0):
        if len(biases) > 1:
            best_label(emit, scores, labels, node.output[0])
        else:
            pair = labels if len(labels) == _PAIR else np.arange(_PAIR)
            label_above(emit, scores, 0.0, [int(label) for label in pair], node.output[0])
    if is_read(emit, 1):
        _write_scores(emit, scores, len(biases), len(labels), node.output[1])
    return emit.nodes


def _write_scores(emit: Emitter, scores: str, targets: int, labels: int, output: str) -> None:
    """Emit a classifier's scores; a single one has no other function taken of it than is told of two classes."""
    transform = attributes(emit.node).get("post_transform", "NONE")
    if targets == 1 and labels == _PAIR and transform != "PROBIT":
        both_scores(emit, scores, output, is_signed=False, transform=transform)
    elif targets == 1 and labels == _PAIR:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has one row of coefficients and PROBIT for two classes, which ONNX does not "
            "define; convert the model again"
        )
    else:
        transformed(emit, scores, transform if targets > 1 or transform == "PROBIT" else "NONE", output)


def _product(emit: Emitter, rows: str, biases: Array, output: str) -> str:
    """Emit the product of rows of features and coefficients, with biases: [rows, targets]."""
    coefficients = np.asarray(attributes(emit.node)["coefficients"], np.float32)
    targets, features = len(biases), (emit.editor.shape(emit.node.input[0]) or (0,))[-1]
    if not targets or len(coefficients) != targets * features:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has {len(coefficients)} coefficients for {features} features and {targets} "
            "targets; convert the model again"
        )
    matrix = emit.constant(np.ascontiguousarray(coefficients.reshape(targets, features).T), "coefficients")
    return emit("Gemm", rows, matrix, emit.constant(biases, "intercepts"), output=output)


LINEAR: Mapping[str, Lowering] = {"LinearClassifier": _classifier, "LinearRegressor": _regressor}
