"""The zoo: published sizes, valid graphs, sane values, equal bytes for equal seeds, whole files."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from benchmarks import zoo
from sartor.errors import UsageError
from tests.hash_seeds import printed_under_hash_seeds

ROOT = Path(zoo.__file__).parents[1]

# Trainable parameters as published: batch norm's scale and shift count, its running statistics do not.
# BERT: MiniLM-L6's 22,713,216 without the pooler (147,840) and the positions behind 128 (384 x 384).
PARAMETERS = {
    "lenet5": 61_706,
    "alexnet": 60_965_224,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "googlenet": 6_998_552,
    "inception_v3": 23_834_568,
    "squeezenet": 1_235_496,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3": 5_483_032,
    "shufflenet_v2": 2_278_604,
    "efficientnet_b0": 5_288_548,
    "densenet121": 7_978_856,
    "bert": 22_713_216 - 147_840 - 384 * 384,
    "vit_tiny": 5_717_416,
}
OUTPUTS: dict[str, dict[str, tuple[int, ...]]] = {
    "lenet5": {"logits": (10,)},
    "ssd_resnet50": {"class_scores": (6132, 21), "box_offsets": (6132, 4)},
    "bert": {"last_hidden_state": (128, 384)},
    "outlier_encoder": {"last_hidden_state": (64, 384)},
    "spectrogram": {"mels": (97, 64)},
    "vad_lstm": {
        "next_hidden_0": (128,),
        "next_memory_0": (128,),
        "next_hidden_1": (128,),
        "next_memory_1": (128,),
        "logits": (64,),
    },
    "gru_enhancer": {"enhanced": (100, 257)},
    "crnn": {"logits": (24, 37)},
    "face_mesh": {"landmarks": (1404,)},
    "segmentation_decoder": {"scores": (21, 256, 256)},
}
# Large files, or built of the same blocks as another network: their graphs are checked without weights.
STRUCTURE_ONLY = {"alexnet", "vgg16", "vgg19", "resnet50", "resnet101", "resnet_xy", "ssd_resnet50", "inception_v3"}
DATA_INPUTS = {"input", "input_ids", "attention_mask", "token_type_ids"}


@dataclass(frozen=True)
class Run:
    """A network and its session."""

    name: str
    model: onnx.ModelProto
    session: onnxruntime.InferenceSession

    def first_output(self, feeds: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        return np.asarray(self.session.run(None, feeds)[0])


@pytest.fixture(scope="module", params=[name for name in zoo.NETWORKS if name not in STRUCTURE_ONLY])
def run(request: pytest.FixtureRequest) -> Run:
    model = zoo.build(request.param)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return Run(request.param, model, onnxruntime.InferenceSession(model.SerializeToString(), options))


def expected_outputs(name: str, batch: int) -> dict[str, tuple[int, ...]]:
    outputs = OUTPUTS.get(name, {"logits": (1000,)})
    return {key: (batch, *shape) for key, shape in outputs.items()}


def shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def running_statistics(model: onnx.ModelProto) -> set[str]:
    return {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}


def parameters(model: onnx.ModelProto) -> dict[str, int]:
    """Return the number of elements of each parameter of a model built without weights."""
    return {value.name: math.prod(shape_of(value)) for value in model.graph.input if value.name not in DATA_INPUTS}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count_is_the_published_one(name: str) -> None:
    model = zoo.NETWORKS[name](weights=False)
    skipped = running_statistics(model)
    assert sum(count for key, count in parameters(model).items() if key not in skipped) == PARAMETERS[name]


def test_resnet_xy_has_the_size_and_work_of_the_paper() -> None:
    model = zoo.NETWORKS["resnet_xy"](weights=False)
    sizes = parameters(model)
    backbone = sum(count for key, count in sizes.items() if not key.startswith("fc."))
    assert backbone // 10_000 == 8661
    shapes = {value.name: shape_of(value) for value in model.graph.value_info}
    work = sum(
        sizes[node.input[1]] * math.prod(shapes[node.output[0]][2:])
        for node in model.graph.node
        if node.op_type == "Conv"
    )
    assert work / 1e9 == pytest.approx(16.35, rel=0.002)


@pytest.mark.parametrize("name", zoo.NETWORKS)
def test_graph_is_valid_at_other_batch_sizes(name: str) -> None:
    model = zoo.NETWORKS[name](batch=3, weights=False)
    onnx.checker.check_model(model, full_check=True)
    assert {value.name: shape_of(value) for value in model.graph.output} == expected_outputs(name, batch=3)


@pytest.mark.parametrize("name", zoo.NETWORKS)
def test_nodes_have_names_of_their_own(name: str) -> None:
    nodes = [node.name for node in zoo.NETWORKS[name](weights=False).graph.node]
    assert all(nodes)
    assert len(set(nodes)) == len(nodes)


def test_names_say_where_a_layer_is() -> None:
    nodes = {node.name: node.op_type for node in zoo.NETWORKS["resnet50"](weights=False).graph.node}
    assert nodes["layer1.0.conv2"] == "Conv"
    assert nodes["layer4.2.bn3"] == "BatchNormalization"


def test_checker_accepts_the_model_with_weights(run: Run) -> None:
    onnx.checker.check_model(run.model, full_check=True)


def test_outputs_have_the_right_shape_and_a_sane_scale(run: Run) -> None:
    names = [output.name for output in run.session.get_outputs()]
    values = run.session.run(None, zoo.sample_inputs(run.model))
    shapes = {name: value.shape for name, value in zip(names, values, strict=True)}
    assert shapes == expected_outputs(run.name, batch=1)
    assert all(np.isfinite(value).all() for value in values)
    assert all(0.2 < value.std() < 5 for value in values)


def test_output_depends_on_the_input(run: Run) -> None:
    first, second = (run.first_output(zoo.sample_inputs(run.model, seed)) for seed in (0, 1))
    assert np.linalg.norm(first - second) > 0.05 * np.linalg.norm(first)


def test_small_errors_stay_small(run: Run) -> None:
    feeds = zoo.sample_inputs(run.model)
    if any(value.dtype != np.float32 for value in feeds.values()):
        pytest.skip("integer inputs cannot be disturbed a little")
    noise = np.random.default_rng(7)
    disturbed = {
        key: (value + 1e-3 * noise.standard_normal(value.shape)).astype(np.float32) for key, value in feeds.items()
    }
    clean, other = run.first_output(feeds), run.first_output(disturbed)
    assert np.linalg.norm(clean - other) < 0.03 * np.linalg.norm(clean)


def test_equal_seeds_give_equal_bytes(run: Run) -> None:
    again = zoo.build(run.name)
    assert again.SerializeToString(deterministic=True) == run.model.SerializeToString(deterministic=True)


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import hashlib; from benchmarks import zoo; "
        "print(hashlib.sha256(zoo.build('lenet5').SerializeToString(deterministic=True)).hexdigest())"
    )
    digests = set(printed_under_hash_seeds(script, folder=ROOT))
    assert len(digests) == 1


def test_other_seeds_give_other_weights_in_the_same_graph() -> None:
    first, second = zoo.build("lenet5", seed=0), zoo.build("lenet5", seed=1)
    assert first.graph.node == second.graph.node
    weights = [model.graph.initializer[0].raw_data for model in (first, second)]
    assert weights[0] != weights[1]


def test_batch_norm_statistics_are_those_of_its_input() -> None:
    model = zoo.build("shufflenet_v2")
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    model.graph.output.extend(onnx.ValueInfoProto(name=node.input[0]) for node in norms)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    measured = session.run([node.input[0] for node in norms], zoo.sample_inputs(model))
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node, values in zip(norms, measured, strict=True):
        mean, variance = stored[node.input[3]], stored[node.input[4]]
        assert 0.3 < np.mean(values.var(axis=(0, 2, 3))) / np.mean(variance) < 3
        assert np.sqrt(np.mean((values.mean(axis=(0, 2, 3)) - mean) ** 2)) < np.sqrt(np.mean(variance))


def test_unknown_network_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"resnet51.*resnet50"):
        zoo.build("resnet51")


def test_sample_inputs_of_bert_are_ids_masks_and_types() -> None:
    feeds = zoo.sample_inputs(zoo.build("bert", batch=2))
    assert {value.dtype for value in feeds.values()} == {np.dtype(np.int64)}
    assert {value.shape for value in feeds.values()} == {(2, 128)}
    ids, mask, types = feeds["input_ids"], feeds["attention_mask"], feeds["token_type_ids"]
    assert 0 <= ids.min() < 1000
    assert 29_000 < ids.max() < 30_522
    assert set(np.unique(types)) == {0, 1}
    assert set(np.unique(mask)) <= {0, 1}
    assert (np.diff(mask, axis=1) <= 0).all()
    assert (mask.sum(axis=1) >= 64).all()


def test_sample_inputs_are_seeded_normal_images() -> None:
    model = zoo.NETWORKS["lenet5"](batch=8)
    first, again, other = (zoo.sample_inputs(model, seed)["input"] for seed in (3, 3, 4))
    assert first.dtype == np.float32
    assert first.std() == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_sample_inputs_name_the_dimension_that_is_not_static() -> None:
    model = zoo.build("lenet5")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UsageError, match=r"'input'.*not static"):
        zoo.sample_inputs(model)


def test_write_reuses_its_own_file_and_replaces_any_other(tmp_path: Path) -> None:
    path = zoo.write("lenet5", tmp_path / "new")
    assert path == tmp_path / "new" / "lenet5.onnx"
    content, written = path.read_bytes(), path.stat().st_mtime_ns
    assert zoo.write("lenet5", tmp_path / "new").stat().st_mtime_ns == written
    stale = onnx.load(path)
    stale.producer_version = "0"
    onnx.save(stale, path)
    assert zoo.write("lenet5", tmp_path / "new").read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UsageError, match="No space left"):
        zoo.write("lenet5", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_directory_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(UsageError, match="cannot write"):
        zoo.write("lenet5", blocked)


def test_command_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.main([]) == 0
    assert capsys.readouterr().out.split() == [*zoo.NETWORKS, *zoo.SPEECH, *zoo.ANY_SIZE]
    assert zoo.main(["lenet5", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "lenet5.onnx")]
    assert zoo.main(["lenet6", "-o", str(tmp_path)]) == UsageError.exit_code
    assert "lenet6" in capsys.readouterr().err
