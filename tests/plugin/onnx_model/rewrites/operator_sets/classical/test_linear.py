"""Linear models and what extracts features, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor
import sartor.backend
from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import run
from tests.plugin.onnx_model.conftest import Load, Prepare
from tests.plugin.onnx_model.rewrites.operator_sets.classical.conftest import Array, Check, classical

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


_FEATURES_ROWS = np.array([[1, -2, 0], [0, 0, 0], [-3, -4, -5]], np.float32)
_WITHOUT_LARGEST = np.array([[1, np.nan, 2], [np.nan, 1, 2], [np.nan] * 3, [-np.inf] * 3], np.float32)
_MISSING = np.array([[1, np.nan, 3], [np.nan, 2, 0]], np.float32)
_BY_FEATURE = {"offset": [0.5, 1.0, -2.0], "scale": [1.0, 2.0, 3.0]}

_CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    *(("Normalizer", [_FEATURES_ROWS], {"norm": norm}) for norm in ("MAX", "L1", "L2")),
    ("Normalizer", [_WITHOUT_LARGEST], {"norm": "MAX"}),
    ("Normalizer", [_FEATURES_ROWS[0]], {"norm": "L1"}),
    ("Normalizer", [_FEATURES_ROWS.astype(np.int64)], {"norm": "L2"}),
    ("Scaler", [_FEATURES_ROWS], _BY_FEATURE),
    ("Scaler", [_FEATURES_ROWS[0]], _BY_FEATURE),
    ("Scaler", [np.ones((2, 3, 2), np.float32)], _BY_FEATURE),
    ("Scaler", [_FEATURES_ROWS.astype(np.float64) + 0.1], {"offset": [0.5], "scale": [3.0]}),
    ("Scaler", [_FEATURES_ROWS.astype(np.int64)], {"offset": [0.5], "scale": [3.0]}),
    ("ArrayFeatureExtractor", [np.arange(5, dtype=np.float32), np.array([1, 3])], {}),
    ("ArrayFeatureExtractor", [np.arange(12).reshape(2, 3, 2), np.array([[1, 0, 1]])], {}),
    ("Binarizer", [_FEATURES_ROWS], {"threshold": -2.0}),
    ("Imputer", [_MISSING], {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": float("nan")}),
    ("Imputer", [_MISSING[:, None]], {"imputed_value_floats": [9.0, 8.0], "replaced_value_float": 2.0}),
    ("Imputer", [np.array([[1, 2, 3]])], {"imputed_value_int64s": [9], "replaced_value_int64": 2}),
    ("FeatureVectorizer", [_FEATURES_ROWS, _FEATURES_ROWS[:, :2]], {"inputdimensions": [2, 3]}),
    ("FeatureVectorizer", [_FEATURES_ROWS[0]], {"inputdimensions": [3]}),
    ("OneHotEncoder", [np.array([[1, 2, 5]])], {"cats_int64s": [2, 1]}),
    ("OneHotEncoder", [np.array([1.5, 2, 7], np.float32)], {"cats_int64s": [2, 1]}),
    ("LabelEncoder", [np.array([[1, 2], [2, 7]])], {"keys_int64s": [1, 1, 2], "values_floats": [0.5, 6.0, -0.0]}),
    *(
        (
            "LabelEncoder",
            [np.array([1, 2, np.nan, -0.0], np.float32)],
            {"version": version, "keys_floats": [1.0, np.nan, 0.0], "values_int64s": [5, 6, 7], "default_int64": -4},
        )
        for version in (2, 4)
    ),
    (
        "LabelEncoder",
        [np.array([1.0, 2.0])],
        {
            "version": 4,
            "keys_tensor": helper.make_tensor("keys", TensorProto.DOUBLE, [2], [1.0, 3.0]),
            "values_tensor": helper.make_tensor("values", TensorProto.DOUBLE, [2], [1.5, np.inf]),
        },
    ),
]


@pytest.mark.parametrize("case", range(len(_CASES)))
def test_features_are_those_of_onnx_runtime(case: int, check: Check) -> None:
    operator, inputs, options = _CASES[case]
    check(operator, inputs, **options)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_whose_squares_overflow_have_a_norm(kind: Any, save_and_load: Load, prepare_quickly: Prepare) -> None:
    """ONNX Runtime divides infinite squares by their sum, which gives NaN."""
    rows = np.array([[3e19, -4e19, 0], [3e38, 3e38, 3e38], [1e-10, 2e18, 0], [np.inf, 1, 0]], kind)
    built = classical("Normalizer", [rows], norm="L2")
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    expected = [[0.6, -0.8, 0], [3**-0.5] * 3, [5e-29, 1, 0], [np.nan, 0, 0]]
    found = run(prepare_quickly(save_and_load(built)).model, {"x0": rows})["y"]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (
            classical("Scaler", [_FEATURES_ROWS], offset=[0.0, 1.0], scale=[1.0, 2.0]),
            "2 offsets and 2 scales for 3 features",
        ),
        (classical("Imputer", [_FEATURES_ROWS], imputed_value_int64s=[1]), "no 'imputed_value_floats'"),
        (classical("OneHotEncoder", [_FEATURES_ROWS], cats_strings=["a"]), "encodes texts.*encode them outside"),
        (
            classical("LabelEncoder", [_FEATURES_ROWS[0]], keys_floats=[1.0], values_strings=["a"]),
            "texts as its values",
        ),
        (
            classical("LabelEncoder", [_FEATURES_ROWS[0]], keys_floats=[1.0], values_floats=[1.0, 2.0]),
            "1 keys and 2 values",
        ),
        (classical("Normalizer", [_FEATURES_ROWS[None]]), "3 dimensions and the norm 'MAX'"),
        (
            classical("ZipMap", [_FEATURES_ROWS], classlabels_int64s=[0, 1, 2]),
            "maps, .*options={'zipmap': False} in skl2onnx",
        ),
        (classical("CategoryMapper", [_FEATURES_ROWS[0]]), "works on strings"),
        (classical("Conv", [_FEATURES_ROWS]), "is an operator that is not supported"),
    ],
)
def test_what_is_no_tensor_program_is_refused_with_a_way_out(
    built: ModelProto, message: str, save_and_load: Load, prepare_quickly: Prepare
) -> None:
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UnsupportedModelError, match=rf"node 'odd' \(ai.onnx.ml.*{message}"):
        prepare_quickly(save_and_load(built))


def test_the_backend_takes_texts_as_constants(prepare_quickly: Prepare) -> None:
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a", "b", "a"], values_int64s=[3, 4, 5]
    )
    texts = np.array([["b", "a"], ["ü", "a"]], dtype=object)
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, [2, 2])]
    graph = helper.make_graph([node], "graph", inputs, [helper.make_tensor_value_info("y", TensorProto.INT64, [2, 2])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    bound = sartor.backend.prepare(helper.make_model(graph, opset_imports=imports, ir_version=9)).bind([texts])
    assert not bound.feeds
    np.testing.assert_array_equal(run(prepare_quickly(bound.model).model, {})["y"], [[4, 3], [-1, 3]])
