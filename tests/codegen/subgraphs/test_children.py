"""Children compute what their layer does: whole networks of stock code, in ONNX's layout and in blocks of channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from onnx import ModelProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import PLAIN_IMAGE
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree_tiled.blocked import Blocked
from sartor.codegen.routines.vector.product import Product
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.split_layers import apply_choices
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import unsplit_recipe
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import scales_of
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.networks.profile_job import Example, NetTrial, time_nets
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.pin import Pin
from tests import grouped_models as models
from tests.importing import imported_model

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
