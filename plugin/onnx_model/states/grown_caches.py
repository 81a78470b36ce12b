"""Finds the caches of a model that grow: inputs behind which a node puts new positions, as an output of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.states.state_names import is_cache, is_state_pair


@dataclass(frozen=True)
class Growing:
    """A cache that a node appends to.

    Attributes:
        input: name of the input with the positions of all calls before.
        output: name of the output that is the input with the call's own positions behind.
        axis: of the positions.
        joined: name of what a node concatenates of both.
    """

    input: str
    output: str
    axis: int
    joined: str


def growing_caches(model: ModelProto, declared: Mapping[str, str], *, finds: bool) -> tuple[Growing, ...]:
    """The caches of a model whose inputs have open lengths.

    Args:
        model: as it was read.
        declared: the output of each input that is declared to be a state.
        finds: whether those are caches too that exporters name so.
    """
    editor = GraphEditor(model.graph)
    return tuple(
        growing
        for value in model.graph.input
        for growing in _of_input(value.name, editor)
        if declared.get(value.name) == growing.output
        or (finds and is_cache(value.name) and is_state_pair(value.name, growing.output))
    )


def _of_input(name: str, editor: GraphEditor) -> Iterator[Growing]:
    rank = editor.rank(name)
    for read, moved in ((name, None), *_reordered(name, rank, editor)):
        for node in editor.consumers(read):
            if node.op_type != "Concat" or node.domain or len(node.input) != 2 or node.input[0] != read or not rank:
                continue
            axis = int(attributes(node).get("axis", 0)) % rank
            output = _output(node.output[0], editor)
            if output and axis != moved and _is_open(name, axis, editor):
                yield Growing(name, output, axis, node.output[0])


def _reordered(name: str, rank: int | None, editor: GraphEditor) -> Iterator[tuple[str, int]]:
    """The cache as a search by beams goes on with it, and the axis of the beams."""
    for node in editor.consumers(name):
        is_gather = node.op_type == "Gather" and not node.domain and node.input[0] == name
        if is_gather and rank and editor.rank(node.input[1]) == 1:
            yield node.output[0], int(attributes(node).get("axis", 0)) % rank


def _output(name: str, editor: GraphEditor) -> str:
    """The output of the model that a value is, perhaps by another name; empty if it is none."""
    if editor.is_output(name):
        return name
    copies = (consumer.output[0] for consumer in editor.consumers(name) if consumer.op_type == "Identity")
    return next((str(copy) for copy in copies if editor.is_output(copy)), "")


def _is_open(name: str, axis: int, editor: GraphEditor) -> bool:
    kind = editor.type(name)
    return kind is not None and kind.tensor_type.shape.dim[axis].dim_value <= 0
