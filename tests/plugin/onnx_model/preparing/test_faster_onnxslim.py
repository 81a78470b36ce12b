"""onnxslim gives the same models when it compares less, and skips what changes nothing; zeros keep their signs."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper, shape_inference

from sartor.onnx_model.preparing import faster_onnxslim, simplify_worker
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights
from tests.plugin.onnx_model.cases import CASES

_LENGTH = 60
_GRAPH: Any = importlib.import_module(faster_onnxslim._GRAPH)
_IMPORTER: Any = importlib.import_module("onnxslim.third_party.onnx_graphsurgeon")


def _alike() -> ModelProto:
    """Constants and nodes of which several are equal."""
    constants: dict[str, Any] = {f"c{index}": np.array([index % 3, index % 2], np.float32) for index in range(9)}
    nodes = [node("Mul", ["x", f"c{index}"], [f"m{index}"], name=f"m{index}") for index in range(9)]
    nodes += [node("Softmax", ["x"], [f"s{index}"], name=f"s{index}", axis=index % 2) for index in range(4)]
    nodes.append(node("Sum", [each.output[0] for each in nodes], ["y"]))
    return model(nodes, [("x", (2, 2), FLOAT)], ["y"], constants)


def _simplified(built: ModelProto, monkeypatch: pytest.MonkeyPatch, *, by_key: bool) -> bytes:
    """What onnxslim returns; its own functions are put back afterwards."""
    with monkeypatch.context() as patch:
        for name in (faster_onnxslim._TYING, faster_onnxslim._ELIMINATION):
            module = importlib.import_module(name)
            for each in ("find_and_remove_replaceable_constants", "find_and_remove_replaceable_nodes"):
                if hasattr(module, each):
                    patch.setattr(module, each, getattr(module, each))
        if not by_key:
            patch.setattr(simplify_worker, "comparing_by_key", nullcontext)
        return simplify_worker.simplify_bytes(built.SerializeToString())


@pytest.mark.parametrize("name", ["alike", "LSTM_forward", "if_of_shape", "ms_attention_mask", "pad_reflect"])
def test_models_come_out_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _alike() if name == "alike" else CASES[name]()
    assert _simplified(built, monkeypatch, by_key=True) == _simplified(built, monkeypatch, by_key=False)


def test_constants_are_computed_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of all cores, most of which only spin, would use up the time that onnxslim has."""
    threads = []

    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            options = self.get_session_options()
            threads.append((options.intra_op_num_threads, options.inter_op_num_threads))

    nodes = [node("Add", ["a", "b"], ["c"]), node("Mul", ["x", "c"], ["y"])]
    constants = {"a": weights(3), "b": weights(3, seed=1)}
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    result = ModelProto.FromString(
        simplify_worker.simplify_bytes(model(nodes, [("x", (3,), FLOAT)], ["y"], constants).SerializeToString())
    )
    assert [each.op_type for each in result.graph.node] == ["Mul"]
    assert threads
    assert {*threads} == {(1, 1)}
    assert onnxruntime.InferenceSession is Session


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_zeros_of_both_signs_stay_apart(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers divided by them are infinities of both signs; onnxslim itself takes them for one constant."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    constants: dict[str, Any] = {
        name: np.array([zero, 2], kind) for name, zero in (("a", 0.0), ("b", -0.0), ("c", 0.0))
    }
    nodes = [node("Div", ["x", name], [f"{name}/x"], name=f"{name}/d") for name in constants]
    nodes.append(node("Concat", [each.output[0] for each in nodes], ["y"], axis=0))
    built = model(nodes, [("x", (2,), element)], [("y", (6,), element)], constants)
    slim = ModelProto.FromString(_simplified(built, monkeypatch, by_key=True))
    assert [each.op_type for each in slim.graph.node] == ["Div", "Div", "Concat"]
    read = [each.input[1] for each in slim.graph.node[:2]]
    assert read == ["a", "b"]


def test_only_those_are_compared_that_may_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {f"c{index}": weights(3, seed=index) for index in range(_LENGTH)}
    nodes = [node("Mul", ["x", f"c{index}"], [f"m{index}"], name=f"m{index}") for index in range(_LENGTH)]
    built = model(nodes, [("x", (3,), FLOAT)], [each.output[0] for each in nodes], constants)
    tensors = importlib.import_module("onnxslim.third_party.onnx_graphsurgeon.ir.tensor")
    compared, equal = [0], tensors.Constant.__eq__

    def counted(one: Any, other: Any) -> Any:
        compared[0] += 1
        return equal(one, other)

    monkeypatch.setattr(tensors.Constant, "__eq__", counted)
    _simplified(built, monkeypatch, by_key=True)
    few = compared[0]
    _simplified(built, monkeypatch, by_key=False)
    assert few < 20 * _LENGTH < compared[0] - few


def _layers(count: int, *, backwards: bool = False) -> ModelProto:
    """Branches that are summed, and so nodes at different distances from the input."""
    nodes = []
    for index in range(count):
        nodes.append(node("Mul", [f"m{index - 1}" if index else "x", "c"], [f"m{index}"], name=f"m{index}"))
        nodes.append(node("Add", ["x", f"c{index}"], [f"a{index}"], name=f"a{index}"))
    nodes.append(node("Sum", [each.output[0] for each in nodes], ["y"], name="sum"))
    constants: dict[str, Any] = {"c": weights(3)} | {f"c{index}": weights(3, seed=index + 1) for index in range(count)}
    return model(nodes[::-1] if backwards else nodes, [("x", (3,), FLOAT)], ["y"], constants)


def _foldable() -> ModelProto:
    """A shape that is known only after a fold, so that there are several rounds."""
    sizes = {"two": np.array([2], np.int64), "rest": np.array([-1], np.int64)}
    nodes = [
        node("Concat", ["two", "rest"], ["to"], name="to", axis=0),
        node("Reshape", ["x", "to"], ["r"], name="r"),
        node("Shape", ["r"], ["s"], name="s"),
        node("Expand", ["b", "s"], ["e"], name="e"),
        node("Add", ["r", "e"], ["y"], name="y"),
    ]
    return model(nodes, [("x", (2, 3), FLOAT), ("b", (3,), FLOAT)], ["y"], sizes)


_MODELS = {
    "layers": lambda: _layers(5),
    "foldable": _foldable,
    **{name: CASES[name] for name in ("LSTM_forward", "if_of_shape", "ms_attention_mask", "pad_reflect")},
}


def _slim(built: ModelProto, monkeypatch: pytest.MonkeyPatch, *, skips: bool) -> bytes:
    """What onnxslim returns, without the types, which are inferred again."""
    with monkeypatch.context() as patch:
        patch.setattr(simplify_worker, "comparing_by_key", nullcontext)
        if not skips:
            patch.setattr(simplify_worker, "skipping_settled", nullcontext)
        slim = ModelProto.FromString(simplify_worker.simplify_bytes(built.SerializeToString()))
    del slim.graph.value_info[:]
    return slim.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", _MODELS)
def test_models_come_out_the_same_without_the_skipped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _MODELS[name]()
    assert _slim(built, monkeypatch, skips=True) == _slim(built, monkeypatch, skips=False)


def test_models_that_stay_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = _IMPORTER.import_onnx, [0]

    def counted(given: ModelProto) -> Any:
        reads[0] += 1
        return read(given)

    built = shape_inference.infer_shapes(ModelProto.FromString(_slim(_layers(5), monkeypatch, skips=False)))
    monkeypatch.setattr(_IMPORTER, "import_onnx", counted)
    _slim(built, monkeypatch, skips=False)
    usual, reads[0] = reads[0], 0
    _slim(built, monkeypatch, skips=True)
    assert (reads[0], usual) == (1, 3)


@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_are_sorted_as_onnxslim_sorts_them(*, backwards: bool) -> None:
    built = _layers(5, backwards=backwards)
    expected = [each.name for each in _IMPORTER.import_onnx(built).toposort().nodes]
    with faster_onnxslim.skipping_settled():
        assert [each.name for each in _IMPORTER.import_onnx(built).toposort().nodes] == expected
    graph = _IMPORTER.import_onnx(built)
    assert (faster_onnxslim._sorted(graph) is None) == backwards


_LATE = """
import pickle, sys
from sartor.onnx_model.preparing import faster_onnxslim, simplify_worker
faster_onnxslim.load_onnxslim()
results = [(simplify_worker.simplify_bytes(each), "sympy" in sys.modules) for each in pickle.load(sys.stdin.buffer)]
sys.stdout.buffer.write(pickle.dumps(results))
"""


def test_shapes_are_inferred_as_ever_by_what_is_loaded_for_them_alone() -> None:
    described = shape_inference.infer_shapes(_layers(5))
    unknown = _foldable()
    built = [each.SerializeToString() for each in (described, unknown, unknown)]
    done = subprocess.run([sys.executable, "-c", _LATE], input=pickle.dumps(built), capture_output=True, check=True)
    slim, loaded = zip(*pickle.loads(done.stdout), strict=True)
    assert loaded == (False, True, True)
    assert [*slim] == [simplify_worker.simplify_bytes(each) for each in built]
