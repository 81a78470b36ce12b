"""Sizes that are sums of others, as those of a past and what is joined to it: found, checked, told, and called with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.artifact import Artifact
from sartor.cli.options.sizes import sized_inputs
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.symbols import OpenDims
from sartor.runtime.driver.signature import Array
from sartor.runtime.files.open_sizes import Place
from sartor.runtime.manifest import SUMS_FORMAT, read_manifest
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from tests.open_models import named
from tests.tiny_models import Builder

WIDTH, MOST_PAST, MOST_NEW = 8, 60, 40
RANGES = {"x": (SizeRange(1, MOST_NEW), WIDTH), "past": (SizeRange(1, MOST_PAST), WIDTH)}


def attention() -> onnx.ModelProto:
    """New rows attend to those of a past and to themselves, as far as a mask of all lets them; gives all rows, too."""
    build = Builder()
    joined = build.op("Concat", "joined", "past", "x", axis=0)
    scores = build.op("MatMul", "scores", "x", build.op("Transpose", "turned", joined, perm=[1, 0]))
    share = build.op("Softmax", "share", build.op("Add", "seen", scores, "mask"), axis=-1)
    build.op("MatMul", "y", share, joined)
    given = [("x", [1, WIDTH]), ("past", [1, WIDTH]), ("mask", [1])]
    model = build.model(given, [("y", [1, WIDTH]), ("joined", [1, WIDTH])])
    return named(
        model, {"x": ["new", WIDTH], "past": ["past", WIDTH], "mask": ["past + new"], "joined": ["all", WIDTH]}
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "attention.onnx"
    onnx.save(attention(), path)
    return path


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("made")
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", plans=1, time_budget=0.0)
    return compile_open(model, folder / "net.vmfb", OpenConfig(config, RANGES))


def feeds(new: int, past: int, masked: int | None = None) -> dict[str, Array]:
    draw = np.random.default_rng([new, past])
    sizes = {"x": (new, WIDTH), "past": (past, WIDTH), "mask": (past + new if masked is None else masked,)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}


def test_calls_with_any_past_and_any_new_rows_are_right(model: Path, artifact: Artifact) -> None:
    reference = OnnxRuntimeReference(model, threads=1)
    with Session(artifact.path, threads=1) as session:
        for new, past in [(1, 1), (MOST_NEW, MOST_PAST), (1, MOST_PAST), (8, 13), (MOST_NEW, 1), (7, 8), (1, 1)]:
            for output, expected in zip(session.run(None, feeds(new, past)), reference(feeds(new, past)), strict=True):
                np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_an_input_that_does_not_have_the_sum_is_refused_by_name(artifact: Artifact) -> None:
    told = r"'new' is 3 in dimension 0 of input 'x' and 4 in dimension 0 of input 'mask', less dimension 0 of .* 'past'"
    with Session(artifact.path, threads=1) as session, pytest.raises(UsageError, match=told):
        session.run(None, feeds(3, 5, masked=9))


def test_the_manifest_tells_the_sum_and_commands_make_inputs_of_it_up(artifact: Artifact) -> None:
    manifest = read_manifest(artifact.path)
    assert manifest is not None
    assert manifest.format == SUMS_FORMAT
    sums = [place for size in manifest.sizes for place in size.places if place.besides]
    assert sums == [Place("mask", 0, 0, (Place("past", 0),))]
    sized = sized_inputs(artifact.path, manifest.inputs, ["new=3", "past=5"])
    assert {spec.name: spec.shape for spec in sized} == {"x": (3, WIDTH), "past": (5, WIDTH), "mask": (8,)}
    sized = sized_inputs(artifact.path, manifest.inputs, ["new=3"])
    assert {spec.name: spec.shape for spec in sized}["mask"] == (None,)


DECLARED: dict[str, tuple[int | str, ...]] = {"x": ("b", "new"), "past": ("past",), "mask": ("b", "past + new + 1")}


def test_a_sum_has_the_size_of_its_terms() -> None:
    dims = OpenDims(DECLARED, {"x": (2, SizeRange(1, 8)), "past": (SizeRange(1, 9),)})
    assert dims.shapes({"new": 3, "past": 4}) == {"x": (2, 3), "past": (4,), "mask": (2, 8)}
    dims = OpenDims(DECLARED, {"x": (2, 1), "past": (SizeRange(1, 9),)})
    assert [symbol.name for symbol in dims.symbols] == ["past"]
    assert dims.shapes({"past": 4}) == {"x": (2, 1), "past": (4,), "mask": (2, 6)}


def test_a_range_for_a_sum_is_refused() -> None:
    with pytest.raises(UsageError, match="follows from others; leave --shape mask out"):
        OpenDims(DECLARED, {"x": (2, SizeRange(1, 8)), "mask": (2, SizeRange(1, 9))})
