"""What models take and give besides floats of 32 bits: float64, random numbers, indices, inputs and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.noise import NORMAL, Noise
from sartor.runtime.manifest import NOISE_FORMAT, read_manifest
from sartor.runtime.session import Session
from tests.plugin.calling import call, parsed
from tests.plugin.onnx_model.builders import Array, ints, model, node, relative_error

DOUBLE, INT64 = TensorProto.DOUBLE, TensorProto.INT64
NOISE = "draw/noise"


def _network() -> onnx.ModelProto:
    """Noise is added to an image, of which maxima with their places, the image itself and a constant are given too."""
    random = np.random.default_rng(0)
    nodes = [
        node("RandomNormalLike", ["x"], ["drawn"], name="draw", mean=0.5, scale=2.0),
        node("Add", ["x", "drawn"], ["sum"]),
        node("MaxPool", ["sum"], ["most", "where"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["most", "rows"], ["flat"]),
        node("MatMul", ["flat", "w"], ["product"]),
        node("Relu", ["product"], ["y"]),
        node("Identity", ["x"], ["same"], name="same"),
        node("Identity", ["c"], ["known"], name="known"),
    ]
    outputs = [("y", (2, 5), DOUBLE), ("where", (2, 3, 3, 3), INT64), ("same", (2, 3, 6, 6), DOUBLE)]
    constants = {"rows": ints(2, 27), "w": random.standard_normal((27, 5)), "c": np.array([1 / 3, 2.0])}
    return model(nodes, [("x", (2, 3, 6, 6), DOUBLE)], [*outputs, ("known", (2,), DOUBLE)], constants)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, and the module that computes it in float32."""
    folder = tmp_path_factory.mktemp("interfaces")
    onnx.save(_network(), folder / "net.onnx")
    done = call("compile-to-vmfb", "net.onnx", "-o", "net.vmfb", "--threads", 1, "--fast", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "'x' is passed as float64 and computed in float32" in done.stderr
    return folder


def _feeds() -> dict[str, Array]:
    random = np.random.default_rng(1)
    x, drawn = random.standard_normal((2, 2, 3, 6, 6))
    return {"x": x, NOISE: drawn.astype(np.float32)}


def _right(folder: Path) -> list[Array]:
    return ReferenceModel(folder / "net.onnx")(_feeds())


def test_the_door_is_double_and_what_is_behind_it_is_not(folder: Path) -> None:
    with Session(folder / "net.vmfb") as session:
        assert [each.type for each in session.get_inputs()] == ["tensor(double)", "tensor(float)"]
        y, where, same, known = session.run(None, _feeds())
    right = _right(folder)
    assert y.dtype == np.float64
    assert 1e-12 < relative_error(y, right[0]) < 1e-5
    np.testing.assert_array_equal(where, right[1])
    np.testing.assert_array_equal(same, right[2], "an input that is returned keeps its digits")
    np.testing.assert_allclose(known, right[3], rtol=1e-7)


def test_float64_is_exact_on_request(folder: Path) -> None:
    options = ("--threads", 1, "--fast", "--double", "f64")
    done = call("compile-to-vmfb", "net.onnx", "-o", "wide.vmfb", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    with Session(folder / "wide.vmfb") as session:
        found = session.run(None, _feeds())
    for output, right in zip(found, _right(folder), strict=True):
        assert relative_error(output, right) < 1e-13


def test_noise_is_given_or_drawn_by_a_seed(folder: Path) -> None:
    manifest = read_manifest(folder / "net.vmfb")
    assert (manifest.noise, manifest.format) == ((Noise(NOISE, NORMAL, 0.5, 2.0),), NOISE_FORMAT)
    x = {"x": _feeds()["x"]}
    drawn = []
    for seed in (1, 1, 2, None, None):
        with Session(folder / "net.vmfb", seed=seed) as session:
            drawn += [session.run(["y"], x)[0] for _ in range(3)]
    np.testing.assert_array_equal(drawn[:3], drawn[3:6])
    distinct = [drawn[index] for index in (*range(3), *range(6, 15))]
    assert len(np.unique(distinct, axis=0)) == len(distinct), "each run draws anew, and so does each session"


def test_runtimes_beside_the_module_get_the_same_noise(folder: Path) -> None:
    compared = parsed(call("sartor", "compare", "net.vmfb", "--vs", "net.onnx", "--json", folder=folder))
    assert [each["within"] for each in compared["outputs"]] == [True] * 4
    timed = call("sartor", "bench", "net.vmfb", "--vs", "net.onnx", "--rounds", 1, "--json", folder=folder)
    assert [each["name"] for each in parsed(timed)["runs"]] == ["sartor", "onnxruntime"]
    assert "something else" not in timed.stderr
    runs = [
        parsed(call("sartor", "run", "net.vmfb", "--seed", seed, "--json", folder=folder))["outputs"][0]["mean"]
        for seed in (3, 3, 4)
    ]
    assert runs[0] == runs[1] != runs[2]
