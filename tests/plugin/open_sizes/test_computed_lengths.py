"""A model whose length follows from data, in one file for any text: compiled, checked as a whole, run and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.artifact import Artifact
from sartor.comparison.compare_job import Question, right_outputs
from sartor.config import CompileConfig
from sartor.errors import DeviceError, UsageError
from sartor.onnx_model.dynamic.computed_length import computed_length
from sartor.onnx_model.dynamic.cut_length import keep_length
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.computed_lengths import LengthFile, LengthModel, length_file
from sartor.open_sizes.length_check import LengthErrors, _is_tied, verify_lengths
from sartor.profiling.builder import Build
from sartor.profiling.verifier import Verifier
from sartor.profiling.verify_job import Check
from sartor.runtime.driver.noise import NORMAL, Noise, NoiseSource
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.files.open_sizes import OpenSize, Place
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.workers.protocol import WorkerError
from tests.speaking_models import SOUNDS, WIDTH, speaking
from tests.speaking_models import Noise as Kind

MOST_SOUNDS, MOST_FRAMES = 12, 30
SHAPES = {"ids": (1, SizeRange(1, MOST_SOUNDS)), "noise": (1, WIDTH, SizeRange(1, MOST_FRAMES))}


@dataclass(frozen=True)
class Made:
    """A file, the model that it was made of, and what the whole file was compared with."""

    artifact: Artifact
    model: Path
    check: Check

    def expected(self, feeds: dict[str, Array]) -> list[Array]:
        return OnnxRuntimeReference(self.model, threads=1)(feeds)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("speaking")
    model = written(Kind.CUT, folder)
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", plans=1, time_budget=0.0)
    checks = list[Check]()

    def judged(self: Verifier, build: Build, *others: Any) -> NetRun:
        checks.append(self._check_of_calls(build))
        return calls(self, build, *others)

    calls = Verifier.judged_calls
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Verifier, "judged_calls", judged)
        artifact = compile_open(model, folder / "net.vmfb", OpenConfig(config, SHAPES))
    return Made(artifact, model, replace(checks[-1], files=NetFiles(artifact.path, None)))


def written(kind: Kind, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(speaking(kind), path)
    return path


def read(kind: Kind, folder: Path) -> LengthFile:
    (folder / "length").mkdir()
    found: Any = length_file(written(kind, folder), folder / "length")
    assert isinstance(found.file, LengthFile)
    return found.file


def feeds(count: int, frames: int = MOST_FRAMES, sound: int | None = None) -> dict[str, Array]:
    random = np.random.default_rng(count)
    ids = random.integers(0, SOUNDS, (1, count)) if sound is None else np.full((1, count), sound)
    return {"ids": ids, "noise": random.standard_normal((1, WIDTH, frames)).astype(np.float32)}


def longest() -> int:
    """The sound with the longest duration."""
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in speaking().graph.initializer}
    return int((weights["table"] @ weights["to_duration"]).argmax())


def test_a_session_gives_as_many_frames_as_durations_add_up_to(made: Made) -> None:
    session, sizes = Session(made.artifact.path), set[int]()
    for count in [3, 9, 1, 6, 3]:
        found, expected = session.run(None, feeds(count)), made.expected(feeds(count))
        assert found[0].shape == expected[0].shape
        assert relative_error(found, expected) < 1e-5, count
        sizes.add(found[0].shape[1])
    assert len(sizes) >= 3


def test_noise_may_be_as_long_as_it_is_read(made: Made) -> None:
    frames = made.expected(feeds(5))[0].shape[1]
    session = Session(made.artifact.path)
    given = {name: array[..., :frames] if name == "noise" else array for name, array in feeds(5).items()}
    assert relative_error(session.run(None, given), made.expected(given)) < 1e-5
    given["noise"] = np.ascontiguousarray(given["noise"][..., :-1])
    with pytest.raises(DeviceError, match="'noise' is shorter along axis 2 than the size that node 'length_node'"):
        session.run(None, given)


def test_more_frames_than_the_bound_are_refused_by_the_module(made: Made) -> None:
    given = feeds(MOST_SOUNDS, sound=longest())
    assert made.expected({**given, "noise": feeds(1, 99)["noise"]})[0].shape[1] > MOST_FRAMES
    session = Session(made.artifact.path)
    told = f"the size that node 'length_node' .* gives is not in the range most_frames=1..{MOST_FRAMES}"
    with pytest.raises(DeviceError, match=told):
        session.run(None, given)
    assert session.run(None, feeds(3))[0].shape == made.expected(feeds(3))[0].shape


def test_the_file_tells_the_bound_and_neither_takes_nor_gives_the_length(made: Made) -> None:
    assert made.artifact.sizes[0] == f"sounds=1..{MOST_SOUNDS}"
    assert made.artifact.sizes[1].startswith(f"most_frames=1..{MOST_FRAMES}, which node 'length_node' (ReduceMax)")
    manifest = read_manifest(made.artifact.path)
    assert [spec.name for spec in manifest.inputs] == ["ids", "noise"]
    assert [spec.name for spec in manifest.outputs] == ["frames"]
    assert manifest.given == ()


def test_comparing_asks_the_whole_model(made: Made) -> None:
    given = feeds(7)
    session = Session(made.artifact.path)
    signature = session.signatures[0]
    question = Question(made.model, signature, given, 1e-3, None, narrow=False)
    right: Any = right_outputs(question)
    assert relative_error(session.run(None, given), right.outputs) < 1e-5
    assert right.names == ("frames",)


def test_comparing_with_too_little_noise_says_how_much_is_read(made: Made) -> None:
    signature = Session(made.artifact.path).signatures[0]
    question = Question(made.model, signature, feeds(7, 2), 1e-3, None, narrow=False)
    error = right_outputs(question)
    assert isinstance(error, WorkerError)
    frames = made.expected(feeds(7))[0].shape[1]
    assert f"give more, as with --size most_frames={frames}" in str(error.error)


@pytest.mark.parametrize(
    ("node", "fault"), [("durations_node", "Floor"), ("before_end_node", "LessOrEqual"), ("length_node", "ReduceMin")]
)
def test_another_length_or_another_path_is_seen(made: Made, tmp_path: Path, node: str, fault: str) -> None:
    """All but the last, which is the same with one text in a batch."""
    whole, alone = speaking(), speaking()
    length = computed_length(alone)
    assert length is not None
    keep_length(alone, length)
    (planted,) = (other for other in whole.graph.node if other.name == node)
    planted.op_type = fault
    files = tmp_path / "whole.onnx", tmp_path / "alone.onnx"
    onnx.save(whole, files[0])
    onnx.save(alone, files[1])
    found: Any = verify_lengths(made.check, files, "most_frames", "it")
    assert isinstance(found, LengthErrors)
    assert (max(map(abs, found.errors)) < 1e-5) == (fault == "ReduceMin")


def test_the_usual_bound_follows_from_the_longest_text(tmp_path: Path) -> None:
    file = read(Kind.NONE, tmp_path)
    shapes = {"ids": (1, SizeRange(1, 100))}
    assert LengthModel.of(file, shapes, shapes).bounds == SizeRange(1, 400)
    given = {**shapes, "length/size": (SizeRange(1, 64),)}
    assert LengthModel.of(file, given, given).bounds == SizeRange(1, 64)


def test_what_is_told_of_the_bound_names_all_sizes(tmp_path: Path) -> None:
    file = read(Kind.DRAWN, tmp_path)
    shapes = {"ids": (1, SizeRange(1, 100))}
    told = LengthModel.of(file, shapes, shapes).told
    assert told.endswith(f"for other sizes change --shape ids=1,1..100 --shape drawn_node/noise=1,{WIDTH},1..400")
    changed = {"drawn_node/noise": (1, WIDTH, SizeRange(1, 9)), **shapes}
    assert LengthModel.of(file, changed, changed).bounds == SizeRange(1, 9)


def test_a_number_near_a_tie_tells_nothing() -> None:
    assert not _is_tied(np.array([0.0, 1.3, 2.9], np.float32))
    assert _is_tied(np.array([1.3, 3.000001], np.float32))
    assert _is_tied(np.array([1.3, np.nan], np.float32))


def test_sessions_draw_as_much_noise_as_a_model_may_need() -> None:
    sizes = (
        OpenSize("length", 1, 40, 1, (Place("n", 2),)),
        OpenSize("batch", 1, 8, 1, (Place("ids", 0), Place("n", 0))),
    )
    source = NoiseSource([Noise("n", NORMAL, 0.0, 1.0)], 7, sizes)
    specs = [TensorSpec("ids", "int64", (None, 5)), TensorSpec("n", "float32", (None, 3, None))]
    drawn = source.completed({"ids": np.zeros((2, 5), np.int64)}, specs)
    assert drawn["n"].shape == (2, 3, 40)
    with pytest.raises(UsageError, match="'n' is not fixed"):
        NoiseSource([Noise("n", NORMAL, 0.0, 1.0)], 7).completed({}, specs)
