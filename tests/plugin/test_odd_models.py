"""Models that once ended a compilation with a traceback, through the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.routines.vector.join import JoinSlices
from sartor.runtime.session import Session
from tests.importing import imported_model
from tests.plugin.calling import Result, assert_refused, call

_HEADER = '<ir_version: 9, opset_import: ["" : 17]> '


def compiled(model: ModelProto, folder: Path, *options: object) -> Result:
    onnx.save(model, folder / "model.onnx")
    database = ["--tuning-db", folder / "t.db", "--threads", 1, "--time-budget", 0.01]
    return call("compile-to-vmfb", folder / "model.onnx", "-o", folder / "out.vmfb", *database, *options)


def _random(name: str, *shape: int) -> TensorProto:
    values = np.random.default_rng(0).standard_normal(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def classifier() -> ModelProto:
    """An LSTM whose last state is classified, or not; its first step reads constants, and a truth value is an input."""
    graph = parser.parse_graph(
        """g (float[3,1,4] x, bool flag) => (float[1,5] y) {
            all, last = LSTM <hidden_size = 2> (x, w, r)
            state = Squeeze(last)
            row = Unsqueeze(state, zero)
            scores = MatMul(row, v)
            y = Where(flag, scores, none)
        }"""
    )
    zero = numpy_helper.from_array(np.zeros(1, np.int64), "zero")
    graph.initializer.extend(
        [_random("w", 1, 8, 4), _random("r", 1, 8, 2), _random("v", 2, 5), _random("none", 5), zero]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_recurrent_classifier_with_a_truth_value_for_an_input_compiles(tmp_path: Path) -> None:
    result = compiled(classifier(), tmp_path, "--precision", "bf16")
    assert result.returncode == 0, result.stderr
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        x = np.ones((3, 1, 4), np.float32)
        on, off = (session.run(None, {"x": x, "flag": np.array(flag)})[0] for flag in (True, False))
    np.testing.assert_array_equal(off[0], numpy_helper.to_array(_random("none", 5)))
    assert not np.allclose(on, off)


def test_an_input_without_elements_that_is_asked_for_compiles(tmp_path: Path) -> None:
    text = _HEADER + "g (float[N,8] x) => (float[N,8] y) <float[8,8] w> { a = MatMul(x, w) y = Relu(a) }"
    model = parser.parse_model(text)
    del model.graph.value_info[:]
    model.graph.initializer.append(_random("w", 8, 8))
    result = compiled(model, tmp_path, "--shape", "x=0,8")
    assert result.returncode == 0, result.stderr
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        assert session.run(None, {"x": np.zeros((0, 8), np.float32)})[0].shape == (0, 8)


def test_weights_of_float64_inside_of_a_model_are_computed_in_float32(tmp_path: Path) -> None:
    """IREE kept the type of weights beside the module, and took their bytes for those of float32."""
    model = parser.parse_model(
        _HEADER + "g (float[4,32] x) => (float[4,32] y) { d = Cast <to=11> (x) m = Mul(d, w) y = Cast <to=1> (m) }"
    )
    weights = np.random.default_rng(0).standard_normal((4, 32))
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    result = compiled(model, tmp_path)
    assert result.returncode == 0, result.stderr
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        x = np.ones((4, 32), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], weights, rtol=1e-6)


def test_bounds_that_are_nan_bound_nothing(tmp_path: Path) -> None:
    """Where the model runs too; IREE computed NaN."""
    text = _HEADER + "g (float[4] x, float low, float high) => (float[4] y) { y = Clip(x, low, high) }"
    result = compiled(parser.parse_model(text), tmp_path)
    assert result.returncode == 0, result.stderr
    x, nan = np.array([-3, -0.5, 0.25, 2], np.float32), float("nan")
    expected = {
        (nan, 1): [-3, -0.5, 0.25, 1],
        (-1, nan): [-1, -0.5, 0.25, 2],
        (nan, nan): x,
        (-1, 1): [-1, -0.5, 0.25, 1],
    }
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        for (low, high), right in expected.items():
            bounds = {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
            np.testing.assert_array_equal(session.run(None, {"x": x, **bounds})[0], np.array(right, np.float32))


def test_many_constant_truth_values_compile(tmp_path: Path) -> None:
    """By stock IREE, which ended its process."""
    model = parser.parse_model(
        _HEADER
        + """g (float[32] x, bool[32] q) => (float[32] y) {
            n = Not(q) both = And(m, n) y = Where(both, x, zero)
        }"""
    )
    mask = np.arange(32) % 3 == 0
    model.graph.initializer.append(numpy_helper.from_array(mask, "m"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "zero"))
    result = compiled(model, tmp_path)
    assert result.returncode == 0, result.stderr
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        found = session.run(None, {"x": np.ones(32, np.float32), "q": np.zeros(32, np.bool_)})[0]
    np.testing.assert_array_equal(found, mask.astype(np.float32))


def test_selected_elements_whose_order_is_open_compile(tmp_path: Path) -> None:
    """ONNX Runtime leaves them in the order of its heap, so its results on this file are not what is compared."""
    text = """g (float[3,20] x) => (float[3,7] values, int64[3,7] indices) <int64[1] k = {7}> {
        values, indices = TopK <sorted = 0> (x, k)
    }"""
    result = compiled(parser.parse_model(_HEADER + text), tmp_path)
    assert result.returncode == 0, result.stderr
    x = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        values, indices = session.run(None, {"x": x})
    np.testing.assert_array_equal(np.sort(values), np.sort(x)[:, -7:])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(indices), 1), values)
    compared = call("sartor", "compare", tmp_path / "out.vmfb", "--vs", tmp_path / "model.onnx")
    assert compared.returncode == 0, compared.stderr


def test_outputs_that_are_one_number_compile(tmp_path: Path) -> None:
    text = """g (float[2,3] x) => (float[2,3] y, float[2,3] ones, int64[1] size)
        <float[2,3] ones = {1, 1, 1, 1, 1, 1}> {
        positive = Relu(x)
        y = Add(positive, ones)
        size = Shape <start = 1> (x)
    }"""
    result = compiled(parser.parse_model(_HEADER + text), tmp_path)
    assert result.returncode == 0, result.stderr
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        y, ones, size = session.run(None, {"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(y, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(ones, np.ones((2, 3)))
    np.testing.assert_array_equal(size, [3])


def two_of_a_name() -> ModelProto:
    model = parser.parse_model(_HEADER + "g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.extend([_random("w", 2), _random("w", 2)])
    return model


def split_of_what_is_found() -> ModelProto:
    text = """g (float[2,6] x) => (int64[2,N] y) {
        found = NonZero(x)
        first, second = Split <axis = 1> (found)
        y = Add(first, second)
    }"""
    return parser.parse_model(_HEADER + text)


def split_without_sizes() -> ModelProto:
    """From opset 18 on a Split needs ``num_outputs`` or sizes."""
    text = """g (float[2,6] x) => (float[2,3] y) {
        first, second = Split <axis = 1> (x)
        y = Add(first, second)
    }"""
    return parser.parse_model(_HEADER.replace("17", "18") + text)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (two_of_a_name, "'w'"),
        (split_of_what_is_found, "(Split)"),
        (
            split_without_sizes,
            "(Split) contradicts the types or shapes around it: Neither 'split' input nor 'num_outputs'",
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_name(make: Callable[[], ModelProto], said: str, tmp_path: Path) -> None:
    assert_refused(compiled(make(), tmp_path), 3, said)
    assert not (tmp_path / "out.vmfb").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<int32[1] d = {0}> { q = Mod(n, d) y = Cast <to = 1> (q) }", "(Mod): Integer modulo by zero"),
        ("{ q = Sub(n, n) m = Mod(n, q) y = Cast <to = 1> (m) }", "(Mod): Integer modulo by zero; give inputs"),
        ("{ f = Cast <to = 1> (n) y = LRN <size = 4> (f) }", "(LRN): it requires size % 2 == 1"),
        ("{ f = Cast <to = 1> (n) y = MaxPool <kernel_shape = [2, 2], dilations = [1073741824, 1]> (f) }", "(MaxPool)"),
    ],
    ids=["constant", "computed", "size", "dilation"],
)
def test_a_node_that_onnx_runtime_refuses_is_named(tmp_path: Path, body: str, said: str) -> None:
    result = compiled(parser.parse_model(f"{_HEADER}g (int32[1,2,3,4] n) => (float[a,b,c,d] y) {body}"), tmp_path)
    assert_refused(result, 3, said)
    assert "onnxruntime_src" not in result.stderr
    assert "ONNXRuntimeError" not in result.stderr
    assert not (tmp_path / "out.vmfb").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<float a = {1e-20}> { h = Mul(x, a) y = Mul(h, a) }", "(Mul) computes numbers below 1.2e-38"),
        ("<float[2] a = {1e-40, 1e-40}, float b = {1e38}> { h = Mul(x, a) y = Mul(h, b) }", "the weight 'a' has"),
    ],
    ids=["computed", "weights"],
)
def test_numbers_that_iree_takes_for_zero_are_named(tmp_path: Path, body: str, said: str) -> None:
    result = compiled(parser.parse_model(f"{_HEADER}g (float[4,2] x) => (float[4,2] y) {body}"), tmp_path)
    assert_refused(result, 4, "no plan is right", said, "scale the model's numbers")
    assert not (tmp_path / "out.vmfb").exists()


def test_results_are_written_in_the_middle_of_what_they_are_concatenated_to(tmp_path: Path) -> None:
    """169 numbers each: the second and third begin where no vector would. Kernels that took memory to be aligned to 64
    bytes crashed."""
    heads = [f"c{number} = Conv(x, w{number}) s{number} = Sigmoid(c{number})" for number in range(3)]
    declared = ", ".join(f"float[1,16,1,1] w{number}" for number in range(3))
    text = f"g (float[1,16,13,13] x) => (float[1,507] y) <{declared}> {{ {' '.join(heads)} "
    model = parser.parse_model(_HEADER + text + "r = Concat <axis = 1> (s0, s1, s2) y = Flatten(r) }")
    weights = np.random.default_rng(0).standard_normal((3, 1, 16, 1, 1)).astype(np.float32)
    model.graph.initializer.extend(
        numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    pins = ["--pin", "Conv_*=*.single{*", "--pin", "Concat_*=*.stock"]
    result = compiled(model, tmp_path, *pins)
    assert result.returncode == 0, result.stderr
    x = np.random.default_rng(1).standard_normal((1, 16, 13, 13)).astype(np.float32)
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        (found,) = session.run(None, {"x": x})
    products = np.einsum("nchw,ic->nihw", x, weights.reshape(3, 16))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-products.reshape(1, -1))), rtol=1e-5)


def test_a_slice_without_channels_has_no_kernel() -> None:
    """Its number of vectors divided a loop into tiles, by zero."""
    body = "e = Slice(x, from, to, axes) y = Concat <axis = 1> (e, x, e) }"
    declared = "int64[1] from = {2}, int64[1] to = {2}, int64[1] axes = {1}"
    text = f"g (float[1,4,5,5] x) => (float[1,4,5,5] y, float[1,0,5,5] e) <{declared}> {{ {body}"
    imported = imported_model(parser.parse_model(_HEADER + text))
    empty = [layer for layer in imported.graph.all_layers() if any(0 in one.shape for one in layer.task.results)]
    assert empty
    assert all(isinstance(JoinSlices().match(each.task), Rejected) for each in empty)


def test_the_shape_that_a_refusal_advises_compiles(tmp_path: Path) -> None:
    """The advice has a number where the model has a name."""
    model = parser.parse_model(_HEADER + "g (float[N,8] x) => (float[N,8] y) { y = Relu(x) }")
    refused = compiled(model, tmp_path)
    assert_refused(refused, 2, "bind it with --shape x=")
    advised = re.search(r"--shape (x=\d+,8)", refused.stderr)
    assert advised is not None, refused.stderr
    assert compiled(model, tmp_path, "--shape", advised[1]).returncode == 0
