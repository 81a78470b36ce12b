"""Beginnings of networks: what each ends with, and that nothing which is read later is left out."""

from __future__ import annotations

from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import entries_of
from sartor.codegen.linking.functions.prefixes import Prefix, choose, prefixes_of

_IMAGE = TensorType((1, 4, 2, 3), "f32")
_NCHW, _NHWC = Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc")
_TO_NHWC = AdaptKind(str(_IMAGE), _NCHW, _NHWC).symbol
_TO_NCHW = AdaptKind(str(_IMAGE), _NHWC, _NCHW).symbol


def _layer(name: str, *sources: str) -> Layer:
    refs = tuple(ValueRef(None, 0) if source == "x" else ValueRef(source, 0) for source in sources)
    task = Task(name, LayerKind.TOLERANT, "", (_IMAGE,) * len(refs), (), (_IMAGE,))
    return Layer(name, (name,), task, refs, ())


def _prefixes(schemas: dict[str, Schema], *layers: Layer) -> list[Prefix]:
    """The beginnings of a network that gives the last layer's result."""
    output = NetworkValue("y", _IMAGE, "float32", ValueRef(layers[-1].name, 0))
    graph = LayerGraph(layers, (NetworkValue("x", _IMAGE, "float32"),), (output,))
    code = {
        layer.name: Implementation("", (schemas[layer.name],) * len(layer.inputs), (schemas[layer.name],), ())
        for layer in layers
    }
    (whole,) = entries_of(graph, code, "cpu")
    return prefixes_of(whole, {layer.name: f"t{layer.name}" for layer in layers}, code)


def _results(prefix: Prefix) -> list[tuple[str | None, str]]:
    return [(output.ref.source if output.ref else None, output.schema.layout) for output in prefix.entry.outputs]


def test_a_beginning_gives_what_is_read_later_and_nothing_else() -> None:
    layers = [_layer("a", "x"), _layer("b", "a"), _layer("c", "b", "a"), _layer("d", "c")]
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
    layers = [_layer("a", "x"), _layer("b", "a"), _layer("c", "a", "b")]
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
    first, *_ = _prefixes({"a": _NHWC}, _layer("a", "x"))
    assert (first.symbol, first.entry.layers, _results(first)) == (_TO_NHWC, (), [(None, "nhwc")])


def _named(*symbols: str) -> list[Prefix]:
    (one,) = _prefixes({"a": _NCHW}, _layer("a", "x"))
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
