"""Layers and ONNX's tensors: a layer's own code, run on the tensors it reads, gives the tensors it computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from benchmarks import zoo
from sartor.codegen.ir.layer import Layer, LayerKind, TensorType
from sartor.frontend.constant_folding import evaluate
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors, layer_tensors
from sartor.precision.observe_job import show_only
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import output_error
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
