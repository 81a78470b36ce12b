"""What is known of a loop before it runs: its states, the rows that steps read and add, and how many steps it takes.

Where data decides whether it begins, or when it ends, that is at most so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input, static_shape
from sartor.onnx_model.graphs.names import SUPPRESSION_BODY
from sartor.onnx_model.operator_types.moving import RESHAPING
from sartor.onnx_model.rewrites.control_flow.trip_counts import begins, goes_on

# Operators whose result is the number that they read.
_SAME = RESHAPING - {"Flatten"} | {"Cast"}
# Integers to which a cast keeps every count.
_WIDE = frozenset({TensorProto.INT32, TensorProto.INT64})


@dataclass(frozen=True)
class Row:
    """A tensor of all steps' rows: its axis of steps, and whether the first step has the last row."""

    name: str
    axis: int
    backward: bool


@dataclass(frozen=True)
class KnownLoop:
    """A loop of a known number of steps, whose states keep their shapes.

    Attributes:
        body: its inputs are the number and the condition of a step if ``is_numbered``, the states, then rows that it
            reads; its outputs the condition if ``is_numbered``, the states, then rows that it adds.
        states: names of the first ones.
        last: names of the last ones, empty where they are not read.
        read, added: the rows.
        is_bound: whether there may be fewer steps.
        trips: the number of steps that is computed, if there is one; fewer steps may be taken than it says.
        condition: whether the first step is taken, if that is computed.
    """

    body: GraphProto
    steps: int
    is_numbered: bool
    states: Sequence[str]
    last: Sequence[str]
    read: Sequence[Row]
    added: Sequence[Row]
    is_bound: bool = False
    trips: str = ""
    condition: str = ""


def known_loop(node: NodeProto, editor: GraphEditor) -> KnownLoop | None:
    """What is known of a Loop or Scan; None of others, if its steps have no bound, or if IREE's importer takes it."""
    loop = _known(node, editor)
    return loop if loop is not None and (loop.added or loop.read or loop.is_bound) else None


def may_stay(node: NodeProto, editor: GraphEditor, count: int | None = None) -> bool:
    """Whether a Loop or Scan that is not written out can be compiled as a loop.

    Args:
        node: the loop.
        editor: of the graph that has it.
        count: how many steps it takes, if its own counters decide that.
    """
    loop = _known(node, editor) if count is None else _counted(node, editor, count)
    if loop is None or loop.steps <= 0 or not is_counted(loop, editor):
        return False
    results = loop.body.output[1 if loop.is_numbered else 0 :]
    shapes = [static_shape(value.type) for value in results]
    states = [editor.shape(name) for name in loop.states]
    return None not in shapes and shapes[: len(states)] == states


def is_counted(loop: KnownLoop, editor: GraphEditor) -> bool:
    """Whether it is known how many rows the steps add, as far as the main graph knows counts."""
    return not (editor.is_nested and loop.is_bound and loop.added)


def _known(node: NodeProto, editor: GraphEditor) -> KnownLoop | None:
    if node.domain or node.op_type not in ("Loop", "Scan"):
        return None
    return _scan(node, editor) if node.op_type == "Scan" else _counted(node, editor)


def takes_all_or_none(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a Loop of states alone takes all of its steps, or none if its first condition is false.

    IREE's importer wants a constant as condition.
    """
    if node.domain or node.op_type != "Loop" or len(node.output) > len(node.input) - 2 or not optional_input(node, 0):
        return False
    body: GraphProto = attributes(node)["body"]
    is_open = not editor.is_constant(node.input[1])
    return body.name != SUPPRESSION_BODY and is_open and goes_on(body, editor)


def _counted(node: NodeProto, editor: GraphEditor, count: int | None = None) -> KnownLoop | None:
    body: GraphProto = attributes(node)["body"]
    trips, condition = optional_input(node, 0), "" if begins(node, editor) else optional_input(node, 1)
    states = list(node.input[2:])
    added, most = list(node.output[len(states) :]), most_of(trips, editor) if count is None else count
    is_open = count is None and (not goes_on(body, editor) or (bool(added) and not editor.is_constant(trips)))
    is_bound = bool(condition) or is_open
    if most is None or body.name == SUPPRESSION_BODY:
        return None
    rows = [Row(name, 0, backward=False) for name in added]
    computed = "" if editor.is_constant(trips) else trips
    return KnownLoop(body, most, True, states, node.output[: len(states)], [], rows, is_bound, computed, condition)


def most_of(name: str, editor: GraphEditor) -> int | None:
    """The largest value that a single integer may have, as far as constants bound it."""
    if not name:
        return None
    known, maker = editor.constant(name), editor.producer(name)
    if known is not None:
        return int(known.item()) if known.size == 1 and np.isfinite(known).all() else None
    if maker is None or maker.domain:
        return None
    if maker.op_type in _SAME:
        is_narrow = maker.op_type == "Cast" and attributes(maker)["to"] not in _WIDE
        return None if is_narrow else most_of(maker.input[0], editor)
    if maker.op_type == "Clip":
        return _most_of_clipped(maker, editor)
    return _least(maker.input if maker.op_type == "Min" else [], editor)


def _most_of_clipped(node: NodeProto, editor: GraphEditor) -> int | None:
    """As ``most_of`` of a Clip, whose lower limit may be above what it clips."""
    most, lower = _least([node.input[0], optional_input(node, 2)], editor), optional_input(node, 1)
    if most is None or not lower:
        return most
    limit = most_of(lower, editor)
    return None if limit is None else max(most, limit)


def _least(names: Iterable[str], editor: GraphEditor) -> int | None:
    bounds = [most_of(name, editor) for name in names]
    return min((bound for bound in bounds if bound is not None), default=None)


def _scan(node: NodeProto, editor: GraphEditor) -> KnownLoop | None:
    options = attributes(node)
    body, count = options["body"], options["num_scan_inputs"]
    states = len(node.input) - count
    sources, added = node.input[states:], node.output[states:]
    # Before opset 9 there was an operand of lengths in front, and a batch dimension.
    if not all(node.input) or len(body.input) != len(node.input):
        return None
    shapes = [editor.shape(name) for name in sources]
    if not sources or any(shape is None for shape in shapes):
        return None
    read = _rows(sources, options, "input", [len(shape or ()) for shape in shapes])
    ranks = [_rank(*row, editor) for row in zip(body.output[states:], added, strict=True)]
    if None in ranks:
        return None
    steps = (shapes[0] or ())[read[0].axis]
    return KnownLoop(
        body,
        steps,
        False,
        node.input[:states],
        node.output[:states],
        read,
        _rows(added, options, "output", [rank for rank in ranks if rank is not None]),
    )


def _rank(value: ValueInfoProto, result: str, editor: GraphEditor) -> int | None:
    """The rank of all steps' rows, as the body says of one row, or as their result has it; None if neither tells."""
    tensor = value.type.tensor_type
    if tensor.HasField("shape"):
        return len(tensor.shape.dim) + 1
    return editor.rank(result) if result else None


def _rows(names: Sequence[str], options: dict[str, list[int]], kind: str, ranks: Sequence[int]) -> list[Row]:
    axes = options.get(f"scan_{kind}_axes", [0] * len(names))
    directions = options.get(f"scan_{kind}_directions", [0] * len(names))
    rows = zip(names, axes, directions, ranks, strict=True)
    return [Row(name, axis % rank, bool(backward)) for name, axis, backward, rank in rows]
