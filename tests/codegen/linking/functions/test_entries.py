"""Entries of networks whose layers are on two devices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ENTRY, Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.functions.entries import Entry, devices_of, entries_of
from sartor.runtime.segments.record import check_order
from sartor.tuning.networks.segments import segments_of

_IMAGE = TensorType((1, 4, 2, 2), "f32")


def _layer(name: str, *sources: str) -> Layer:
    """A layer over others' results, or over the input ``x``."""
    refs = tuple(ValueRef(None, 0) if source == "x" else ValueRef(source, 0) for source in sources)
    task = Task("t", LayerKind.TOLERANT, "", (_IMAGE,) * len(refs), (), (_IMAGE,))
    return Layer(name, (name,), task, refs, ())


def _graph(layers: Sequence[Layer], *outputs: NetworkValue) -> LayerGraph:
    return LayerGraph(tuple(layers), (NetworkValue("x", _IMAGE, "float32"),), outputs)


def _output(name: str, source: str | None, constant: str | None = None) -> NetworkValue:
    ref = None if source is None else ValueRef(None, 0) if source == "x" else ValueRef(source, 0)
    return NetworkValue(name, _IMAGE, "float32", ref, constant)


def _on(layers: Sequence[Layer], devices: Sequence[str], layout: str = "nchw") -> dict[str, Implementation]:
    """Code of the layers, each on a device."""
    return {
        layer.name: Implementation(
            "", tuple(Schema(device, "f32", layout) for _ in layer.inputs), (Schema(device, "f32", layout),), ()
        )
        for layer, device in zip(layers, devices, strict=True)
    }


def _steps(entries: Sequence[Entry]) -> list[tuple[str, list[str], list[str], list[str]]]:
    return [
        (
            entry.device,
            [port.name for port in entry.inputs],
            [layer.name for layer in entry.layers],
            [port.name for port in entry.outputs],
        )
        for entry in entries
    ]


def test_a_network_on_one_device_has_one_entry() -> None:
    layers = [_layer("a", "x"), _layer("b", "a")]
    (entry,) = entries_of(_graph(layers, _output("y", "b")), _on(layers, ["vulkan", "vulkan"]), "cpu")
    assert (entry.name, entry.device) == (ENTRY, "vulkan")
    assert entry.inputs[0].schema == entry.outputs[0].schema == Schema("vulkan", "f32", "nchw")


def test_a_value_crosses_once_for_all_readers_and_as_it_is_produced() -> None:
    layers = [_layer("a", "x"), _layer("b", "a"), _layer("c", "a", "b"), _layer("d", "c", "a")]
    code = _on(layers, ["cpu", "vulkan", "vulkan", "cpu"], "nhwc")
    entries = entries_of(_graph(layers, _output("y", "d")), code, "cpu")
    assert _steps(entries) == [
        ("cpu", ["x"], ["a"], ["a:0"]),
        ("vulkan", ["a:0"], ["b", "c"], ["c:0"]),
        ("cpu", ["c:0", "a:0"], ["d"], ["y"]),
    ]
    assert entries[1].inputs[0].type == TensorType((1, 2, 2, 4), "f32")
    assert entries[1].inputs[0].schema == Schema("vulkan", "f32", "nhwc")


def test_an_output_of_the_other_device_is_converted_at_home_only_if_it_must_be() -> None:
    layers = [_layer("a", "x"), _layer("b", "a")]
    graph = _graph(layers, _output("y", "b"))
    plain = entries_of(graph, _on(layers, ["cpu", "vulkan"]), "cpu")
    assert _steps(plain)[-1] == ("vulkan", ["a:0"], ["b"], ["y"])
    turned = entries_of(graph, _on(layers, ["cpu", "vulkan"], "nhwc"), "cpu")
    assert _steps(turned)[1:] == [("vulkan", ["a:0"], ["b"], ["b:0"]), ("cpu", ["b:0"], [], ["y"])]


def test_outputs_that_no_layer_computes_are_given_at_home() -> None:
    layers = [_layer("a", "x"), _layer("b", "a")]
    outputs = [_output("x", "x"), _output("copy", "x"), _output("w", None, "weight"), _output("y", "b")]
    entries = entries_of(_graph(layers, *outputs), _on(layers, ["cpu", "vulkan"]), "cpu")
    assert _steps(entries)[-1] == ("cpu", ["x"], [], ["copy", "w"])


def test_names_of_values_differ_from_those_of_the_network() -> None:
    layers = [_layer("a", "x"), _layer("b", "a")]
    entries = entries_of(_graph(layers, _output("a:0", "b")), _on(layers, ["cpu", "vulkan"]), "cpu")
    assert _steps(entries)[0][3] == ["a:0'"]


@pytest.mark.parametrize("seed", range(50))
def test_segments_of_random_networks_run_in_their_order(seed: int) -> None:
    chance = random.Random(seed)
    layers: list[Layer] = []
    for index in range(chance.randint(2, 25)):
        earlier = ["x", *(layer.name for layer in layers)]
        layers.append(_layer(f"l{index}", *(chance.choice(earlier) for _ in range(chance.randint(1, 3)))))
    outputs = [_output(f"y{index}", chance.choice(layers).name) for index in range(2)]
    layout = chance.choice(["nchw", "nhwc"])
    graph = _graph(layers, *outputs)
    code = _on(layers, ["cpu", *(chance.choice(["cpu", "vulkan"]) for _ in layers[1:])], layout)
    entries = entries_of(graph, code, "cpu")
    devices = devices_of(code, "cpu")
    check_order(segments_of(entries, devices[0], outputs), ["x"], [output.name for output in outputs])
    assert sorted(layer.name for entry in entries for layer in entry.layers) == sorted(layer.name for layer in layers)
    assert all(code[layer.name].output.device == entry.device for entry in entries for layer in entry.layers)
    if len(devices) > 1:
        assert all(one.device != other.device for one, other in pairwise(entries))
