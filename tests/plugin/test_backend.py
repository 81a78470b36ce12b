"""ONNX's backend interface, and what ``sartor.compile`` is given in error."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.base import Backend

import sartor
import sartor.backend
from sartor.backend import BoundModel, SartorBackend, SartorRep
from sartor.errors import UsageError
from sartor.runtime.session import Session
from sartor.settings.size_range import OpenShapes


def _model(operator: str, inputs: Sequence[tuple[str, int, list[int]]], rank: int = 1) -> ModelProto:
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    result = helper.make_tensor_value_info("y", inputs[0][1], [None] * rank)
    node = helper.make_node(operator, [name for name, _, _ in inputs], ["y"])
    graph = helper.make_graph([node], "graph", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_it_is_a_backend_of_onnx() -> None:
    assert issubclass(SartorBackend, Backend)
    assert sartor.backend.supports_device("CPU")
    assert not sartor.backend.supports_device("ABACUS")
    with pytest.raises(UsageError, match="ABACUS"):
        sartor.backend.prepare(_model("Abs", [("x", TensorProto.FLOAT, [2])]), "ABACUS")


@pytest.mark.parametrize("device", ["CPU:9", "CUDA:1", "CPU:x", None, 3])
def test_another_device_than_the_first_is_refused(device: Any) -> None:
    assert not sartor.backend.supports_device(device)
    with pytest.raises(UsageError, match=str(device)):
        sartor.backend.prepare(_model("Abs", [("x", TensorProto.FLOAT, [2])]), device)
    assert sartor.backend.supports_device("CPU:0")


def test_a_node_gives_what_it_computes() -> None:
    left, right = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    (result,) = sartor.backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [left, right])
    np.testing.assert_array_equal(result, left + right)


def test_operators_of_onnx_runtime_need_no_domain() -> None:
    shapes = [("x", TensorProto.FLOAT, [2, 8]), ("g", TensorProto.FLOAT, [8])]
    built, x, scale = _model("SimplifiedLayerNormalization", shapes, 2), np.ones((2, 8), np.float32), np.ones(8)
    (result,) = sartor.backend.run_model(built, [2 * x, scale.astype(np.float32)])
    np.testing.assert_allclose(result, x, rtol=1e-4)
    assert built.graph.node[0].domain == ""


def test_an_input_that_a_node_names_twice_is_fed_once_or_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[dict[str, Any]] = []
    monkeypatch.setattr(SartorRep, "run", lambda _, inputs: fed.append(inputs))
    node, x, low = helper.make_node("Clip", ["x", "m", "m"], ["y"], name="clip"), np.ones(3), np.zeros(())
    for inputs in ([x, low, low], [x, low]):
        sartor.backend.run_node(node, inputs)
    assert [{name: feed.shape for name, feed in feeds.items()} for feeds in fed] == [{"x": (3,), "m": ()}] * 2
    with pytest.raises(UsageError, match=r"1 inputs are given, but the node 'clip' \(Clip\) has \['x', 'm', 'm'\]"):
        sartor.backend.run_node(node, [x])


def test_threads_compile_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        def run(self, _: object, feeds: dict[str, Any]) -> list[Any]:
            return [feeds["x"]]

    spans: list[tuple[float, float]] = []

    def compiled(*_: object) -> Compiled:
        begin = time.monotonic()
        time.sleep(0.1)
        spans.append((begin, time.monotonic()))
        return Compiled()

    monkeypatch.setattr(SartorRep, "_compiled", compiled)
    first, second = (sartor.backend.prepare(_model("Abs", [("x", TensorProto.FLOAT, [2])])) for _ in range(2))
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(lambda each: each.run(np.ones(2, np.float32)), (first, second, first)))
    assert len(results) == 3
    assert len(spans) == 2, "what one thread has compiled, another does not compile again"
    assert spans[0][1] <= spans[1][0]


def test_a_process_forked_while_a_thread_compiles_runs_models_of_its_own() -> None:
    x = np.array([-1, 2], np.float32)
    model = _model("Abs", [("x", TensorProto.FLOAT, [2])])
    with sartor.backend._compiling:
        child = os.fork()
        if not child:
            right = np.array_equal(sartor.backend.prepare(model).run([x])[0], np.abs(x))
            # Nothing that belongs to the parent is closed.
            os._exit(0 if right else 1)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    np.testing.assert_array_equal(sartor.backend.prepare(model).run([x])[0], np.abs(x))


def test_a_shape_that_is_an_input_is_bound_anew_for_each_value() -> None:
    prepared = sartor.backend.prepare(
        _model("Reshape", [("x", TensorProto.FLOAT, [2, 6]), ("s", TensorProto.INT64, [2])], 2)
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for shape in ((3, 4), (4, 3)):
        (result,) = prepared.run([x, np.array(shape, np.int64)])
        np.testing.assert_array_equal(result, x.reshape(shape))


def _open_model(operator: str, shapes: Mapping[str, list[str | int]], **attributes: Any) -> ModelProto:
    """A model of one operator, whose inputs have named dimensions."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    node = helper.make_node(operator, [*shapes], ["y"], **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shapes["x"]))
    graph = helper.make_graph([node], "graph", given, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def compiled_for(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a module for any size was made, for each time that one was wanted."""
    made = list[bool]()
    own = SartorRep._compiled_for

    def counted(self: SartorRep, bound: BoundModel, shapes: OpenShapes) -> Session | None:
        session = own(self, bound, shapes)
        made.append(session is not None)
        return session

    monkeypatch.setattr(SartorRep, "_compiled_for", counted)
    return made


def test_one_module_takes_any_size_of_free_dimensions(compiled_for: list[bool]) -> None:
    prepared = sartor.backend.prepare(_open_model("MatMul", {"x": ["rows", "inner"], "w": ["inner", 5]}))
    random = np.random.default_rng(0)
    sizes = [(1, 4), (7, 4), (3, 1), (16, 131), (0, 4), (600, 2), (7, 4)]
    for rows, inner in sizes:
        x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, inner), (inner, 5)))
        (result,) = prepared.run([x, w])
        np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-5)
    # For one row, the usual bounds, one column, and 600 rows; none of a shape without elements.
    assert compiled_for == [True] * 4


@pytest.mark.parametrize("apart", [1, 2])
def test_a_size_may_be_another_case_than_others(apart: int, compiled_for: list[bool]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Equal", ["shape", "apart"], ["is_apart"]),
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("Where", ["is_apart", "x", "negative"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 3]) for name in "xy"]
    held = [numpy_helper.from_array(np.array([apart]), "apart")]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], held)
    prepared = sartor.backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    for rows in (5, apart):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (result,) = prepared.run([x])
        np.testing.assert_array_equal(result, x if rows == apart else -x)
    assert compiled_for == [False]


def test_each_size_has_a_module_where_none_takes_any(compiled_for: list[bool]) -> None:
    """By what an even side is padded is another amount than for an odd one."""
    shape: dict[str, list[str | int]] = {"x": [1, 1, "height", 3]}
    prepared = sartor.backend.prepare(
        _open_model("MaxPool", shape, kernel_shape=[2, 1], strides=[2, 1], auto_pad="SAME_LOWER")
    )
    for height in (4, 5):
        x = np.arange(3 * height, dtype=np.float32).reshape(1, 1, height, 3)
        (result,) = prepared.run([x])
        last = x[0, 0, 1::2] if height % 2 == 0 else x[0, 0, 0::2]
        np.testing.assert_array_equal(result[0, 0], last)
    assert compiled_for == [False]


@pytest.mark.vulkan
def test_a_node_runs_on_vulkan() -> None:
    if not sartor.backend.supports_device("VULKAN"):
        pytest.skip("no Vulkan device")
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    (result,) = sartor.backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x], "VULKAN")
    np.testing.assert_array_equal(result, np.maximum(x, 0))


@pytest.mark.vulkan
def test_channels_are_convolved_apart_on_vulkan() -> None:
    if not sartor.backend.supports_device("VULKAN"):
        pytest.skip("no Vulkan device")
    random = np.random.default_rng(0)
    image, taps = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 7, 7), (4, 1, 3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    (result,) = sartor.backend.run_node(helper.make_node("Conv", ["x", "w"], ["y"], group=4), [image, taps], "VULKAN")
    np.testing.assert_allclose(result, np.einsum("nchwyx,cyx->nchw", windows, taps[:, 0]), rtol=1e-5, atol=1e-5)


def test_words_without_sign_wrap_around() -> None:
    inputs = [("a", TensorProto.UINT16, [3]), ("b", TensorProto.UINT16, [3])]
    left, right = np.array([65535, 40000, 7], np.uint16), np.array([1, 40000, 9], np.uint16)
    (result,) = sartor.backend.run_model(_model("Add", inputs), {"a": left, "b": right})
    assert result.dtype == np.uint16
    np.testing.assert_array_equal(result, left + right)


def test_a_sequence_is_a_list_of_arrays() -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    values = [helper.make_value_info("s", sequence), helper.make_tensor_value_info("at", TensorProto.INT64, [])]
    node = helper.make_node("SequenceErase", ["s", "at"], ["y"], name="erase")
    graph = helper.make_graph([node], "graph", values, [helper.make_value_info("y", sequence)])
    prepared = sartor.backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    given = [np.full(size, size, np.float32) for size in (1, 2, 3)]
    (found,) = prepared.run([given, np.int64(1)])
    assert [each.tolist() for each in found] == [[1], [3, 3, 3]]
    assert prepared.run([given[:1], np.int64(0)]) == ([],)


def test_inputs_that_do_not_fit_are_refused_by_name() -> None:
    prepared = sartor.backend.prepare(_model("Add", [("a", TensorProto.FLOAT, [2]), ("b", TensorProto.FLOAT, [2])]))
    x = np.zeros(2, np.float32)
    with pytest.raises(UsageError, match="no value is given for the input 'b'"):
        prepared.run([x])
    with pytest.raises(UsageError, match="3 inputs are given, but the model has 2"):
        prepared.run([x, x, x])
    with pytest.raises(UsageError, match="no input 'c'"):
        prepared.run({"a": x, "c": x})
    with pytest.raises(UsageError, match="input 'b' is given as list; pass an array"):
        prepared.run([x, [x]])
    with pytest.raises(UsageError, match="input 'a' is a masked array"):
        prepared.run([np.ma.masked_array(x, x > 0), x])
    node = helper.make_node("Abs", ["x"], ["y"])
    with pytest.raises(UsageError, match="outputs_info describes 0 outputs"):
        sartor.backend.run_node(node, [x], outputs_info=[])
    with pytest.raises(UsageError, match="the model is str, expected an onnx"):
        sartor.backend.prepare("model.onnx")  # type: ignore[arg-type]


def test_a_tensor_of_data_is_not_taken_for_a_shape() -> None:
    model = _model("Expand", [("x", TensorProto.FLOAT, [1]), ("s", TensorProto.INT64, [2])], 2)
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "s"))
    (result,) = sartor.backend.run_model(model, np.ones(1, np.float32))
    assert result.shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"model": 3}, "model is 3, expected the path"),
        ({"model": None}, "model is None, expected the path"),
        ({"model": b"m.onnx"}, "model is b'm.onnx', expected the path"),
        ({"model": "a\0b"}, "expected the path of a file, as text without NUL"),
        ({"model": ""}, r"'\.' is not a file; name an .onnx file"),
        ({"model": "/"}, "'/' is not a file; name an .onnx file"),
        ({"output": 3}, "output is 3, expected the path"),
        ({"output": "a\0b"}, "expected the path of a file, as text without NUL"),
        ({"config": "int8"}, "config is 'int8', expected a CompileConfig"),
        ({"progress": 3}, "progress is 3, expected a function"),
    ],
)
def test_an_argument_without_sense_is_named(tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    model = tmp_path / "m.onnx"
    model.touch()
    with pytest.raises(UsageError, match=complaint):
        sartor.compile(**{"model": model, **arguments})
