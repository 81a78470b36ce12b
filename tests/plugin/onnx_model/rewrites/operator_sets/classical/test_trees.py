"""Ensembles of trees, by walks and by products, beside ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.classical.trees.leaves import suits_products
from sartor.onnx_model.rewrites.operator_sets.classical.trees.reading import listed_trees
from tests.plugin.onnx_model.conftest import Load, Prepare
from tests.plugin.onnx_model.rewrites.operator_sets.classical.conftest import Check, classical
from tests.plugin.onnx_model.rewrites.operator_sets.classical.trees import MODES, Trees

_BOTH = ("label", "scores")


@pytest.mark.parametrize("tracks_nan", [False, True])
@pytest.mark.parametrize("modes", [MODES[:1], MODES])
@pytest.mark.parametrize(("count", "depth"), [(1, 0), (5, 2), (20, 3), (20, 7)])
def test_regressors(count: int, depth: int, modes: tuple[str, ...], tracks_nan: bool, check: Check) -> None:
    trees = Trees(count + depth, modes, tracks_nan=tracks_nan)
    for aggregate, targets in (("SUM", 1), ("AVERAGE", 3)):
        given = trees.attributes("target", count, depth, range(targets))
        given |= {"n_targets": targets, "aggregate_function": aggregate, "base_values": [0.5] * targets}
        check("TreeEnsembleRegressor", [trees.rows(9)], **given)


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_extremes_and_doubles(aggregate: str, check: Check) -> None:
    trees = Trees(3)
    given = trees.attributes("target", 6, 4, range(2)) | {"n_targets": 2}
    check("TreeEnsembleRegressor", [trees.rows(1)], aggregate_function=aggregate, **given)
    check("TreeEnsembleRegressor", [trees.rows(5).astype(np.float64)], **given)


def test_shallow_trees_are_multiplied_and_deep_ones_walked(check: Check) -> None:
    trees = Trees(0)
    for depth, is_multiplied in ((3, True), (7, False)):
        given = trees.attributes("target", 8, depth, range(2))
        forest = listed_trees(given, "target", 2, np.float32)
        assert suits_products(forest, forest.depth(depth) or 0) is is_multiplied
        prepared = check("TreeEnsembleRegressor", [trees.rows(5)], n_targets=2, **given)
        assert ("MatMul" in {node.op_type for node in prepared.graph.node}) is is_multiplied


@pytest.mark.parametrize("depth", [2, 7])
def test_no_rows_have_no_scores(depth: int, check: Check) -> None:
    trees = Trees(5)
    given = trees.attributes("target", 8, depth, range(2))
    check("TreeEnsembleRegressor", [trees.rows(0)], n_targets=2, **given)


def test_rows_that_do_not_arrive_at_an_infinite_value_have_finite_scores(check: Check) -> None:
    trees = Trees(5)
    given = trees.attributes("target", 2, 2, [0])
    given["target_weights"][0] = float("inf")
    check("TreeEnsembleRegressor", [trees.rows(9)], n_targets=1, **given)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    ("classes", "weighted"), [(3, [0, 1, 2]), (4, [1, 2]), (2, [0]), (2, [1]), (2, [0, 1])], ids=str
)
def test_classifiers(classes: int, weighted: list[int], transform: str, check: Check) -> None:
    trees, labels = Trees(classes), [7, 5, 9, 2][:classes]
    for is_signed in (True, False):
        given = trees.attributes("class", 6, 4, weighted, is_signed=is_signed)
        given |= {"classlabels_int64s": labels, "post_transform": transform}
        check("TreeEnsembleClassifier", [trees.rows(9)], _BOTH, **given)
        check(
            "TreeEnsembleClassifier",
            [trees.rows(9)],
            _BOTH,
            base_values=[0.3] * (classes if classes > 2 else 1),
            **given,
        )


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_a_single_class_is_labelled_by_its_score(transform: str, check: Check) -> None:
    trees = Trees(3)
    given = trees.attributes("class", 3, 3, [0]) | {"classlabels_int64s": [7], "post_transform": transform}
    check("TreeEnsembleClassifier", [trees.rows(9)], _BOTH, base_values=[0.1], **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classlabels_strings": ["a"]}, "has a text as its only class"),
        ({"classlabels_int64s": [7], "base_values": [0.1, 0.2]}, "one class and several base values"),
    ],
)
def test_what_onnx_runtime_does_not_compute_of_a_single_class_is_refused(
    changes: dict[str, Any], message: str, save_and_load: Load, prepare_quickly: Prepare
) -> None:
    trees = Trees(3)
    built = classical(
        "TreeEnsembleClassifier", [trees.rows(2)], _BOTH, **trees.attributes("class", 2, 2, [0]), **changes
    )
    del built.graph.output[0]
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UnsupportedModelError, match=f"'odd' .*{message}"):
        prepare_quickly(save_and_load(built))


def _listed(prefix: str, *entries: tuple[int, int, float]) -> dict[str, Any]:
    """Attributes of one comparison with two leaves, 1 and 2, and a leaf, target and number for each of their values."""
    names = ("truenodeids", "falsenodeids", "featureids", "values")
    numbers = ([1, 0, 0], [2, 0, 0], [0, 0, 0], [0.5, 0.0, 0.0])
    nodes = {f"nodes_{name}": values for name, values in zip(names, numbers, strict=True)}
    modes = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"]}
    columns = [list(column) for column in zip(*entries, strict=True)]
    weights = zip(("nodeids", "ids", "weights"), columns, strict=True)
    return {
        **nodes,
        **modes,
        f"{prefix}_treeids": [0] * len(entries),
        **{f"{prefix}_{name}": at for name, at in weights},
    }


_ONE_OF_TWO = [(1, 0, 0.3), (2, 1, 0.4)]
_TWICE = [(1, 0, 5.0), (1, 0, 6.0), (2, 0, 0.4)]
_SECOND_ALWAYS = [(1, 1, 0.3), (2, 1, 0.4), (1, 0, 0.2)]


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Regressor", {**_listed("target", *_TWICE), "n_targets": 1}, "one target, of which .* takes one"),
        (
            "Regressor",
            {**_listed("target", *_TWICE), "n_targets": 2, "aggregate_function": "MAX"},
            "one target, of which .* takes one",
        ),
        ("Classifier", {**_listed("class", *_TWICE), "classlabels_int64s": [7]}, "one target, of which .* takes one"),
        (
            "Regressor",
            {**_listed("target", *_ONE_OF_TWO), "n_targets": 2, "base_values": [0.5, 0.0]},
            "have no value, .*, if need be 0",
        ),
        (
            "Classifier",
            {**_listed("class", *_SECOND_ALWAYS), "classlabels_int64s": [7, 8], "base_values": [0.5]},
            "base values that ONNX does not define",
        ),
        (
            "Classifier",
            {**_listed("class", (1, 0, 0.3)), "classlabels_int64s": [7, 8], "base_values": [0.5]},
            "base values that ONNX does not define",
        ),
    ],
)
def test_values_that_onnx_runtime_adds_otherwise_are_refused(
    operator: str, attributes: dict[str, Any], message: str, check: Check
) -> None:
    outputs = _BOTH if operator == "Classifier" else ("y",)
    with pytest.raises(UnsupportedModelError, match=f"'odd' .*{message}"):
        check(f"TreeEnsemble{operator}", [Trees(1).rows(2)], outputs, **attributes)


def test_what_these_refusals_advise_is_computed(check: Check) -> None:
    rows = Trees(1).rows(9)
    given = _listed("target", *_ONE_OF_TWO, (1, 1, 0.0), (2, 0, 0.0))
    check("TreeEnsembleRegressor", [rows], n_targets=2, base_values=[0.5, 0.25], **given)
    check("TreeEnsembleRegressor", [rows], n_targets=2, **_listed("target", *_TWICE))


def _separate(**changes: Any) -> dict[str, Any]:
    """Attributes of a ``TreeEnsemble`` of two trees with a node of each mode."""
    modes, splits = np.arange(7, dtype=np.uint8), np.array([0.5, 1, -1, 0, 2, 1, 0], np.float32)
    given: dict[str, Any] = {
        "n_targets": 2,
        "aggregate_function": 1,
        "tree_roots": [0, 3],
        "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, [7], modes.tobytes(), raw=True),
        "nodes_splits": helper.make_tensor("splits", TensorProto.FLOAT, [7], splits),
        "nodes_featureids": [0, 1, 2, 3, 0, 1, 2],
        "nodes_truenodeids": [1, 0, 2, 4, 6, 6, 0],
        "nodes_trueleafs": [0, 1, 1, 0, 0, 1, 1],
        "nodes_falsenodeids": [2, 1, 3, 5, 4, 5, 1],
        "nodes_falseleafs": [0, 1, 1, 0, 1, 1, 1],
        "membership_values": helper.make_tensor("members", TensorProto.FLOAT, [3], [1.0, 2.0, np.nan]),
        "leaf_targetids": [0, 1, 0, 1, 0, 1, 0],
        "leaf_weights": helper.make_tensor("weights", TensorProto.FLOAT, [7], [1.0, 2.0, 4.0, 8.0, -3.0, 5.5, 0.25]),
    }
    return given | changes


@pytest.mark.parametrize("aggregate", [0, 1])
def test_ensembles_of_opset_five(aggregate: int, check: Check) -> None:
    check("TreeEnsemble", [Trees(1).rows(20)], version=5, **_separate(aggregate_function=aggregate))


def test_what_onnx_runtime_computes_otherwise_is_refused(check: Check) -> None:
    with pytest.raises(UnsupportedModelError, match=r"SOFTMAX as its post_transform, .* takes LOGISTIC"):
        check("TreeEnsemble", [Trees(1).rows(2)], version=5, **_separate(post_transform=1))


def test_what_onnx_leaves_open_is_refused(check: Check) -> None:
    trees = Trees(2)
    given = trees.attributes("class", 2, 2, [0, 1]) | {"classlabels_int64s": [0, 1]}
    with pytest.raises(UnsupportedModelError, match=r"'odd' .*base values that ONNX does not define"):
        check("TreeEnsembleClassifier", [trees.rows(3)], _BOTH, base_values=[0.1, 0.2], **given)
