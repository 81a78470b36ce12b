"""Which layers have childnets, what those are, and a graph in which some have taken their layers' place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind, ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.subgraphs.part_children import dense_filters
from sartor.dialect_passes.split_layers import apply_choices, find_childnets
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.selection.problem.pin import Pin
from tests import grouped_models as models
from tests.importing import imported_model

CPU, VULKAN = Target.create("cpu"), Target.create("vulkan")
# Of four channels each; of more groups vectors are full.
LANES = machine_of(CPU).lanes
PARTS = models.GROUPS // max(1, LANES // 4)


def _imported(make: Callable[[], ModelProto], target: Target = CPU) -> ImportedModel:
    return imported_model(make(), target=target)


def _graph(make: Callable[[], ModelProto], target: Target = CPU) -> LayerGraph:
    return _imported(make, target).graph


def _check_types(graph: LayerGraph) -> None:
    """Everything is computed before it is read, and has the type that it is read with; childnets too."""
    made = {ValueRef(None, index): each.type for index, each in enumerate(graph.inputs)}
    for layer in graph.layers:
        assert [made[ref] for ref in layer.inputs] == list(layer.task.inputs)
        assert len(layer.weights) == len(layer.task.weights)
        made |= {ValueRef(layer.name, index): result for index, result in enumerate(layer.task.results)}
    assert all(made[output.source] == output.type for output in graph.outputs if output.source)
    for net in graph.childnets:
        (layer,) = (each for each in graph.layers if each.name == net.layer)
        assert [each.type for each in net.graph.inputs] == list(layer.task.inputs)
        assert [output.type for output in net.graph.outputs] == list(layer.task.results)
        _check_types(net.graph)


def _methods(graph: LayerGraph) -> list[str]:
    return [childnet.descriptor.partition("/childnet.")[2] for childnet in graph.all_childnets()]


def test_groups_with_all_around_them_are_one_layer() -> None:
    graph = _graph(models.bottleneck)
    assert [layer.name for layer in graph.layers] == ["conv1", "conv2", "conv3"]
    grouped = graph.layers[1]
    assert grouped.nodes == ("conv2", "relu2")
    assert grouped.task.kind is LayerKind.CONVOLUTION
    assert [each.shape for each in (*grouped.task.inputs, *grouped.task.results)] == [models.IMAGE] * 2


@pytest.mark.skipif(PARTS < 2, reason="a vector of this machine holds more than half of the channels")
def test_groups_become_dense_parts() -> None:
    graph = _graph(models.bottleneck)
    (net,) = graph.childnets
    assert (net.layer, net.descriptor) == ("conv2", f"cpu:f32/childnet.parts{{parts={PARTS}}}")
    names = [f"conv2/part{index}" for index in range(PARTS)]
    assert [layer.name for layer in net.graph.layers] == ["conv2/split", *names, "conv2/join"]
    tasks = {layer.task.key for layer in net.graph.layers}
    assert len(tasks) == 3, "all parts are one task"
    part = net.graph.layers[1].task
    assert part.kind is LayerKind.CONVOLUTION
    assert part.inputs[0].shape == (1, models.CHANNELS // PARTS, models.SIZE, models.SIZE)
    assert "arith.cmpf" in part.body, "what changes each channel alone is taken in"
    _check_types(graph)


@pytest.mark.skipif(PARTS < 2, reason="a vector of this machine holds more than half of the channels")
@pytest.mark.parametrize("make", [models.strided, models.dilated_with_residual, models.slopes])
def test_children_have_the_types_of_what_they_compute(make: Callable[[], ModelProto]) -> None:
    imported = _imported(make)
    assert _methods(imported.graph) == [f"parts{{parts={PARTS}}}"]
    _check_types(imported.graph)
    for layer in imported.graph.all_layers():
        shapes = [imported.weights[name].shape for name in layer.weights]
        assert shapes == [weight.shape for weight in layer.task.weights]


def test_what_fills_no_vector_is_left_to_a_product() -> None:
    graph = _graph(models.odd_groups)
    (net,) = graph.childnets
    assert net.descriptor == "cpu:f32/childnet.patches"
    assert [layer.name for layer in net.graph.layers] == ["conv/patches", "conv/product"]
    patches = net.graph.layers[0].task.results[0]
    assert patches.shape == (11, 3 * 9, models.SIZE**2)
    _check_types(graph)


def test_kernels_need_no_childnets() -> None:
    assert _graph(models.dense).childnets == ()
    (net,) = _graph(models.dense, VULKAN).childnets
    assert net.descriptor == "vulkan:f32/childnet.patches"
    _check_types(_graph(models.dense, VULKAN))


def test_winograds_method_is_three_layers_on_request() -> None:
    imported = imported_model(models.dense(), asked=AskedChildren((Pin("conv", "*/childnet.winograd*"),)))
    first, second = imported.graph.childnets
    assert first.descriptor == "cpu:f32/childnet.winograd{tile=4,4}"
    assert [each.name for each in first.graph.layers] == ["conv/encode4x4", "conv/product4x4", "conv/decode4x4"]
    assert not first.may_round
    # Larger tiles have larger numbers, which cost precision.
    assert 1e-7 < first.error < second.error < 1e-5
    _check_types(imported.graph)
    for layer in imported.graph.all_layers():
        assert [imported.weights[name].shape for name in layer.weights] == [
            weight.shape for weight in layer.task.weights
        ]
    replayed = imported_model(models.dense(), asked=AskedChildren(named=frozenset({"conv/product5x5"})))
    assert [childnet.descriptor for childnet in replayed.graph.childnets] == [second.descriptor]


def test_pins_ask_for_childnets_only_if_they_name_them() -> None:
    net = _graph(models.odd_groups).childnets[0]
    wanted = replace(net, descriptor="cpu:f32/childnet.winograd{tile=4,4}")

    def asks(layers: str, routines: str) -> bool:
        return AskedChildren((Pin(layers, routines),))("conv", wanted)

    assert asks("conv", "*/childnet.*")
    assert asks("conv/product", "*matmul.product*")
    assert not asks("conv", "cpu:f32/*")
    assert not asks("conv", "*/childnet.parts*")
    assert not asks("other", "*/childnet.*")


def test_what_children_would_read_twice_is_not_split() -> None:
    """A conversion of it would be paid once by the layer, and counted for each of its children."""
    graph = _graph(models.added_to_itself)
    assert [len(layer.inputs) for layer in graph.layers] == [1]
    assert graph.childnets == ()


def test_children_have_childnets_of_their_own() -> None:
    graph = _graph(models.wide_groups, VULKAN)
    parts, patches = graph.childnets
    assert [each.descriptor.partition(".")[2] for each in (parts, patches)] == ["parts{parts=16}", "patches"]
    inner = list(parts.graph.childnets)
    assert [each.layer for each in inner] == [f"y/part{index}" for index in range(16)]
    assert [layer.name for layer in inner[3].graph.layers] == ["y/part3/patches", "y/part3/product"]
    _check_types(graph)


def test_names_of_other_layers_are_not_taken() -> None:
    graph = replace(_graph(models.odd_groups), childnets=())
    (layer,) = graph.layers
    taken = replace(layer, name="conv/product", inputs=(ValueRef(None, 0),))
    again, _ = find_childnets(replace(graph, layers=(layer, taken)), {}, CPU)
    assert [childnet.layer for childnet in again.childnets] == ["conv/product"]


def test_children_take_the_place_of_their_layer() -> None:
    graph = _graph(models.wide_groups, VULKAN)
    both = {"y/split", "y/join", *(f"y/part{index}" for index in range(15))}
    applied = apply_choices(graph, {*both, "y/part15/patches", "y/part15/product"})
    names = [layer.name for layer in applied.layers]
    assert names == [
        "y/split",
        *(f"y/part{index}" for index in range(15)),
        "y/part15/patches",
        "y/part15/product",
        "y/join",
    ]
    assert applied.layers[-3].inputs == (ValueRef("y/split", 15),)
    assert applied.layers[-1].inputs[-1] == ValueRef("y/part15/product", 0)
    assert applied.outputs[0].source == ValueRef("y/join", 0)
    assert (applied.fusions, applied.childnets) == ((), ())
    _check_types(applied)
    assert [layer.name for layer in apply_choices(graph, {"y"}).layers] == ["y"]


def test_dense_filters_are_zero_between_groups() -> None:
    filters = np.random.default_rng(3).standard_normal((6, 2, 3, 1, 1))
    dense = dense_filters(filters, 2)
    assert [each.shape for each in dense] == [(6, 9, 1, 1)] * 2
    image = np.random.default_rng(4).standard_normal((6, 3))
    expected = np.einsum("goiyx,gi->go", filters, image).reshape(2, 6)
    found = [each[:, :, 0, 0] @ image.reshape(2, 9)[index] for index, each in enumerate(dense)]
    assert np.allclose(found, expected)
    assert all(np.count_nonzero(each) == 3 * 2 * 3 for each in dense)
