"""Functions of modules: entries for two devices, layers that branch by data, and beginnings of networks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ENTRY, Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import Entry, devices_of, entries_of
from sartor.codegen.linking.functions.prefixes import Prefix, choose, prefixes_of
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.stock_module import run_once
from sartor.runtime.segments.record import check_order
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.networks.segments import segments_of
from sartor.tuning.workers.calls import call, open_pool
from tests.codegen.linking.test_stitching import build, split
from tests.plugin.onnx_model.builders import run, weights

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


# The first choice is by what a layer computes, the second by an input; both branches of each compute tensors.
_CHOICES = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[4,16] x, int64 rate) => (float[4,16] y, float[4,16] z)
<int64 two = {2}, float nought = {0}> {
    product = MatMul (x, w)
    mean = ReduceMean <keepdims = 0> (product)
    is_positive = Greater (mean, nought)
    is_two = Equal (rate, two)
    first = If (is_positive) <
        then_branch = positive () => (float[4,16] a) { a = Tanh (product) },
        else_branch = negative () => (float[4,16] b) { b = Neg (product) }
    >
    z = If (is_two) <
        then_branch = second () => (float[4,16] c) { c = Tanh (product) },
        else_branch = other () => (float[4,16] d) { d = Add (x, first) }
    >
    y = MatMul (first, w)
}"""
_SECONDS = 60.0


def test_a_run_that_writes_into_given_memory_ends(tmp_path: Path) -> None:
    """IREE put the wait for the end before what signals it, and a small model's run never ended."""
    model, path, files = parser.parse_model(_CHOICES), tmp_path / "model.onnx", NetFiles(tmp_path / "net.vmfb", None)
    model.graph.initializer.append(numpy_helper.from_array(weights(16, 16), "w"))
    onnx.save(model, path)
    imported = run_import(path, {}, None)
    assert isinstance(imported, ImportedModel), imported
    build(imported, split(imported), files)
    cases = [{"x": sign * np.ones((4, 16), np.float32), "rate": np.array(rate)} for sign in (1, -1) for rate in (1, 2)]
    with open_pool(1) as (pool, _):
        for feeds in cases:
            arguments = {"module": files.module, "feeds": feeds, "device": "cpu"}
            for actual, expected in zip(
                call(pool, run_once, arguments, "running", _SECONDS), run(model, feeds).values(), strict=True
            ):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    with Session(files.module, threads=1) as session:
        bound = session.bind(cases[0])
        for feeds in cases:
            for name, array in feeds.items():
                bound.inputs[name].copy_from(array)
            bound.run()
            for name, expected in run(model, feeds).items():
                np.testing.assert_allclose(bound.outputs[name].to_host(), expected, rtol=1e-5, atol=1e-6)


_PREFIXES_IMAGE = TensorType((1, 4, 2, 3), "f32")
_NCHW, _NHWC = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
_TO_NHWC = AdaptKind(str(_PREFIXES_IMAGE), _NCHW, _NHWC).symbol
_TO_NCHW = AdaptKind(str(_PREFIXES_IMAGE), _NHWC, _NCHW).symbol


def _prefixes_layer(name: str, *sources: str) -> Layer:
    refs = tuple(ValueRef(None, 0) if source == "x" else ValueRef(source, 0) for source in sources)
    task = Task(name, LayerKind.TOLERANT, "", (_PREFIXES_IMAGE,) * len(refs), (), (_PREFIXES_IMAGE,))
    return Layer(name, (name,), task, refs, ())


def _prefixes(schemas: dict[str, Schema], *layers: Layer) -> list[Prefix]:
    """The beginnings of a network that gives the last layer's result."""
    output = NetworkValue("y", _PREFIXES_IMAGE, "float32", ValueRef(layers[-1].name, 0))
    graph = LayerGraph(layers, (NetworkValue("x", _PREFIXES_IMAGE, "float32"),), (output,))
    code = {
        layer.name: Implementation("", (schemas[layer.name],) * len(layer.inputs), (schemas[layer.name],), ())
        for layer in layers
    }
    (whole,) = entries_of(graph, code, "cpu")
    return prefixes_of(whole, {layer.name: f"t{layer.name}" for layer in layers}, code)


def _results(prefix: Prefix) -> list[tuple[str | None, str]]:
    return [(output.ref.source if output.ref else None, output.schema.layout) for output in prefix.entry.outputs]


def test_a_beginning_gives_what_is_read_later_and_nothing_else() -> None:
    layers = [
        _prefixes_layer("a", "x"),
        _prefixes_layer("b", "a"),
        _prefixes_layer("c", "b", "a"),
        _prefixes_layer("d", "c"),
    ]
    found = _prefixes(dict.fromkeys("abcd", _NCHW), *layers)
    assert [each.symbol for each in found] == ["ta", "tb", "tc", "td"]
    assert [[layer.name for layer in each.entry.layers] for each in found] == [[*"a"], [*"ab"], [*"abc"], [*"abcd"]]
    # ``c`` reads both, nothing reads ``a`` or ``b`` after it.
    assert [_results(each) for each in found] == [
        [("a", "nchw")],
        [("b", "nchw"), ("a", "nchw")],
        [("c", "nchw")],
        [("d", "nchw")],
    ]
    assert len({each.entry.name for each in found}) == 4


def test_a_conversion_is_a_piece_of_its_own_and_done_once() -> None:
    layers = [_prefixes_layer("a", "x"), _prefixes_layer("b", "a"), _prefixes_layer("c", "a", "b")]
    found = _prefixes({"a": _NCHW, "b": _NHWC, "c": _NHWC}, *layers)
    assert [each.symbol for each in found] == ["ta", _TO_NHWC, "tb", "tc", _TO_NCHW]
    # The converted value is kept for the second reader; the original has none.
    assert [_results(each) for each in found] == [
        [("a", "nchw")],
        [("a", "nhwc")],
        [("a", "nhwc"), ("b", "nhwc")],
        [("c", "nhwc")],
        [("c", "nchw")],
    ]


def test_an_input_that_is_converted_first_is_a_beginning_without_layers() -> None:
    first, *_ = _prefixes({"a": _NHWC}, _prefixes_layer("a", "x"))
    assert (first.symbol, first.entry.layers, _results(first)) == (_TO_NHWC, (), [(None, "nhwc")])


def _named(*symbols: str) -> list[Prefix]:
    (one,) = _prefixes({"a": _NCHW}, _prefixes_layer("a", "x"))
    entries = [replace(one.entry, name=str(place)) for place in range(len(symbols))]
    return [Prefix(symbol, entry) for symbol, entry in zip(symbols, entries, strict=True)]


def test_repeated_pieces_are_timed_where_they_are_first_and_last() -> None:
    found = choose(_named("p", "q", "q", "q", "q", "r"), 64)
    # ``q`` from 0 to 1 and from 3 to 4, ``r`` from 4 to 5.
    assert [each.entry.name for each in found] == ["0", "1", "3", "4", "5"]


def test_of_very_many_pieces_some_are_left_out() -> None:
    found = choose(_named(*(f"p{index}" for index in range(100))), 10)
    assert len(found) <= 20
    assert {"9", "10", "90"} <= {each.entry.name for each in found}
