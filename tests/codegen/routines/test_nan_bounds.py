"""Bounds keep NaN, as ONNX Runtime's Clip does, in IREE's code and in our own kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import sartor.backend
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.rewriting.kept_nan import keep_nan
from sartor.codegen.routines import ROUTINES, routines_for
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.codegen.routines.layer_cases import Cases
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, model, node
from tests.plugin.onnx_model.builders import run as expected_of
from tests.tiny_models import Builder

HOST = Target.create("cpu")


def _model() -> ModelProto:
    cases = Cases()
    b = cases.builder
    least, most = (b.constant(np.array(each, np.float32)) for each in (-1.0, 2.0))
    image = b.op("Conv", "image", cases.source("image.x", (1, 16, 5, 7)), b.weight(33, 16, 1, 1))
    cases.finish("image", b.op("Clip", "image.clip", image, least, most), (1, 33, 5, 7))
    product = b.op("MatMul", "product", cases.source("product.x", (7, 33)), b.weight(33, 50))
    cases.finish("product", b.op("Clip", "product.clip", product, least, most), (7, 50))
    return cases.model()


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    found = layers({"clip": _model})
    return {layer.name: Subject(layer, weights, _codes(layer.task)) for layer, weights in found}


def _codes(task: Task) -> dict[str, Implementation]:
    codes: dict[str, Implementation] = {}
    for routine in (ROUTINES[0], *(each for each in routines_for(()) if each.name in ("direct", "product"))):
        variants = [variant for variant in variants_of(routine, task, HOST) if isinstance(variant, Variant)]
        codes |= {
            "stock" if routine is ROUTINES[0] else routine.name: variant.implementation for variant in variants[:1]
        }
    return codes


@pytest.mark.parametrize("name", ["image", "product"])
def test_a_bound_value_that_is_nan_stays_nan(name: str, subjects: dict[str, Subject]) -> None:
    subject = subjects[name]
    program = load({name: subject}, HOST)
    (x,) = subject.inputs()
    x[(0,) * x.ndim] = np.nan
    weights = subject.weights[subject.layer.weights[0]]
    given = x.reshape(16, 35).T @ weights.reshape(33, 16).T if name == "image" else x @ weights
    expected = np.clip(given, -1.0, 2.0)
    expected = expected.T.reshape(1, 33, 5, 7) if name == "image" else expected
    assert np.isnan(expected).any()
    assert (expected == 2.0).any()
    assert (expected == -1.0).any()
    assert len(subject.implementations) > 1
    for implementation in subject.implementations:
        np.testing.assert_allclose(
            run(program, subject, implementation, [x]), expected, rtol=1e-4, atol=1e-4, err_msg=implementation
        )


def _rows() -> ModelProto:
    cases = Cases()
    b = cases.builder
    x = cases.source("shifted.x", (4, 70))
    largest = b.op("ReduceMax", "shifted.max", x, b.constant(np.array([-1])), keepdims=1)
    cases.finish("shifted", b.op("Sub", "shifted", x, largest), (4, 70))
    cases.finish("chances", b.op("Softmax", "chances", cases.source("chances.x", (4, 70)), axis=-1), (4, 70))
    return cases.model()


def _unshifted_rows() -> ModelProto:
    b = Builder()
    powers = b.op("Exp", "powers", "x")
    b.op("Div", "y", powers, b.op("ReduceSum", "total", powers, b.constant(np.array([-1])), keepdims=1))
    return b.model([("x", (4, 2))], [("y", (4, 2))])


def _by_rows(built: Callable[[], ModelProto]) -> dict[str, Subject]:
    (rowwise,) = (routine for routine in routines_for(()) if routine.name == "rowwise")
    subjects: dict[str, Subject] = {}
    for layer, weights in layers({"rows": built}):
        variants = [variant for variant in variants_of(rowwise, layer.task, HOST) if isinstance(variant, Variant)]
        subjects[layer.name] = Subject(layer, weights, {"rowwise": variants[0].implementation})
    return subjects


def test_a_sum_of_large_exponentials_is_divided_by() -> None:
    """Its reciprocal is below the normal numbers, which count as zero."""
    subjects = _by_rows(_unshifted_rows)
    program = load(subjects, HOST)
    (subject,) = subjects.values()
    x = np.full((4, 2), 88, np.float32)
    np.testing.assert_allclose(run(program, subject, "rowwise", [x]), np.full((4, 2), 0.5), rtol=1e-6)


def test_a_row_with_nan_is_nan_wherever_its_maximum_counts() -> None:
    """A maximum need not keep NaN where a sum over the row does, which is not so where it is only subtracted."""
    subjects = _by_rows(_rows)
    program = load(subjects, HOST)
    for subject in subjects.values():
        (x,) = subject.inputs()
        x[2, 33] = np.nan
        found = run(program, subject, "rowwise", [x])
        assert np.isnan(found[2]).all()
        assert np.isfinite(np.delete(found, 2, 0)).all()


@pytest.mark.parametrize(("kind", "element"), [("float32", FLOAT), ("float16", FLOAT16)])
def test_the_stock_module_keeps_nan(kind: str, element: int) -> None:
    bounds = {"least": np.array(-1, kind), "most": np.array(2, kind)}
    built = model([node("Clip", ["x", "least", "most"], ["y"])], [("x", (5,), element)], [("y", (5,), element)], bounds)
    x = np.array([np.nan, 3, -3, 0.5, np.nan], kind)
    expected = expected_of(built, {"x": x})["y"]
    assert np.isnan(expected).sum() == 2
    np.testing.assert_array_equal(sartor.backend.run_model(built, [x])[0], expected)


@pytest.mark.parametrize(
    ("last", "predicate"),
    [("arith.addf %s, %s : f32", "olt"), ("arith.fptosi %s : f32 to i32", "ult")],
    ids=["number", "integer"],
)
def test_only_what_becomes_an_integer_is_bounded_before(last: str, predicate: str) -> None:
    kind = "i32" if "i32" in last else "f32"
    text = f"""func.func @f(%x: f32, %b: f32) -> {kind} {{
      %c = arith.cmpf ult, %x, %b : f32
      %s = arith.select %c, %b, %x : f32
      %d = arith.cmpf ugt, %s, %b : f32
      %t = arith.select %d, %b, %s : f32
      %r = {last.replace("%s", "%t")}
      return %r : {kind}
    }}"""
    module = ir.Module.parse(text, ir.Context())
    with module.context:
        keep_nan(module)
    assert f"arith.cmpf {predicate}, " in str(module)


def test_other_comparisons_stay() -> None:
    text = """func.func @f(%x: f32, %b: f32) -> f32 {
      %c = arith.cmpf ult, %x, %b : f32
      %s = arith.select %c, %x, %b : f32
      return %s : f32
    }"""
    module = ir.Module.parse(text, ir.Context())
    with module.context:
        keep_nan(module)
    assert "arith.cmpf ult" in str(module)


def _read_at(operator: str) -> ModelProto:
    """A model that reads pixels at computed positions."""
    if operator == "Gather":
        bounds = {"least": np.array(0, np.float32), "most": np.array(7, np.float32)}
        nodes = [
            node("Clip", ["x", "least", "most"], ["inside"]),
            node("Cast", ["inside"], ["index"], to=TensorProto.INT64),
            node("Gather", ["read", "index"], ["y"]),
        ]
        given = [("read", (8,), TensorProto.INT8), ("x", (4,), FLOAT)]
        return model(nodes, given, [("y", (4,), TensorProto.INT8)], bounds)
    sampled = node("GridSample", ["read", "x"], ["y"], mode="nearest", padding_mode="border", align_corners=1)
    return model([sampled], [("read", (1, 1, 4, 4), FLOAT), ("x", (1, 1, 4, 2), FLOAT)], [("y", (1, 1, 1, 4), FLOAT)])


def test_an_index_computed_from_nan_lies_inside() -> None:
    read, x = np.arange(8, dtype=np.int8), np.array([np.nan, 1, 2, 3], np.float32)
    np.testing.assert_array_equal(sartor.backend.run_model(_read_at("Gather"), [read, x])[0], [0, 1, 2, 3])


def test_a_pixel_at_a_position_of_nan_lies_inside() -> None:
    read = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) + 100
    grid = np.array([np.nan, 1, 1, 1, 1, np.nan, -1, -1], np.float32).reshape(1, 1, 4, 2)
    (found,) = sartor.backend.run_model(_read_at("GridSample"), [read, grid])
    assert found.min() >= 100
    np.testing.assert_array_equal(found.reshape(-1)[[1, 3]], [115, 100])
