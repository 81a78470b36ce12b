"""Linear models and support vectors, beside ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.rewrites.operator_sets.classical.conftest import Check, classical

_DRAWN = np.random.default_rng(0)
_ROWS = _DRAWN.normal(size=(4, 3)).astype(np.float32)
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
# The inverse of the error function is a difference of nearly equal numbers.
_PROBIT = 2e-5


def _numbers(count: int) -> list[float]:
    return [float(each) for each in _DRAWN.normal(size=count)]


@pytest.mark.parametrize("labels", [[7, 9, 4], [7, 9]])
@pytest.mark.parametrize("transform", _TRANSFORMS)
def test_linear_classifiers(transform: str, labels: list[int], check: Check) -> None:
    both = ("label", "scores")
    count = len(labels)
    given: dict[str, Any] = {"classlabels_ints": labels, "post_transform": transform}
    check("LinearClassifier", [_ROWS], both, coefficients=_numbers(3 * count), intercepts=_numbers(count), **given)
    # One row of coefficients stands for two classes, whether they have labels or not.
    single = {"coefficients": _numbers(3), "intercepts": [0.1], "post_transform": transform}
    check("LinearClassifier", [_ROWS], both, classlabels_ints=[7, 9], **single)
    check("LinearClassifier", [_ROWS[0]], both, **single)


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressors(targets: int, check: Check) -> None:
    coefficients, intercepts = _numbers(3 * targets), [0.1] * targets
    for transform in _TRANSFORMS:
        given = {"coefficients": coefficients, "targets": targets, "post_transform": transform}
        check("LinearRegressor", [_ROWS], intercepts=intercepts, **given)
    shares = np.abs(_ROWS) / 10
    positive = [abs(coefficient) for coefficient in coefficients]
    given = {"coefficients": positive, "targets": targets, "post_transform": "PROBIT"}
    check("LinearRegressor", [shares], tolerance=_PROBIT, **given)


@pytest.mark.parametrize("kernel", _KERNELS)
def test_support_vectors(kernel: str, check: Check) -> None:
    given: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [0.5, 0.1, 3.0]}
    vectors = {"support_vectors": _numbers(15), "coefficients": _numbers(5), "rho": [0.2], "n_supports": 5}
    check("SVMRegressor", [_ROWS], **given, **vectors)
    check("SVMRegressor", [_ROWS], **given, **vectors, one_class=1)
    for counts, transform in (([2, 3], "NONE"), ([2, 3], "LOGISTIC"), ([2, 1, 3], "SOFTMAX"), ([2, 1, 3, 2], "NONE")):
        classes, count = len(counts), sum(counts)
        check(
            "SVMClassifier",
            [_ROWS],
            ("label", "scores"),
            coefficients=_numbers((classes - 1) * count),
            vectors_per_class=counts,
            rho=_numbers(classes * (classes - 1) // 2),
            support_vectors=_numbers(3 * count),
            classlabels_ints=[5, 6, 7, 8][:classes],
            post_transform=transform,
            **given,
        )


def test_texts_as_labels_are_refused_only_where_they_are_read(prepare_quickly: Prepare) -> None:
    given: dict[str, Any] = {"coefficients": _numbers(6), "intercepts": [0.1, 0.2], "classlabels_strings": ["a", "b"]}
    built = classical("LinearClassifier", [_ROWS], ("label", "scores"), **given)
    with pytest.raises(UnsupportedModelError, match=r"texts as labels.*integers as labels"):
        prepare_quickly(built)
    del built.graph.output[0]
    assert [output.shape for output in prepare_quickly(built).outputs] == [(4, 2)]
