"""A decoder that keeps nothing: callers pass caches of any length, and get them with the call's positions behind."""

from __future__ import annotations

import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.files.open_sizes import Place
from sartor.runtime.manifest import GIVEN_FORMAT, Manifest, read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.cache_models import Decoder
from tests.genai_models import BuiltDecoder
from tests.plugin.calling import call, parsed

DECODER = Decoder(layers=1, has_mask=True)
KEY, VALUE = "past_key_values.0.key", "past_key_values.0.value"
MOST = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(DECODER.model(), path)
    return path


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("out")
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", time_budget=0, finds_states=False)
    shapes = {KEY: (1, DECODER.groups, f"1..{MOST}", DECODER.width)}
    return sartor.compile(model, config, shapes=shapes, output=folder / "decoder.vmfb")


def searching(model: ModelProto) -> ModelProto:
    """A decoder of a search by beams, of which each goes on from the caches of one that an input names."""
    model.graph.input.append(helper.make_tensor_value_info("beam_idx", TensorProto.INT64, ["batch"]))
    nodes = [*model.graph.node]
    for node in nodes:
        if node.op_type == "Concat" and node.input[0].startswith("past"):
            node.input[0] = f"reordered_{node.input[0]}"
    moves = [
        helper.make_node("Gather", [name, "beam_idx"], [f"reordered_{name}"], name=f"reorder_{name}")
        for name in (KEY, VALUE)
    ]
    del model.graph.node[:]
    model.graph.node.extend([*moves, *nodes])
    return model


def feeds(past: int, masked: int | None = None) -> dict[str, Array]:
    random = np.random.default_rng(past)
    caches = {
        name: random.standard_normal((1, DECODER.groups, past, DECODER.width)).astype(np.float32)
        for name in (KEY, VALUE)
    }
    one = np.array([[past % DECODER.words]], np.int64)
    mask = np.ones((1, past + 1 if masked is None else masked), np.int64)
    return {"input_ids": one, "position_ids": np.array([[past]]), "attention_mask": mask, **caches}


def test_caches_of_any_length_are_taken_and_given(artifact: Artifact, model: Path) -> None:
    reference = OnnxRuntimeReference(model, threads=1)
    assert artifact.sizes[0] == f"positions=1..{MOST + 1}, as given; caches have 1 less"
    with Session(artifact.path, threads=1) as session:
        assert not session.get_states()
        for past in (0, 1, MOST, 0):
            given, expected = session.run(None, feeds(past)), reference(feeds(past))
            assert given[1].shape == (1, DECODER.groups, past + 1, DECODER.width)
            assert relative_error(given, expected) < 1e-5, past


def test_the_manifest_says_how_long_caches_are(artifact: Artifact) -> None:
    manifest = read_manifest(artifact.path)
    (size,) = manifest.sizes
    assert manifest.format == GIVEN_FORMAT
    assert {*size.places} == {Place("attention_mask", 1), Place(KEY, 2, -1), Place(VALUE, 2, -1)}
    assert Manifest.from_json(manifest.to_json()) == manifest
    ran = parsed(call("sartor", "run", artifact.path, "--size", "positions=3", "--json"))
    assert ran["outputs"][1]["shape"] == [1, DECODER.groups, 3, DECODER.width]


@pytest.mark.parametrize(
    ("past", "masked", "said"),
    [
        (
            5,
            7,
            r"'positions' is 7 in dimension 1 of input 'attention_mask' and 6 in dimension 2 of input 'past.*1 less",
        ),
        (MOST + 1, None, f"input 'attention_mask' has the size {MOST + 2}"),
    ],
)
def test_other_lengths_are_refused(artifact: Artifact, past: int, masked: int | None, said: str) -> None:
    with Session(artifact.path, threads=1) as session, pytest.raises(UsageError, match=said):
        session.run(None, feeds(past, masked))


@pytest.mark.parametrize(("past", "masked"), [(3, 4), (1, 4), (3, 2), (MOST + 1, MOST + 2), (0, 1)])
def test_stock_tools_run_it_and_the_module_refuses_masks_of_another_length(
    artifact: Artifact, model: Path, tmp_path: Path, past: int, masked: int
) -> None:
    options = ["--device=local-sync", "--function=main_graph"]
    options += [f"--output=@{tmp_path / f'{name}.npy'}" for name in ("logits", "key", "value")]
    for index, name in enumerate(each.name for each in read_manifest(artifact.path).inputs):
        np.save(tmp_path / f"{index}.npy", feeds(past, masked)[name])
        options.append(f"--input=@{tmp_path / f'{index}.npy'}")
    command = [str(Path(sysconfig.get_path("scripts")) / "iree-run-module"), f"--module={artifact.path}", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if masked != past + 1 or past > MOST:
        assert result.returncode != 0
        assert "INVALID_ARGUMENT" in result.stderr or "a size is not in the range" in result.stderr
    else:
        given = [np.load(tmp_path / f"{name}.npy") for name in ("logits", "key", "value")]
        assert relative_error(given, OnnxRuntimeReference(model, threads=1)(feeds(past))) < 1e-5


def test_beams_reorder_caches_whose_length_tells_the_number_of_positions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, beams = tmp_path / "decoder.onnx", 3
    onnx.save(searching(replace(DECODER, has_mask=False).model()), path)
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    made = sartor.compile(path, config, shapes={"input_ids": (beams, 1), "position_ids": (beams, 1)})
    assert "callers pass the caches: node 'reorder_" in caplog.text
    reference = OnnxRuntimeReference(path, threads=1)
    with Session(made.path, threads=1) as session:
        for past in (0, 4):
            given = {name: np.repeat(array, beams, axis=0) for name, array in feeds(past).items()}
            given |= {
                name: array + np.arange(beams)[:, None, None, None] for name, array in given.items() if "past" in name
            }
            typed = {name: array.astype(np.float32) if "past" in name else array for name, array in given.items()}
            typed = {**typed, "beam_idx": np.array([2, 0, 0])}
            del typed["attention_mask"]
            assert relative_error(session.run(None, typed), reference(typed)) < 1e-5


@pytest.mark.parametrize("kind", ["genai", "standard"])
def test_operators_that_append_take_caches_of_any_length(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime's attention as GenAI's model builder has it, and ONNX's own: no length of theirs is told."""
    sizes = BuiltDecoder(layers=1) if kind == "genai" else Decoder(layers=1, is_standard=True)
    model = sizes.model()
    path = tmp_path / "decoder.onnx"
    onnx.save(model, path)
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0, finds_states=False)
    made = sartor.compile(path, config)
    assert made.sizes[0].startswith(f"positions=1..{sizes.positions}, as long as the table ")
    reference = OnnxRuntimeReference(path, threads=1)
    with Session(made.path, threads=1) as session:
        assert not session.get_states()
        for past in (0, 1, sizes.positions - 1, 6):
            random, given = np.random.default_rng(past), dict[str, Array]()
            known = {"input_ids": past % DECODER.words, "position_ids": past}
            for name in reference.input_names:
                shape = (1, sizes.groups, past, sizes.width)
                given[name] = np.array([[known[name]]]) if name in known else np.ones((1, past + 1), np.int64)
                if "past" in name:
                    given[name] = random.standard_normal(shape).astype(np.float32)
            assert relative_error(session.run(None, given), reference(given)) < 1e-5, past
