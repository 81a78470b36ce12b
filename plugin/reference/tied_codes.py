"""Codes of caches in 8 bits, which are outputs: a number near the middle between two codes may be rounded to either.

Sums in another order differ, so the codes of a right module are not always those of the reference. They are taken as
equal if none is more than one off, and few are. A row, or a scale, that is another one changes most codes, and by more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.operator_types.moving import RESHAPING
from sartor.runtime.driver.signature import Array

# A number that is off by a share of a step has another code as often. With 127 steps in the largest number, the usual
# bound of 1e-3 of it is an eighth of a step.
_MOST_OFF = 1 / 8
_MOVING = RESHAPING | {"Concat", "Transpose"}
_CODES = frozenset({"int8", "uint8"})


def coded_outputs(model: ModelProto) -> frozenset[str]:
    """The outputs that hold codes of numbers that the model rounds, as caches in 8 bits do."""
    editor = GraphEditor(model.graph)
    return frozenset(value.name for value in model.graph.output if _is_coded(value.name, editor))


def _is_coded(name: str, editor: GraphEditor) -> bool:
    """Whether what computes a value, but for moving its elements, rounds them and bounds them to 8 bits."""
    pending, seen = [name], {name}
    while pending:
        node = editor.producer(pending.pop())
        if node is None or node.domain:
            continue
        if _to_codes(node, editor):
            return True
        if node.op_type in _MOVING:
            pending += [operand for operand in node.input if operand not in seen]
            seen.update(node.input)
    return False


def _to_codes(node: NodeProto, editor: GraphEditor) -> bool:
    if node.op_type != "Cast" or attributes(node)["to"] not in (TensorProto.INT8, TensorProto.UINT8):
        return False
    bounded = editor.producer(node.input[0])
    rounded = None if bounded is None or bounded.op_type != "Clip" else editor.producer(bounded.input[0])
    return rounded is not None and rounded.op_type == "Round"


def settled(
    outputs: Sequence[Array], expected: Sequence[Array], names: Sequence[str], coded: Collection[str]
) -> list[Array]:
    """The outputs, in which codes that are within ties of the right ones are these.

    Args:
        outputs: of a module.
        expected: the right outputs.
        names: of the outputs.
        coded: those that hold codes.
    """
    if not coded or len(outputs) != len(expected):
        return [*outputs]
    named = zip(names, outputs, expected, strict=True)
    return [right if name in coded and is_tied(output, right) else output for name, output, right in named]


def is_tied(output: Array, right: Array) -> bool:
    """Whether codes are no more than one off, and few are off at all."""
    if output.shape != right.shape or {output.dtype.name, right.dtype.name} - _CODES or output.dtype != right.dtype:
        return False
    off = np.abs(output.astype(np.int16) - right.astype(np.int16))
    most = max(1.0, _MOST_OFF * off.size)
    return off.size == 0 or (int(off.max()) <= 1 and int(np.count_nonzero(off)) <= most)
