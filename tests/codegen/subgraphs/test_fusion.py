"""Layers that are fused, made of children, or of groups of channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, Stage, Task, TensorType
from sartor.codegen.ir.layouts import PLAIN_IMAGE
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree_tiled.blocked import Blocked
from sartor.codegen.routines.vector.product import Product
from sartor.codegen.subgraphs.fusion import fuse, task_of
from sartor.codegen.subgraphs.grouped import narrowed
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.split_layers import apply_choices
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import unsplit_recipe
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import scales_of
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.networks.profile_job import Example, NetTrial, time_nets
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.pin import Pin
from tests import grouped_models as models
from tests.codegen.routines.harness import Found, Subject, layers, load, run
from tests.importing import imported_model
from tests.tiny_models import Builder

TARGET = Target.create("cpu")


def _operands() -> ModelProto:
    """A window to which something is added, and products whose results something is added to or multiplied with."""
    b, image = Builder(), (1, 8, 5, 6)
    names = ("x", "a", "b", "c")
    first = b.op("Add", "first.sum", b.conv("first", "x", (8, 8), group=8), "a")
    second = b.conv("second", first, (8, 8), kernel=1)
    b.op("Mul", "y", b.op("Add", "second.sum", second, "b"), "c")
    third = b.op("Conv", "third", "x", b.weight(8, 8, 1, 1))
    b.op("HardSwish", "z", b.op("Add", "third.sum", third, "a"))
    return b.model([(name, image) for name in names], [("y", image), ("z", image)])


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"operands": _operands})}


def _task(found: Found, name: str) -> Task:
    return found[name][0].task


def test_arguments_are_those_of_the_first_then_the_others_of_the_second(found: Found) -> None:
    first, second = _task(found, "first"), _task(found, "second")
    assert (len(first.inputs), len(first.weights)) == (2, 2)
    assert (len(second.inputs), len(second.weights)) == (3, 2)
    for slot in range(3):
        fused = fuse(first, second, slot)
        others = iter((2, 3))
        read = tuple(None if index == slot else next(others) for index in range(3))
        assert fused.stages == (Stage(first, (0, 1)), Stage(second, read))
        assert fused.inputs == (*first.inputs, *[each for index, each in enumerate(second.inputs) if index != slot])
        assert fused.weights == (*first.weights, *second.weights)
        assert fused.results == second.results
        assert fused.kind is LayerKind.FUSED


def test_keys_tell_fused_tasks_apart(found: Found) -> None:
    first, second, third = (_task(found, name) for name in ("first", "second", "third"))
    pairs = [(first, second, 0), (first, second, 1), (first, second, 2), (first, third, 0), (second, third, 0)]
    fused = [fuse(*pair) for pair in pairs]
    keys = {each.key for each in (*fused, first, second, third)}
    assert len(keys) == len(pairs) + 3
    assert [fuse(*pair) for pair in pairs] == fused


def test_a_fused_task_counts_the_operations_of_both(found: Found) -> None:
    first, second = _task(found, "first"), _task(found, "second")
    counts = operation_count(first), operation_count(second)
    assert counts == (2 * 8 * 5 * 6 * 9, 2 * 8 * 8 * 5 * 6)
    assert operation_count(fuse(first, second, 0)) == sum(counts)


def test_fusing_may_go_on(found: Found) -> None:
    """A fused task is one like any other."""
    first, second, third = (_task(found, name) for name in ("first", "second", "third"))
    fused = fuse(fuse(first, second, 1), third, 0)
    assert len(fused.inputs) == len(first.inputs) + len(second.inputs) + len(third.inputs) - 2
    assert fused.body.count("linalg.depthwise_conv") == 1
    assert fused.body.count("linalg.conv_2d") == 2


def _stock(task: Task) -> dict[str, Implementation]:
    built = Stock().build(task, {}, TARGET)
    assert isinstance(built, Implementation)
    return {"stock": built}


@pytest.fixture(scope="module")
def subjects(found: Found) -> dict[str, Subject]:
    """Both tasks, and both as one by each of the slots."""
    (first, weights), (second, _) = found["first"], found["second"]
    fused = [
        Layer(f"slot{slot}", (), fuse(first.task, second.task, slot), (), (*first.weights, *second.weights))
        for slot in range(len(second.task.inputs))
    ]
    return {each.name: Subject(each, weights, _stock(each.task)) for each in (first, second, *fused)}


def _random(types: Sequence[TensorType], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(each.shape).astype(each.numpy_dtype) for each in types]


def test_a_fused_task_computes_what_both_compute_in_turn(subjects: dict[str, Subject]) -> None:
    program = load(subjects, TARGET)
    first, second = subjects["first"], subjects["second"]
    results = []
    for slot in range(len(second.task.inputs)):
        given = _random(first.task.inputs, seed=slot)
        others = _random(second.task.inputs[1:], seed=10 + slot)
        between = run(program, first, "stock", given)
        expected = run(program, second, "stock", [*others[:slot], between, *others[slot:]])
        found = run(program, subjects[f"slot{slot}"], "stock", [*given, *others])
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
        results.append(found)
    assert not np.allclose(results[0], results[1], atol=0.1)


Maker = Callable[[], ModelProto]
CPU, VULKAN = Target.create("cpu"), Target.create("vulkan")
BLOCKED = f"nchw{max(8, machine_of(CPU).lanes)}c"
MAKERS = (models.strided, models.dilated_with_residual, models.slopes, models.odd_groups)


def _imported(make: Maker, target: Target, asked: AskedChildren | None = None) -> tuple[ImportedModel, Path]:
    imported = imported_model(make(), target=target, asked=asked)
    return imported, imported.path


def _check(imported: ImportedModel, model: Path, names: set[str], layout: str, folder: Path) -> Mapping[str, str]:
    """Build the network of these layers, each in ``layout`` if it can be; returns the layouts that they write."""
    graph = apply_choices(imported.graph, names)
    candidates = list_candidates(graph, (Stock(), ChannelsLast(), Blocked()), CPU).variants
    chosen = {layer.name: _in_layout(candidates[layer.task.key], layer.task, layout) for layer in graph.layers}
    _check_variants(imported, model, graph, chosen, folder)
    return {name: each.implementation.output.layout for name, each in chosen.items()}


def _check_variants(
    imported: ImportedModel, model: Path, graph: LayerGraph, chosen: Mapping[str, Variant], folder: Path
) -> None:
    """Build the network of these variants, and compare it with ONNX Runtime."""
    files = NetFiles(folder / "net.vmfb", None)
    build_net(SplitNetwork(graph, chosen), imported.weights, CPU, _manifest(imported), files)
    outputs = ReferenceModel(model, threads=1)(imported.samples)
    example = Example(imported.samples, outputs, scales_of(outputs))
    settings = MeasureSettings("cpu", 1, 1e-4, rounds=1)
    (run,) = time_nets(NetTrial([files], (graph.inputs, graph.outputs), example, settings))
    assert run.status is Status.OK, run.message


def _manifest(imported: ImportedModel) -> str:
    config = CompileConfig(target=CPU)
    return unsplit_recipe(imported, config.planning).manifest(imported, config.header)


def _in_layout(found: tuple[Variant, ...], task: Task, layout: str) -> Variant:
    images = [index for index, each in enumerate(task.inputs) if len(each.shape) == 4]
    for each in found:
        code = each.implementation
        if code.output.layout == layout and all(code.inputs[index].layout == layout for index in images):
            return each
    return found[0]


@pytest.mark.parametrize(
    ("make", "layout"),
    [(models.slopes, PLAIN_IMAGE), (models.strided, "nhwc"), *((make, BLOCKED) for make in MAKERS)],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_children_compute_what_their_layer_does(make: Maker, layout: str, tmp_path: Path) -> None:
    imported, model = _imported(make, CPU)
    (net,) = imported.graph.childnets
    names = {layer.name for layer in net.graph.layers}
    written = _check(imported, model, names, layout, tmp_path)
    assert set(written) == names
    if "childnet.parts" in net.descriptor:
        assert set(written.values()) == {layout}


@pytest.mark.parametrize("make", [models.slopes, models.dilated_with_residual], ids=lambda make: make.__name__)
def test_groups_may_be_a_batch_of_products(make: Maker, tmp_path: Path) -> None:
    """Without kernels both methods are offered; what they compute does not depend on the target."""
    imported, model = _imported(make, VULKAN)
    (net,) = (childnet for childnet in imported.graph.childnets if childnet.descriptor.endswith("childnet.patches"))
    _check(imported, model, {layer.name for layer in net.graph.layers}, PLAIN_IMAGE, tmp_path)


def test_a_convolution_without_groups_may_be_one_product(tmp_path: Path) -> None:
    imported, model = _imported(models.dense, VULKAN)
    (net,) = imported.graph.childnets
    assert net.descriptor.endswith("childnet.patches")
    _check(imported, model, {layer.name for layer in net.graph.layers}, PLAIN_IMAGE, tmp_path)


@pytest.mark.parametrize("make", [models.odd_square, models.wide_filter], ids=lambda make: make.__name__)
def test_any_product_may_multiply_between_the_transforms_of_winograd(make: Maker, tmp_path: Path) -> None:
    """Of images that tiles do not fill, with bias, slopes and residual, or without."""
    asked = AskedChildren((Pin("*", "*/childnet.winograd*"),))
    imported, model = _imported(make, CPU, asked)
    net = imported.graph.childnets[0]
    encode, product, decode = net.graph.layers
    assert net.descriptor.startswith("cpu:f32/childnet.winograd{tile=")
    graph = apply_choices(imported.graph, {product.name})
    assert [layer.name for layer in graph.layers] == [encode.name, product.name, decode.name]
    found = list_candidates(graph, (Stock(), Product()), CPU).variants
    chosen = {each.name: found[each.task.key][0] for each in (encode, decode)}
    chosen[product.name] = found[product.task.key][-1]
    assert chosen[product.name].implementation.kernel is not None or len(found[product.task.key]) == 1
    _check_variants(imported, model, graph, chosen, tmp_path)


def test_a_transposed_convolution_of_a_line_has_no_children() -> None:
    imported, _ = _imported(models.transposed_line, CPU)
    assert not imported.graph.childnets


IMAGE = TensorType((1, 64, 3, 5), "f32")
BODIES = {
    "activation": "%r = arith.maximumf %a, %zero : f32",
    "channel": """%i = linalg.index 1 : index
      %j = arith.index_cast %i : index to i32
      %f = arith.sitofp %j : i32 to f32
      %r = arith.addf %a, %f : f32""",
    "constant image": "%r = arith.addf %a, %b : f32",
}


def _tail(body: str) -> str:
    return f"""util.func public @layer(%x: {IMAGE}) -> {IMAGE} {{
  %zero = arith.constant 0.0 : f32
  %image = arith.constant dense<2.0> : {IMAGE}
  %empty = tensor.empty() : {IMAGE}
  %g = linalg.generic {{indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>,
      affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%x, {"%image" if "%b" in body else "%x"} : {IMAGE}, {IMAGE}) outs(%empty : {IMAGE}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
      {body}
    linalg.yield %r : f32
  }} -> {IMAGE}
  util.return %g : {IMAGE}
}}"""


@pytest.mark.parametrize(("name", "is_same"), [("activation", True), ("channel", False), ("constant image", False)])
def test_a_part_has_what_is_the_same_for_all_channels(name: str, is_same: bool) -> None:
    text = _tail(BODIES[name])
    if "%b" not in BODIES[name]:
        text = text.replace(f"  %image = arith.constant dense<2.0> : {IMAGE}\n", "")
    tail = task_of(LayerKind.TOLERANT, text, (IMAGE,), (), (IMAGE,))
    part = narrowed(tail, 16)
    assert (part is not None) == is_same
    if part is not None:
        assert part.inputs == (TensorType((1, 16, 3, 5), "f32"),)
