"""A detector from an image to boxes in one file: its outputs have as many rows as there are boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.comparison.probe_job import _scales, reference_tensors
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.sample_styles import doubts_of
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.counts import count_name
from sartor.runtime.manifest import read_manifest
from sartor.runtime.session import Session
from tests.plugin.calling import call, parsed
from tests.plugin.detector_models import CLASSES, MOST, detector, image
from tests.plugin.onnx_model.builders import run

BOUND = CLASSES * MOST
LEVELS = {0.0: 0, 0.2: 8, 3.0: BOUND}
"""Levels of images, and how many boxes they have."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, its module in layers, and an image without any box."""
    folder = tmp_path_factory.mktemp("detector")
    onnx.save(detector(), folder / "detector.onnx")
    np.savez(folder / "empty.npz", image=image(0.0))
    np.save(folder / "empty.npy", image(0.0))
    options = ("--pin", "cells=*direct*", "--time-budget", 1, "--tuning-db", "t.db")
    done = call("compile-to-vmfb", "detector.onnx", "-o", "detector.vmfb", "--threads", 1, *options, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("level", LEVELS)
def test_it_finds_what_onnx_runtime_finds(folder: Path, level: float) -> None:
    feeds = {"image": image(level)}
    right = run(detector(), feeds)
    assert len(right["classes"]) == LEVELS[level]
    with Session(folder / "detector.vmfb") as session:
        for found in (session.run(None, feeds), session.run_async(None, feeds).result()):
            for array, (name, expected) in zip(found, right.items(), strict=True):
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape), name
                np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)


def test_what_stays_on_the_device_has_full_length(folder: Path) -> None:
    count = count_name("boxes", 0)
    with Session(folder / "detector.vmfb") as session:
        names = [output.name for output in session.get_outputs()]
        assert names == ["boxes", "scores", "classes"]
        assert session.get_outputs()[0].shape == [None, 4]
        boxes, number = session.run_device(["boxes", count], {"image": image(0.2)})
        assert boxes.shape == (BOUND, 4)
        assert number.to_host() == 8
        assert len(session.run_device(None, {"image": image(0.2)})) == 3
        assert [array.shape for array in session.run(["classes", count], {"image": image(0.2)})] == [(8,), ()]


def test_the_manifest_tells(folder: Path) -> None:
    outputs = [(output.name, output.shape) for output in read_manifest(folder / "detector.vmfb").outputs]
    assert outputs[0] == ("boxes", (BOUND, 4))
    assert outputs[3] == (count_name("boxes", 0), ())
    shown = call("sartor", "inspect", folder / "detector.vmfb")
    assert f"boxes: float32[?, 4], at most {BOUND}, counted by {count_name('boxes', 0)}" in shown.stdout


def test_the_front_is_tuned(folder: Path) -> None:
    layers = read_manifest(folder / "detector.vmfb").plan["layers"]
    assert "conv2d.direct" in next(layer["variant"] for layer in layers if layer["layer"] == "cells")


def test_without_time_to_measure_it_still_compiles(folder: Path) -> None:
    """Stock IREE refuses it as a whole."""
    done = call(
        "compile-to-vmfb",
        "detector.onnx",
        "-o",
        "hurried.vmfb",
        "--fast",
        "--tuning-db",
        "other.db",
        "--threads",
        1,
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    assert len(read_manifest(folder / "hurried.vmfb").plan["layers"]) > 1


def test_commands_cut_the_outputs(folder: Path) -> None:
    compared = call(
        "sartor", "compare", "detector.vmfb", "--vs", "detector.onnx", "--inputs", "empty.npz", folder=folder
    )
    assert compared.returncode == 0, compared.stderr
    ran = parsed(call("sartor", "run", "detector.vmfb", "--input", "image=empty.npy", "--json", folder=folder))
    assert [each["shape"] for each in ran["outputs"]] == [[0, 4], [0], [0]]
    timed = parsed(
        call("sartor", "bench", "detector.vmfb", "--vs", "detector.onnx", "--rounds", 1, "--json", folder=folder)
    )
    assert [each["name"] for each in timed["runs"]] == ["sartor", "onnxruntime"]


def test_outputs_without_elements_are_in_doubt() -> None:
    """Random inputs on which no box is found check nothing, so that others are drawn."""
    prepared = prepare(detector(), simplifier=lambda model: ()).model
    reference = ReferenceModel(prepared.SerializeToString(), threads=1)
    empty, some = (reference({"image": image(level)}) for level in (0.0, 0.2))
    assert doubts_of(reference, [empty, empty], reference.output_names).unchecked == ("boxes", "scores", "classes")
    assert doubts_of(reference, [empty, some], reference.output_names).unchecked == ()


def test_layers_are_compared_in_full_length() -> None:
    prepared = prepare(detector(), simplifier=lambda model: ()).model
    names, feeds = {each.name for each in prepared.graph.output}, {"image": image(0.2)}
    right = reference_tensors(prepared, names, feeds)
    assert right["boxes"].shape == (BOUND, 4)
    scales = _scales(prepared, right, feeds)
    assert {name: scale.shape for name, scale in scales.items()} == {"boxes": (BOUND, 4), "scores": (BOUND,)}


def test_another_number_of_boxes_is_seen(folder: Path) -> None:
    """A planted fault: the model that is compared with selects more boxes of a class."""
    other = detector()
    limit = next(initializer for initializer in other.graph.initializer if initializer.name == "most")
    limit.CopyFrom(onnx.numpy_helper.from_array(np.array([MOST + 1]), "most"))
    onnx.save(other, folder / "other.onnx")
    compared = call("sartor", "compare", "detector.vmfb", "--vs", "other.onnx", folder=folder)
    assert compared.returncode == 1
    assert "has the relative error inf" in compared.stderr
