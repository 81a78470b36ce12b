"""Which ops a layer consists of, and how far the run behind its root goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind, TensorType, ValueRef
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, entry_function
from sartor.dialect_passes.constants import constant_ops
from sartor.dialect_passes.follower_run import FollowerRun
from sartor.dialect_passes.form_layers import split_shared_pads
from sartor.dialect_passes.partition import partition
from sartor.errors import UnsupportedModelError
from sartor.frontend.import_job import run_import
from sartor.frontend.onnx_import import import_model
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.tuning.workers.protocol import WorkerError
from tests.hash_seeds import printed_under_hash_seeds
from tests.importing import ImportedOf, imported_model
from tests.tiny_models import MODELS, Builder

COMPILED = sorted(set(MODELS) - {"nothing_computed"})
BOUNDARY = ("hal.tensor.import", "hal.tensor.barrier", "hal.tensor.export", "util.return")


@pytest.mark.parametrize("name", COMPILED)
def test_layers_come_after_what_they_read(name: str, imported_of: ImportedOf) -> None:
    graph = imported_of(name).graph
    made: dict[tuple[str | None, int], TensorType] = {
        (None, index): each.type for index, each in enumerate(graph.inputs)
    }
    for layer in graph.layers:
        for ref, wanted in zip(layer.inputs, layer.task.inputs, strict=True):
            assert made[ref.source, ref.index] == wanted
        assert layer.task.results, f"{layer.name} computes nothing"
        made |= {(layer.name, index): result for index, result in enumerate(layer.task.results)}
    for output in graph.outputs:
        if output.source is None:
            assert output.constant is not None
            continue
        assert made[output.source.source, output.source.index] == output.type


@pytest.mark.parametrize("name", COMPILED)
def test_names_are_unique_and_are_those_of_onnx_nodes(name: str, imported_of: ImportedOf) -> None:
    imported = imported_of(name)
    names = [layer.name for layer in imported.graph.layers]
    assert len(set(names)) == len(names)
    assert isinstance(imported.prepared, bytes)
    nodes = {node.name for node in onnx.ModelProto.FromString(imported.prepared).graph.node}
    for layer in imported.graph.layers:
        assert layer.nodes
        assert set(layer.nodes) <= nodes
        assert layer.name.partition("#")[0] in layer.nodes


@pytest.mark.parametrize("name", COMPILED)
def test_every_op_is_in_one_group_and_one_result_leaves_it(name: str, imported_of: ImportedOf) -> None:
    module = ir.Module.parse(imported_of(name).unsplit, ir.Context())
    with module.context, ir.Location.unknown():
        split_shared_pads(module)
        function = entry_function(module)
        groups = partition(function)
        constants = constant_ops(function)
        body = [view.operation for view in body_of(function).operations]
        wanted = [op for op in body if op not in constants and op.name not in BOUNDARY]
        grouped = [op for group in groups for op in group.ops]
        assert len(grouped) == len(wanted)
        assert set(grouped) == set(wanted)


@pytest.mark.parametrize("name", COMPILED)
def test_every_weight_of_a_layer_is_there(name: str, imported_of: ImportedOf) -> None:
    imported = imported_of(name)
    for layer in imported.graph.layers:
        for weight, tensor in zip(layer.weights, layer.task.weights, strict=True):
            assert imported.weights[weight].shape == tensor.shape
            assert imported.weights[weight].dtype == tensor.numpy_dtype


def test_followers_belong_to_the_layer_they_extend(imported_of: ImportedOf) -> None:
    assert _nodes(imported_of("residual").graph) == [("conv1", "relu1"), ("conv2", "add", "y")]
    assert _nodes(imported_of("silu").graph) == [("conv", "sigmoid", "y")]
    assert _nodes(imported_of("hard_swish").graph) == [("conv", "y")]
    assert len(imported_of("gelu").graph.layers) == 1
    assert len(imported_of("layer_norm").graph.layers) == 1


def test_a_shared_pad_belongs_to_both_consumers(imported_of: ImportedOf) -> None:
    left, right, joined = imported_of("shared_pad").graph.layers
    assert left.nodes == ("pad", "left")
    assert right.nodes == ("pad", "right")
    assert left.inputs == right.inputs
    assert left.task.key == right.task.key
    assert joined.task.kind is LayerKind.TOLERANT


@pytest.mark.parametrize(
    "pads", [(0, 0, 0, 0, 0, 8, 0, 0), (0, 8, 0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 2, 0, 1, 1)], ids=str
)
def test_added_channels_and_images_are_a_layer_of_their_own(pads: tuple[int, ...], tmp_path: Path) -> None:
    """Kernels leave out rows and columns of padding, and would read what lies behind the channels that there are."""
    b = Builder()
    padded = b.op("Pad", "pad", "x", b.constant(np.array(pads)))
    channels, images = 8 + pads[1] + pads[5], 1 + pads[0] + pads[4]
    size = 3 + pads[2] + pads[6]
    b.op("Conv", "y", padded, b.weight(16, channels, 3, 3))
    path = tmp_path / "padded.onnx"
    onnx.save(b.model([("x", (1, 8, 5, 5))], [("y", (images, 16, size, size))]), path)
    imported = imported_model(path)
    assert [layer.nodes for layer in imported.graph.layers] == [("pad",), ("y",)]


def test_a_value_that_is_an_output_too_ends_its_layer(imported_of: ImportedOf) -> None:
    graph = imported_of("inner_output").graph
    assert [output.source.source for output in graph.outputs if output.source] == ["conv2", "conv1"]
    assert [output.name for output in graph.outputs] == ["y", "inner"]


def test_a_softmax_over_the_last_dimension_of_an_image_is_one_layer(tmp_path: Path) -> None:
    b = Builder()
    b.op("Softmax", "y", b.op("MatMul", "scores", "x", "x"), axis=-1)
    path = tmp_path / "softmax.onnx"
    onnx.save(b.model([("x", (2, 3, 8, 8))], [("y", (2, 3, 8, 8))]), path)
    imported = imported_model(path)
    assert [(layer.name, layer.task.kind) for layer in imported.graph.layers] == [
        ("scores", LayerKind.CONTRACTION),
        ("y", LayerKind.FIXED),
    ]


def test_an_output_may_be_an_input(imported_of: ImportedOf) -> None:
    same, computed = imported_of("passed_through").graph.outputs
    assert same.source is not None
    assert (same.source.source, same.source.index) == (None, 0)
    assert computed.source is not None
    assert computed.source.source == "y"


def test_an_output_may_be_an_input_that_nothing_else_reads(tmp_path: Path) -> None:
    b = Builder()
    b.op("Relu", "y", "x")
    b.op("Reshape", "same", "z", b.constant(np.array([2, 3])))
    path = tmp_path / "passed.onnx"
    onnx.save(b.model([("x", (2, 3)), ("z", (2, 3))], [("y", (2, 3)), ("same", (2, 3))]), path)
    imported = imported_model(path)
    computed, same = imported.graph.outputs
    assert computed.source == ValueRef("y", 0)
    assert (same.source, same.type) == (ValueRef(None, 1), imported.graph.inputs[1].type)


def test_equal_layers_with_other_weights_are_one_task(imported_of: ImportedOf) -> None:
    graph = imported_of("blocks").graph
    first, second, third, last = graph.layers
    assert first.task == second.task == third.task
    assert len({first.weights, second.weights, third.weights}) == 3
    assert last.task.key != first.task.key
    assert list(graph.tasks()) == [first.task.key, last.task.key]


def test_a_weight_and_an_activation_make_two_tasks_of_one_code(tmp_path: Path) -> None:
    b = Builder()
    b.op("MatMul", "y", b.op("MatMul", "first", "x", b.weight(8, 8)), "x")
    onnx.save(b.model([("x", (8, 8))], [("y", (8, 8))]), tmp_path / "net.onnx")
    imported = imported_model(tmp_path / "net.onnx")
    first, second = imported.graph.layers
    assert first.task.body == second.task.body
    assert first.task.key != second.task.key
    assert (len(first.weights), len(second.weights)) == (1, 0)
    for layer in (first, second):
        assert imported.graph.tasks()[layer.task.key].weights == layer.task.weights
        assert len(layer.task.weights) == len(layer.weights)


@pytest.mark.parametrize(
    ("kind", "read"),
    [("OneHot", ("indices", "n", "values")), ("Expand", ("row", "n"))],
)
def test_a_shape_that_is_known_only_when_it_runs_names_the_node(
    kind: str, read: tuple[str, ...], tmp_path: Path
) -> None:
    constants = {
        "indices": np.array([1, 2]),
        "values": np.array([0, 1], np.float32),
        "row": np.ones((1, 3), np.float32),
    }
    b = Builder()
    names = {name: b.constant(array) for name, array in constants.items()}
    size: tuple[int, ...] = () if kind == "OneHot" else (2,)
    dynamic = b.op(kind, "dynamic", *(names.get(each, each) for each in read))
    b.op("ReduceSum", "y", dynamic, keepdims=0)
    model = b.model([("n", size)], [("y", ())], dtype=TensorProto.INT64, output_dtype=TensorProto.FLOAT)
    onnx.save(model, tmp_path / "net.onnx")
    found = run_import(tmp_path / "net.onnx", {}, None)
    assert isinstance(found, WorkerError)
    assert isinstance(found.error, UnsupportedModelError)
    assert f"computed by node 'dynamic' ({kind}), cannot be known before it runs" in str(found.error)


def test_no_layer_has_the_name_of_a_network_value(tmp_path: Path) -> None:
    """In plans, ``input:x`` stands for what the caller passes, and ``output:y`` for what it gets."""
    b, value = Builder(), "x"
    for name in ("output:y", "input:x", "y"):
        value = b.op("MatMul", name, value, b.weight(4, 4))
    onnx.save(b.model([("x", (4, 4))], [("y", (4, 4))]), tmp_path / "net.onnx")
    imported = imported_model(tmp_path / "net.onnx")
    assert [layer.name for layer in imported.graph.layers] == ["output:y#2", "input:x#2", "y"]


def test_one_value_used_twice_is_one_input(imported_of: ImportedOf) -> None:
    double, product = imported_of("same_twice").graph.layers
    assert len(double.inputs) == 1
    assert len(product.inputs) == 2


_PRINT = """
import hashlib, sys
from pathlib import Path
from sartor.errors import UnsupportedModelError
from sartor.frontend.import_job import run_import
for path in sys.argv[1:]:
    imported = run_import(Path(path), {}, None)
    for layer in imported.graph.layers:
        weights = [hashlib.sha256(imported.weights[each].tobytes()).hexdigest() for each in layer.weights]
        print(layer.name, layer.nodes, layer.task.key, layer.task.body, layer.inputs, layer.weights, weights)
    print(imported.graph.outputs, imported.sha256, hashlib.sha256(imported.unsplit).hexdigest())
"""


def test_layers_are_the_same_in_every_process(model_file: Callable[[str], Path]) -> None:
    paths = [str(model_file(name)) for name in ("squeeze_excite", "shared_pad")]
    seen = printed_under_hash_seeds(_PRINT, *paths)
    assert "squeeze" in seen[0]
    assert seen[0] == seen[1]


def _nodes(graph: LayerGraph) -> list[tuple[str, ...]]:
    return [layer.nodes for layer in graph.layers]


_LENGTH = 120


def _chain() -> ModelProto:
    """One elementwise operator after the other."""
    make, value = Builder(), "x"
    for index in range(_LENGTH):
        value = make.op(("Sigmoid", "Tanh")[index % 2], f"v{index}", value)
    return make.model([("x", (2, 3))], [(value, (2, 3))])


def _comb() -> ModelProto:
    """The same, of which every value is an output."""
    made = _chain()
    for index in range(_LENGTH - 1):
        made.graph.output.append(helper.make_tensor_value_info(f"v{index}", 1, [2, 3]))
    return made


def _fan() -> ModelProto:
    """One value with many readers, whose results are summed."""
    make = Builder()
    total = make.op("Exp", "e", "x")
    for index in range(_LENGTH):
        scale = make.constant(np.array([index + 1], np.float32))
        total = make.op("Add", f"s{index}", total, make.op("Mul", f"m{index}", "e", scale))
    return make.model([("x", (2, 3))], [(total, (2, 3))])


@pytest.mark.parametrize("made", [_chain, _comb, _fan])
def test_steps_grow_with_the_network(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()  # type: ignore[operator]
    infer_shapes(model)
    module = ir.Module.parse(import_model(model).bytecode, ir.Context())
    steps, following = [0], FollowerRun.next

    def counted(run: FollowerRun) -> ir.Operation | None:
        steps[0] += 1
        return following(run)

    monkeypatch.setattr(FollowerRun, "next", counted)
    with module.context, ir.Location.unknown(module.context):
        groups = partition(entry_function(module))
    assert sum(len(group.ops) for group in groups) >= _LENGTH
    assert steps[0] <= 6 * sum(len(group.ops) for group in groups)
