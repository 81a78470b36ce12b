"""The record of a network: what may be read from a file, and which tensors exist when."""

from __future__ import annotations

from typing import Any

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.errors import UsageError
from sartor.tuning.records.network import FORMAT, NETWORK_INPUT, Network, network_of

_TYPE = TensorType((1, 4, 2, 2), "f32")
_BYTES = 4 * 4 * 4


def _layer(name: str, *sources: ValueRef, weights: tuple[str, ...] = ()) -> Layer:
    inputs = (_TYPE,) * len(sources)
    kinds = (TensorType((4, 4, 1, 1), "f32"),) * len(weights)
    task = Task(f"key of {name}", LayerKind.TOLERANT, "", inputs, kinds, (_TYPE,))
    return Layer(name, (f"node of {name}",), task, sources, weights)


def _fork() -> LayerGraph:
    """first -> (left, right) -> sum, which reads the network's input as well."""
    first = _layer("first", ValueRef(None, 0), weights=("w",))
    left, right = (_layer(name, ValueRef("first", 0)) for name in ("left", "right"))
    total = _layer("sum", ValueRef("left", 0), ValueRef("right", 0), ValueRef(None, 0))
    given = NetworkValue("x", _TYPE, "float32")
    return LayerGraph((first, left, right, total), (given,), (NetworkValue("y", _TYPE, "float32", ValueRef("sum", 0)),))


def test_a_network_of_stock_code_has_its_edges_types_and_bytes() -> None:
    network = network_of(_fork(), {}, "cpu")
    assert [layer.inputs for layer in network.layers] == [
        ((NETWORK_INPUT, 0),),
        ((0, 0),),
        ((0, 0),),
        ((1, 0), (2, 0), (NETWORK_INPUT, 0)),
    ]
    first = network.layers[0]
    assert (first.results[0].type, first.results[0].form) == ("1x4x2x2xf32", "cpu:f32@nchw")
    assert (first.weights[0].type, first.weights[0].bytes) == ("4x4x1x1xf32", 64)
    assert first.traffic == 2 * _BYTES + 64
    assert network.outputs == ((3, 0),)


def test_tensors_live_from_their_layer_to_their_last_reader() -> None:
    live = [each // _BYTES for each in network_of(_fork(), {}, "cpu").live_bytes]
    assert live == [1, 2, 3, 3]


def test_an_output_lives_to_the_end() -> None:
    first, second = _layer("first", ValueRef(None, 0)), _layer("second", ValueRef("first", 0))
    last = _layer("last", ValueRef("second", 0))
    given = (NetworkValue("x", _TYPE, "float32"),)
    outputs = (NetworkValue("y", _TYPE, "float32", ValueRef("first", 0)),)
    live = network_of(LayerGraph((first, second, last), given, outputs), {}, "cpu").live_bytes
    assert [each // _BYTES for each in live] == [1, 2, 3]


def test_it_survives_as_json() -> None:
    network = network_of(_fork(), {}, "cpu")
    assert Network.from_json(network.to_json(), "it") == network


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (("layers", 1, "inputs"), [[1, 0]], "layer 1 is read before it is computed"),
        (("layers", 1, "inputs"), [[-2, 0]], "layer -2 is read before it is computed"),
        (("layers", 1, "inputs"), [[0, 1]], "layer 0 has no result 1"),
        (("layers", 1, "inputs"), [[NETWORK_INPUT, 1]], "layer -1 has no result 1"),
        (("layers", 1, "inputs"), [], "'left' reads 1 tensors and names 0"),
        (("outputs",), [[4, 0]], "layer 4 is read before it is computed"),
        (("format",), FORMAT + 1, "update sartor"),
        (("layers", 0, "kind"), None, "kind"),
    ],
)
def test_what_is_no_network_is_refused(place: tuple[Any, ...], value: object, complaint: str) -> None:
    data = network_of(_fork(), {}, "cpu").to_json()
    inner: Any = data
    for each in place[:-1]:
        inner = inner[each]
    inner[place[-1]] = value
    with pytest.raises(UsageError, match=complaint):
        Network.from_json(data, "the network in 'x'")
