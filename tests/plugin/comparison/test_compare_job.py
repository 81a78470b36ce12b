"""What a module is compared with and timed beside, and how networks are told apart by their results."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from sartor.codegen.ir.target import Target
from sartor.comparison import bench_job
from sartor.comparison.bench_job import ON_DEVICE, SELF, BenchRuns, difference_of, time_runs
from sartor.comparison.compare_job import Answer, Question, right_outputs
from sartor.config import CompileConfig
from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.states.cache_branch import take_cached_branch
from sartor.pipeline import compile_model
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.tuning.workers.protocol import WorkerError
from tests.cache_models import Decoder, halved
from tests.devices import needs_vulkan
from tests.exported_decoders import HEADS, WIDTH, merged_whisper
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, model, node
from tests.tiny_models import Builder

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


def timed(device: str, folder: Path) -> list[str]:
    """What a bench of a product on a device times."""
    builder, shape = Builder(), (64, 32)
    product = builder.op("MatMul", "y", "x", builder.weight(32, 16))
    onnx.save(builder.model([("x", shape)], [(product, (64, 16))]), folder / "net.onnx")
    config = CompileConfig(target=Target.create(device), database=folder / "tuning.db", threads=1)
    compile_model(folder / "net.onnx", folder / "net.vmfb", config)
    feeds = {"x": np.ones(shape, np.float32)}
    workers = 1 if device == "cpu" else None
    runs = BenchRuns(folder / "net.vmfb", None, device, workers, None, (), 1, feeds, rounds=3, exactly=True)
    timed_runs = time_runs([runs])
    assert isinstance(timed_runs, list), timed_runs
    (found,) = timed_runs
    assert all(len(sample.seconds) == 3 and sample.minimum > 0 for sample in found.samples.values())
    assert found.errors == {}
    return [*found.samples]


def test_a_cpu_has_no_transfers(tmp_path: Path) -> None:
    assert timed("cpu", tmp_path) == [SELF]


@needs_vulkan
def test_a_gpu_is_timed_with_transfers_and_without(tmp_path: Path) -> None:
    assert timed("vulkan", tmp_path) == [SELF, ON_DEVICE]


RNG = np.random.default_rng(0)
ONE, OTHER = (RNG.standard_normal((4, 16)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        ([ONE], [OTHER], "output 0 is off by 1"),
        ([ONE, ONE], [ONE, OTHER], "output 1 is off by"),
        ([ONE], [ONE[:2]], "output 0 has the shape [2, 16], in the module [4, 16]"),
        ([ONE], [ONE, ONE], "it has 2 outputs and the module 1"),
    ],
)
def test_another_network_is_described(own: list[Array], other: list[Array], said: str) -> None:
    found = difference_of(own, other)
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (ONE, ONE + np.float32(0.05) * OTHER),
        (np.zeros_like(ONE), np.zeros_like(ONE)),
        (np.full_like(ONE, np.nan), np.full_like(ONE, np.nan)),
        (np.array([3, 7]), np.array([3, 8])),
    ],
)
def test_one_network_in_other_precision_is_not(own: Array, other: Array) -> None:
    assert difference_of([own], [other]) is None


def test_a_bench_against_another_network_says_so(caplog: pytest.LogCaptureFixture) -> None:
    signature = Signature("main", (), ())
    runs = BenchRuns(Path("net.vmfb"), signature, "cpu", 1, Path("o.onnx"), ("onnxruntime",), 1, {}, 1, exactly=True)
    with caplog.at_level(logging.WARNING):
        bench_job._warn_of_another_network(lambda: [ONE], {"onnxruntime": lambda: [ONE]}, runs)
        assert not caplog.messages
        bench_job._warn_of_another_network(lambda: [ONE], {"onnxruntime": lambda: [OTHER]}, runs)
    assert "computes something else from 'o.onnx' than 'net.vmfb'" in caplog.text
