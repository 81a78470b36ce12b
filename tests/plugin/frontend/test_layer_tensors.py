"""A layer's code, run on the tensors it reads, gives those it computes; ranges are known inside childnets too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from benchmarks import zoo
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, TensorType, ValueRef
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors, layer_tensors
from sartor.frontend.layering import evaluate
from sartor.frontend.value_ranges import Values, named_ranges, ranges_of, with_children
from sartor.policies import Precision
from sartor.precision.eligibility import eligibility
from sartor.precision.observe_job import show_only
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import output_error
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests import grouped_models as models
from tests.importing import ImportedOf, imported_model
from tests.tiny_models import Builder

# Every way in which a node becomes several layers, or several nodes one.
TELLING = ("residual", "silu", "gelu", "shuffle", "split")
COMPUTING = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE, LayerKind.CONTRACTION)


def _prepared(imported: ImportedModel) -> ModelProto:
    assert isinstance(imported.prepared, bytes)
    return ModelProto.FromString(imported.prepared)


def _values(imported: ImportedModel, tensors: Mapping[str, LayerTensors]) -> dict[str, Array]:
    """All tensors that layers read or compute, by ONNX Runtime."""
    model = _prepared(imported)
    named = dict.fromkeys(name for tensor in tensors.values() for name in (*tensor.inputs, *tensor.results) if name)
    names = [name for name in named if name not in imported.samples]
    show_only(model, names)
    computed = ReferenceModel(model.SerializeToString())(imported.samples)
    return {**imported.samples, **dict(zip(names, computed, strict=True))}


def _run(
    imported: ImportedModel, layers: list[Layer], tensors: Mapping[str, LayerTensors], values: Mapping[str, Array]
) -> list[Array]:
    """What layers compute from ONNX Runtime's tensors, all in one module."""
    texts: list[str] = []
    calls: list[str] = []
    arguments: list[tuple[Array, TensorType]] = []
    for number, layer in enumerate(layers):
        texts.append(layer.task.body.replace("public @layer", f"private @layer{number}"))
        start = len(arguments)
        inputs = zip(tensors[layer.name].inputs, layer.task.inputs, strict=True)
        arguments += [(values[str(name)].reshape(kind.shape), kind) for name, kind in inputs]
        arguments += [
            (imported.weights[name], kind) for name, kind in zip(layer.weights, layer.task.weights, strict=True)
        ]
        passed = ", ".join(f"%arg{index}" for index in range(start, len(arguments)))
        kinds = ", ".join(str(kind) for _, kind in arguments[start:])
        calls.append(f"%r{number} = util.call @layer{number}({passed}) : ({kinds}) -> ({layer.task.results[0]})")
    given = ", ".join(f"%arg{index}: {kind}" for index, (_, kind) in enumerate(arguments))
    returned = ", ".join(f"%r{number}" for number in range(len(layers)))
    results = [layer.task.results[0] for layer in layers]
    types = ", ".join(map(str, results))
    entry = f"util.func public @fold({given}) -> ({types}) {{ {' '.join(calls)} util.return {returned} : {types} }}"
    return evaluate("\n".join([*texts, entry]), [array for array, _ in arguments], results)


def _is_complete(layer: Layer, tensors: Mapping[str, LayerTensors]) -> bool:
    each = tensors[layer.name]
    return each.result is not None and None not in each.inputs


@pytest.mark.parametrize("name", TELLING)
def test_layers_compute_the_tensors_they_are_said_to(name: str, imported_of: ImportedOf) -> None:
    imported = imported_of(name)
    tensors = layer_tensors(_prepared(imported), imported.graph)
    layers = [layer for layer in imported.graph.layers if _is_complete(layer, tensors)]
    assert layers
    values = _values(imported, tensors)
    for layer, computed in zip(layers, _run(imported, layers, tensors, values), strict=True):
        expected = values[str(tensors[layer.name].result)]
        assert output_error(computed.reshape(expected.shape), expected) < 1e-5, layer.name


def test_what_exists_within_a_node_only_has_no_name(imported_of: ImportedOf) -> None:
    """The rows of indices by which a gather reads elements."""
    imported = imported_of("two_results")
    tensors = layer_tensors(_prepared(imported), imported.graph)
    gathered = ("indices", None, "x")
    assert tensors["values/values"] == LayerTensors("values/values", ("indices",), (None,), ())
    assert tensors["values/values#2"] == LayerTensors("values/values#2", gathered, ("values",), ("values/values",))


def test_a_layer_of_several_nodes_lies_between_what_it_reads_and_its_last(imported_of: ImportedOf) -> None:
    imported = imported_of("residual")
    tensors = layer_tensors(_prepared(imported), imported.graph)
    assert tensors["conv2"] == LayerTensors("conv2", ("relu1", "x"), ("y",), ("conv2", "add", "y"))


def test_the_part_of_a_split_that_is_read_is_found(imported_of: ImportedOf) -> None:
    imported = imported_of("split")
    tensors = layer_tensors(_prepared(imported), imported.graph)
    found = {tensor.result for tensor in tensors.values()}
    assert {"conv", "left", "y"} <= found


def test_selecting_is_done_once_all_that_is_left_is_a_reshape(tmp_path: Path) -> None:
    """The slice of a Gather is one layer, and the product after it takes in the Gather's reshape."""
    b = Builder()
    first = b.op("Gather", "first", "x", b.constant(np.array(0, np.int64)), axis=1)
    b.op("MatMul", "y", first, b.weight(8, 4))
    path = tmp_path / "gather.onnx"
    path.write_bytes(b.model([("x", (1, 5, 8))], [("y", (1, 4))]).SerializeToString())
    imported = imported_model(path)
    tensors = layer_tensors(_prepared(imported), imported.graph)
    assert tensors["y"].inputs == ("first",)
    assert tensors["y"].nodes == ("y",)


def _check_network(path: Path) -> None:
    imported = imported_model(path)
    tensors = layer_tensors(_prepared(imported), imported.graph)
    computing = [layer for layer in imported.graph.layers if layer.task.kind in COMPUTING]
    assert computing
    for layer in computing:
        found = tensors[layer.name]
        assert _is_complete(layer, tensors), found
        assert set(found.nodes) <= set(layer.nodes)
        assert layer.name in found.nodes
    results = [tensor.result for tensor in tensors.values() if tensor.result is not None]
    assert len(set(results)) == len(results)


def test_all_computing_layers_of_squeezenet_have_tensors(tmp_path: Path) -> None:
    _check_network(zoo.write("squeezenet", tmp_path))


def test_all_computing_layers_of_a_real_model_have_tensors(model_folder: Path) -> None:
    _check_network(model_folder / "mobilefacenet.onnx")


BEFORE, AFTER = QuantisedRange(0.1, -128, "int8"), QuantisedRange(0.3, 5, "int8")
# Kernels for vectors of 64 bytes, whatever this machine has.
TARGET = Target.create("cpu", "x86-64-v4")


def _inside(graph: LayerGraph, layer: str) -> dict[ValueRef, QuantisedRange]:
    """Ranges of what the children of a layer hand on, if those of the layer's image and result are known."""
    (own,) = (each for each in graph.layers if each.name == layer)
    found = with_children(graph, {own.inputs[0]: BEFORE, ValueRef(layer, 0): AFTER})
    return {ref: each for ref, each in found.items() if (ref.source or "").startswith(f"{layer}/")}


def test_parts_have_the_range_of_the_whole() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    (net,) = graph.childnets_of("conv2")
    found = _inside(graph, "conv2")
    results = [ref for layer in net.graph.layers for ref in Values.written(layer)]
    assert set(found) == set(results)
    assert {each for ref, each in found.items() if ref.source == "conv2/split"} == {BEFORE}
    assert {each for ref, each in found.items() if ref.source != "conv2/split"} == {AFTER}
    assert ranges_of(named_ranges(found)) == found


def test_what_ends_in_the_join_is_no_part_of_it() -> None:
    """A residual is added to all parts at once, and what they are before that is no value of the network."""
    graph = imported_model(models.dilated_with_residual(), target=TARGET).graph
    (layer,) = graph.layers
    assert {ref.source for ref in _inside(graph, layer.name)} == {f"{layer.name}/split", f"{layer.name}/join"}


def test_nothing_is_known_inside_of_what_is_not_known_outside() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    assert with_children(graph, {ValueRef(None, 0): BEFORE}) == {ValueRef(None, 0): BEFORE}


def test_children_read_the_layers_activations() -> None:
    graph = imported_model(models.bottleneck(), target=TARGET).graph
    values = Values(graph)
    layers = {layer.name: layer for layer in graph.all_layers()}
    assert values.read(layers["conv2/split"], 0) == values.read(layers["conv2"], 0) == ValueRef("conv1", 0)
    assert values.read(layers["conv1"], 0) == ValueRef(None, 0)
    assert values.read(layers["conv2/part0"], 0) == ValueRef("conv2/split", 0)


def test_children_may_compute_in_8_bits_where_ranges_are_known() -> None:
    imported = imported_model(models.bottleneck(), target=TARGET)
    config = CompileConfig(target=TARGET, threads=1, jobs=1, precision=Precision.INT8)
    variants = find_candidates(imported, config.planning).variants
    layers = {layer.name: layer for layer in imported.graph.all_layers()}
    ranged = {ValueRef("conv1", 0): BEFORE, ValueRef("conv2", 0): AFTER}

    def offered(name: str, ranges: dict[ValueRef, QuantisedRange]) -> bool:
        may_run = eligibility(_with(imported, ranges), config.precision)
        # Filters alone in 8 bits need no range of what they multiply.
        found = (each for each in variants[layers[name].task.key] if each.dtype == "i8" and not each.traits.weights)
        return any(may_run(layers[name], each) for each in found)

    children = [name for name in layers if name.startswith("conv2/")]
    assert len(children) >= 4
    assert all(offered(name, with_children(imported.graph, ranged)) for name in children)
    # The network's input is read by another layer, and its range says nothing about what a childnet is given.
    assert not any(offered(name, {ValueRef(None, 0): BEFORE}) for name in children)


def test_several_results_need_one_range() -> None:
    imported = imported_model(models.bottleneck(), target=TARGET)
    config = CompileConfig(target=TARGET, threads=1, jobs=1, precision=Precision.INT8)
    (split,) = (layer for layer in imported.graph.all_layers() if layer.name == "conv2/split")
    stored = [
        each for each in find_candidates(imported, config.planning).variants[split.task.key] if each.dtype == "i8"
    ]
    alike = {ValueRef("conv1", 0): BEFORE} | dict.fromkeys(Values.written(split), BEFORE)
    other = alike | {Values.written(split)[-1]: AFTER}
    assert all(eligibility(_with(imported, alike), config.precision)(split, each) for each in stored)
    assert not any(eligibility(_with(imported, other), config.precision)(split, each) for each in stored)


def _with(imported: ImportedModel, ranges: dict[ValueRef, QuantisedRange]) -> ImportedModel:
    return replace(imported, ranges=ranges)
