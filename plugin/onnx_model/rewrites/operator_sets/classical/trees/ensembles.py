"""Lowers ensembles of trees: regressors, classifiers, and the operator of opset 5 that stands for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    label_above,
    rows_of_features,
    transformed,
)
from sartor.onnx_model.rewrites.operator_sets.classical.trees.forest import Forest
from sartor.onnx_model.rewrites.operator_sets.classical.trees.leaves import multiplied, suits_products, walked
from sartor.onnx_model.rewrites.operator_sets.classical.trees.reading import listed_trees, numbers, separate_leaves


def refuse_repeated(emit: Emitter, settings: Mapping[str, Any], prefix: str) -> None:
    """Refuse leaves that have several values for a target, where ONNX Runtime does not add them up."""
    entries = [*zip(*(settings[f"{prefix}_{name}"] for name in ("treeids", "nodeids", "ids")), strict=True)]
    if len(set(entries)) < len(entries):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has several values of a leaf for one target, of which ONNX Runtime 1.32 takes "
            "one; list their sum in their place"
        )


def refuse_partial(emit: Emitter, forest: Forest, base: Array) -> None:
    """Refuse base values of several targets that ONNX Runtime adds in some rows alone: where a leaf has a value."""
    if len(base) > 1 and not all(forest.is_always_given(int(target)) for target in np.flatnonzero(base)):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a base value of a target for which leaves of each tree have no value, "
            "where ONNX Runtime 1.32 gives 0; give each leaf a value for each target, if need be 0"
        )


def refuse_single(emit: Emitter, settings: Mapping[str, Any]) -> None:
    """Refuse what ONNX Runtime does not compute, or computes otherwise, for a single class."""
    if settings.get("classlabels_strings"):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a text as its only class, which ends ONNX Runtime's process; train it "
            "with an integer as label"
        )
    if len(numbers(settings, "base_values", np.float32)) > 1:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has one class and several base values; give it one base value"
        )


# Each step of a walk is seven nodes, and a set of values to be equal to takes two steps for each.
_MOST_STEPS = 256
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_CONFUSED = {"LOGISTIC": "SOFTMAX", "SOFTMAX": "LOGISTIC"}
_PAIR = 2


def _regressor(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``TreeEnsembleRegressor(x)``: [rows, targets] in float32."""
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0], keeps_double=True)
    if rows is None:
        return None
    dtype = _compared_type(emit)
    targets, aggregate = settings.get("n_targets", 1), settings.get("aggregate_function", "SUM")
    if targets == 1 or aggregate in ("MIN", "MAX"):
        refuse_repeated(emit, settings, "target")
    forest = listed_trees(settings, "target", targets, dtype)
    scores = _aggregated(emit, forest, rows, aggregate)
    base = numbers(settings, "base_values", dtype)
    if len(base) == targets:
        refuse_partial(emit, forest, base)
        scores = emit("Add", scores, emit.constant(base, "base"), part="base")
    _finish(emit, _narrowed(emit, scores, dtype), settings.get("post_transform", "NONE"), targets, node.output[0])
    return emit.nodes


def _ensemble(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``TreeEnsemble(x)``: [rows, targets] in the type of x."""
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0], keeps_double=True)
    if rows is None:
        return None
    forest = separate_leaves(settings)
    aggregate, transform = (
        _AGGREGATES[settings.get("aggregate_function", 1)],
        _TRANSFORMS[settings.get("post_transform", 0)],
    )
    if transform in _CONFUSED:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {transform} as its post_transform, for which ONNX Runtime 1.32 takes "
            f"{_CONFUSED[transform]}; leave it out, and let what is meant of both read the node's result, a "
            "Softmax or a Sigmoid"
        )
    scores = _aggregated(emit, forest, rows, aggregate)
    if transform != "NONE" and settings["n_targets"] > 1:
        scores = transformed(emit, _narrowed(emit, scores, forest.values.dtype.type), transform, "")
    emit("Cast", scores, part="type", output=node.output[0], to=editor.element_type(node.input[0]))
    return emit.nodes


def _finish(emit: Emitter, scores: str, transform: str, targets: int, output: str) -> None:
    """Emit the post_transform of targets or classes; of a single one ONNX Runtime takes PROBIT alone."""
    transformed(emit, scores, transform if targets > 1 or transform == "PROBIT" else "NONE", output)


def _compared_type(emit: Emitter) -> Any:
    """The type in which features are compared and values added: that of doubles, or floats."""
    return np.float64 if emit.dtype(emit.node.input[0]) == np.float64 else np.float32


def _narrowed(emit: Emitter, scores: str, dtype: Any) -> str:
    return scores if dtype == np.float32 else emit("Cast", scores, part="floats", to=TensorProto.FLOAT)


def _aggregated(emit: Emitter, forest: Forest, rows: str, aggregate: str) -> str:
    """What the trees give together, [rows, targets], in the type of the thresholds.

    Raises:
        UnsupportedModelError: the trees are too deep, or leaves lack values of which the smallest or largest is taken.
    """
    if aggregate not in _AGGREGATES:
        raise UnsupportedModelError(f"{describe_node(emit.node)} has the aggregate {aggregate!r}, which is not known")
    depth = forest.depth(_MOST_STEPS)
    if depth is None:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a tree of more than {_MOST_STEPS} comparisons on a path; train it with a "
            "limit of depth"
        )
    features = emit("Transpose", rows, part="by_feature", perm=[1, 0])
    is_sum, is_float = aggregate in ("AVERAGE", "SUM"), forest.thresholds.dtype == np.float32
    if is_sum and is_float and suits_products(forest, depth):
        scores = multiplied(emit, forest, features)
    else:
        values = walked(emit, forest, features, max(depth, 1))
        scores = _total(emit, values) if is_sum else _extreme(emit, forest, values, aggregate)
    if aggregate == "AVERAGE":
        count = emit.constant(np.asarray(len(forest.roots), forest.thresholds.dtype), "trees")
        scores = emit("Div", scores, count, part="average")
    return scores


def _total(emit: Emitter, values: str) -> str:
    """The sum over trees, which are the first axis, so that it is made in their order."""
    return emit("ReduceSum", values, emit.constant([0], "trees_axis"), keepdims=0)


def _extreme(emit: Emitter, forest: Forest, values: str, aggregate: str) -> str:
    if not forest.has_value[forest.is_leaf].all():
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} takes the {aggregate} of values that some leaves do not have; give each leaf "
            "a value for each target"
        )
    place = emit("ArgMin" if aggregate == "MIN" else "ArgMax", values, part="extreme", axis=0, keepdims=1)
    best = emit("GatherElements", values, place, axis=0)
    return emit("Squeeze", best, emit.constant([0], "trees_axis"), part="best")


def _classifier(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``TreeEnsembleClassifier(x)``: the label of each row, and a score for each class in float32."""
    emit, settings = Emitter(editor, node), attributes(node)
    rows = rows_of_features(emit, node.input[0], keeps_double=True)
    if rows is None:
        return None
    dtype = _compared_type(emit)
    labels, transform = integer_labels(emit, settings), settings.get("post_transform", "NONE")
    if len(labels) == 1:
        refuse_single(emit, settings)
        refuse_repeated(emit, settings, "class")
    forest, base = listed_trees(settings, "class", len(labels), dtype), numbers(settings, "base_values", np.float32)
    scores = _narrowed(emit, _aggregated(emit, forest, rows, "SUM"), dtype)
    if len(labels) == _PAIR:
        _write_pair(_Pair(emit, forest, sorted(set(settings["class_ids"])), scores, base), labels, transform)
        return emit.nodes
    if len(base) == len(labels):
        scores = emit("Add", scores, emit.constant(base, "base"), part="base")
    if len(labels) == 1:
        _write_single(emit, scores, transform)
        return emit.nodes
    if is_read(emit, 0):
        _write_best(emit, forest, scores, labels, has_base=len(base) == len(labels))
    if is_read(emit, 1):
        transformed(emit, scores, transform, node.output[1])
    return emit.nodes


def _write_single(emit: Emitter, scores: str, transform: str) -> None:
    """Emit the label and score of a single class as ONNX Runtime does: 1 for a positive score and else 0, whatever the
    class is called."""
    if is_read(emit, 0):
        label_above(emit, scores, 0.0, (0, 1), emit.node.output[0])
    if is_read(emit, 1):
        _finish(emit, scores, transform, 1, emit.node.output[1])


def _write_best(emit: Emitter, forest: Forest, scores: str, labels: Array, *, has_base: bool) -> None:
    """Emit the label of the largest score among the classes that leaves or base values give scores to."""
    classes = range(len(labels))
    valued = [class_name for class_name in classes if has_base or forest.is_always_given(class_name)]
    others = [label for label in classes if label not in valued]
    if forest.has_value[:, others].any() and (forest.values < 0).any():
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has negative values, and leaves without a value for each class; give all "
            "leaves of a tree values for the same classes"
        )
    if forest.has_value[:, others].any():
        valued = [label for label in classes if forest.has_value[:, label].any()]
    if len(valued) < len(labels):
        scores = emit("Gather", scores, emit.constant(valued, "valued"), part="valued", axis=1)
    best_label(emit, scores, labels[valued], emit.node.output[0])


@dataclass(frozen=True)
class _Pair:
    """Scores of two classes.

    Attributes:
        emit: of the node.
        forest: the trees.
        weighted: the classes that leaves have values for.
        scores: [rows, 2].
        base: what is added to scores.
    """

    emit: Emitter
    forest: Forest
    weighted: list[int]
    scores: str
    base: Array

    def column(self, index: int) -> str:
        """Scores of a class, [rows, 1]."""
        return self.emit("Gather", self.scores, self.emit.constant([index], "class"), part="column", axis=1)


def _write_pair(pair: _Pair, labels: Array, transform: str) -> None:
    """Emit labels and scores of two classes as ONNX Runtime computes them, which the standard leaves open.

    Leaves may have values for the first class alone, which then are the second one's; for the second one; or for both,
    where the label is 1 if the second one's is positive, and else 0, whatever labels there are.
    """
    emit, node = pair.emit, pair.emit.node
    is_signed = bool((pair.forest.values < 0).any())
    has_first, has_second = 0 in pair.weighted, 1 in pair.weighted
    has_gaps = has_second and not pair.forest.is_always_given(1)
    has_gaps = has_gaps or bool(has_first and pair.base.any() and not pair.forest.is_always_given(0))
    if len(pair.base) > 1 or has_gaps or (not has_second and transform == "PROBIT"):
        raise UnsupportedModelError(
            f"{describe_node(node)} has two classes, and values or base values that ONNX does not define for them; "
            "convert the model again by skl2onnx or onnxmltools"
        )
    decides = pair.column(1 if has_second else 0)
    if has_first and len(pair.base):
        added = np.asarray([pair.base[0], 0] if has_second else pair.base, np.float32)
        base = emit.constant(added, "base")
        if has_second:
            pair = replace(pair, scores=emit("Add", pair.scores, base, part="base"))
        else:
            decides = emit("Add", decides, base, part="base")
    if is_read(emit, 0):
        chosen = [0, 1] if has_first and has_second else [int(label) for label in labels]
        bound = 0.0 if is_signed or (has_first and has_second) else 0.5
        label_above(emit, decides, bound, chosen, node.output[0])
    if is_read(emit, 1) and has_second:
        transformed(emit, pair.scores, transform, node.output[1])
    elif is_read(emit, 1):
        both_scores(emit, decides, node.output[1], is_signed=is_signed, transform=transform)


TREES: Mapping[str, Lowering] = {
    "TreeEnsemble": _ensemble,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
