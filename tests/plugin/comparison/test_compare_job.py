"""What a module is compared with follows from the model's file, however that is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from sartor.comparison.compare_job import Answer, Question, right_outputs
from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.states.cache_branch import take_cached_branch
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.tuning.workers.protocol import WorkerError
from tests.cache_models import Decoder, halved
from tests.exported_decoders import HEADS, WIDTH, merged_whisper
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, model, node

SIGNATURE = Signature("main_graph", (TensorSpec("x", "float32", (2, 4)),), ())
X = {"x": np.array([[1, 1, 0.5, 2], [3, 3, 0.25, 1]], np.float32)}
# Two large terms leave a small sum, so that noise decides what its scale is.
W = np.array([[1e6, 1], [-1e6, 2], [1, 3], [2, 4]], np.float32)


def _with_initializers() -> ModelProto:
    return model([node("MatMul", ["x", "w"], ["y"])], [("x", ("n", 4), FLOAT)], [("y", ("n", 2), FLOAT)], {"w": W})


def _with_constants() -> ModelProto:
    built = _with_initializers()
    del built.graph.initializer[:]
    built.graph.node.insert(0, node("Constant", [], ["w"], value=numpy_helper.from_array(W)))
    return built


def _answer(built: ModelProto, folder: Path, max_error: float | None = None) -> Answer | WorkerError:
    onnx.save(built, folder / "model.onnx")
    return right_outputs(Question(folder / "model.onnx", SIGNATURE, X, 1e-3, max_error, narrow=False))


def test_scales_do_not_depend_on_how_weights_are_written(tmp_path: Path) -> None:
    one, other = (_answer(built, tmp_path) for built in (_with_initializers(), _with_constants()))
    assert isinstance(one, Answer)
    assert isinstance(other, Answer)
    np.testing.assert_array_equal(one.scales[0], other.scales[0])
    assert one.names == other.names == ("y",)
    assert one.shapes == {"x": (2, 4)}
    assert one.unchecked == ()


@pytest.mark.parametrize(("max_error", "allowed"), [(None, 1e-2), (1e-5, 1e-5)])
def test_the_models_types_say_what_is_allowed_unless_the_user_does(
    max_error: float | None, allowed: float, tmp_path: Path
) -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=FLOAT16, name="narrow"),
        node("Exp", ["h"], ["e"]),
        node("Cast", ["e"], ["y"], to=FLOAT, name="widen"),
    ]
    found = _answer(model(nodes, [("x", (2, 4), FLOAT)], ["y"]), tmp_path, max_error)
    assert isinstance(found, Answer)
    assert found.allowed == allowed
    assert found.amplifies == (max_error is None)


def test_outputs_that_say_nothing_are_named_but_for_constants_and_single_numbers(tmp_path: Path) -> None:
    nodes = [
        node("Sign", ["x"], ["same"]),
        node("ReduceSum", ["x"], ["single"], keepdims=0),
        node("Relu", ["x"], ["right"]),
        node("Relu", ["zero"], ["constant"], name="constant"),
    ]
    built = model(nodes, [("x", (2, 4), FLOAT)], ["same", "single", "right", "constant"], {"zero": np.zeros(3, "f")})
    found = _answer(built, tmp_path)
    assert isinstance(found, Answer)
    assert found.unchecked == ("same",)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    found = right_outputs(Question(tmp_path / "model.onnx", SIGNATURE, X, 1e-3, None, narrow=False))
    assert isinstance(found, WorkerError)
    assert isinstance(found.error, UnsupportedModelError)


def test_of_merged_decoders_the_one_is_asked_whose_caches_the_module_keeps(tmp_path: Path) -> None:
    """The other one alone computes some outputs, and reads an input that a module which keeps caches has fixed."""
    random, cached, path = np.random.default_rng(0), merged_whisper(), tmp_path / "merged.onnx"
    onnx.save(cached, path)
    fixed = take_cached_branch(cached)
    names = [value.name for value in cached.graph.input]
    feeds: dict[str, Array] = {"input_ids": np.array([[3]])}
    feeds |= {name: random.standard_normal((1, HEADS, 5, WIDTH)).astype(np.float32) for name in names[1:]}
    specs = tuple(TensorSpec(name, feeds[name].dtype.name, feeds[name].shape) for name in names)
    caches = tuple(name for name in names if ".decoder." in name)
    found = right_outputs(Question(path, Signature("main", specs, ()), feeds, 1e-3, None, False, fixed, caches=caches))
    assert isinstance(found, Answer), found
    assert found.names == tuple(value.name for value in cached.graph.output)
    reference = OnnxRuntimeReference(path, threads=1)
    given = dict(zip(reference.output_names, reference({**feeds, **bound_feeds(fixed)}), strict=True))
    for name, array in zip(found.names, found.outputs, strict=True):
        np.testing.assert_allclose(array, given[name], rtol=1e-5, atol=1e-6)


def test_a_model_of_half_precision_takes_caches_that_the_module_keeps_in_float32(tmp_path: Path) -> None:
    random, path = np.random.default_rng(0), tmp_path / "half.onnx"
    onnx.save(halved(Decoder(layers=1).model()), path)
    feeds: dict[str, Array] = {"input_ids": np.array([[3]]), "position_ids": np.array([[5]])}
    caches = tuple(f"past_key_values.0.{kind}" for kind in ("key", "value"))
    feeds |= {name: random.standard_normal((1, 2, 5, 8)).astype(np.float32) for name in caches}
    specs = tuple(TensorSpec(name, array.dtype.name, array.shape) for name, array in feeds.items())
    signature = Signature("main", specs, ())
    found = right_outputs(Question(path, signature, feeds, 1e-3, None, False, widens=True, caches=caches))
    assert isinstance(found, Answer), found
    assert {*found.rounded} == {*caches}
    for name, array in found.rounded.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, feeds[name].astype(np.float16))
    (given,) = (array for name, array in zip(found.names, found.outputs, strict=True) if name == "present.0.key")
    np.testing.assert_array_equal(given[:, :, :5], found.rounded[caches[0]])


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (("q",), "the model has the input 'x', which the module has not; name the model that"),
        (("x", "q"), "the module has the input 'q', which the model has not; name the model that"),
    ],
)
def test_a_model_with_other_inputs_is_not_the_modules(inputs: tuple[str, ...], said: str, tmp_path: Path) -> None:
    onnx.save(_with_initializers(), tmp_path / "model.onnx")
    signature = Signature("main_graph", tuple(TensorSpec(name, "float32", (2, 4)) for name in inputs), ())
    found = right_outputs(Question(tmp_path / "model.onnx", signature, X, 1e-3, None, narrow=False))
    assert isinstance(found, WorkerError)
    assert isinstance(found.error, UsageError)
    assert said in str(found.error)
