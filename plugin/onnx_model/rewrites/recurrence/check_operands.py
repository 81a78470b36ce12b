"""Refuses recurrent nodes whose weights and states have other sizes than their input and hidden state make them."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import GATES

_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
_RANK, _PEEPHOLES = 3, 3


@node_rewrite(*GATES)
def check_recurrent(node: NodeProto, editor: GraphEditor) -> None:
    """Check the operands of LSTM, GRU and RNN; changes nothing.

    Raises:
        UnsupportedModelError: one does not fit the others; the message names the node and the operand.
    """
    _check_attributes(node)
    shape = editor.shape(node.input[0])
    if shape is None:
        return
    if len(shape) != _RANK:
        raise _refusal(node, f"reads a value of shape {list(shape)} where it needs three dimensions")
    for index, operand, expected in _expected(node, shape):
        given = editor.shape(name) if (name := optional_input(node, index)) else None
        if given is not None and given != expected:
            made = f"its input of shape {list(shape)} and hidden_size {attributes(node)['hidden_size']}"
            raise _refusal(
                node, f"has {list(given)} as the shape of its input '{operand}', which {made} make {list(expected)}"
            )


def _check_attributes(node: NodeProto) -> None:
    settings = attributes(node)
    if settings.get("hidden_size") is None:
        raise _refusal(node, "has None as its attribute 'hidden_size', which is a number")
    direction = settings.get("direction", "forward")
    if direction not in _DIRECTIONS:
        raise _refusal(
            node, f"has {direction!r} as its attribute 'direction', which is forward, reverse or bidirectional"
        )
    count = _ACTIVATIONS[node.op_type] * _DIRECTIONS[direction]
    given = settings.get("activations") or [""] * count
    if len(given) != count:
        raise _refusal(node, f"has {len(given)} activations where it needs {count}")


def _refusal(node: NodeProto, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{describe_node(node)} {reason}; export the model again")


def _expected(node: NodeProto, shape: tuple[int, ...]) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Index, name and shape of each operand beside the sequence."""
    settings, gates = attributes(node), GATES[node.op_type]
    hidden, directions = settings["hidden_size"], _DIRECTIONS[settings.get("direction", "forward")]
    batch_first = bool(settings.get("layout", 0))
    batch = shape[0] if batch_first else shape[1]
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    yield 1, "W", (directions, gates * hidden, shape[2])
    yield 2, "R", (directions, gates * hidden, hidden)
    yield 3, "B", (directions, 2 * gates * hidden)
    yield 4, "sequence_lens", (batch,)
    yield 5, "initial_h", state
    yield 6, "initial_c", state
    yield 7, "P", (directions, _PEEPHOLES * hidden)
