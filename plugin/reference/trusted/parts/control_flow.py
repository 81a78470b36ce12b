"""If, Loop and Scan, for bodies that ONNX Runtime cannot run whole: ONNX's text, one body after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node
from sartor.runtime.driver.signature import Array

# The operator set from which on a Scan is of one sequence.
_ONE_SEQUENCE = 9

BodyRun = Callable[[Mapping[str, Any], Mapping[str, Any]], list[Any]]
"""Computes a body's outputs from its inputs and the values around it."""


@dataclass(frozen=True)
class Bodies:
    """A control-flow node, what runs its bodies, by attribute, and the version of the standard operators there."""

    node: NodeProto
    runs: Mapping[str, BodyRun]
    version: int

    def graph(self, attribute: str) -> GraphProto:
        """The body that an attribute holds."""
        return next(
            attribute_of_node.g for attribute_of_node in self.node.attribute if attribute_of_node.name == attribute
        )

    def run(self, attribute: str, inputs: Sequence[Any], outside: Mapping[str, Any]) -> list[Any]:
        """The outputs of a body."""
        names = [value.name for value in self.graph(attribute).input]
        return self.runs[attribute](dict(zip(names, inputs, strict=True)), outside)

    def setting(self, name: str, default: Any) -> Any:
        """The value of an attribute of the node."""
        known = {attribute.name: attribute for attribute in self.node.attribute}
        return helper.get_attribute_value(known[name]) if name in known else default


def _if(bodies: Bodies, inputs: Sequence[Any], outside: Mapping[str, Any]) -> list[Any]:
    is_then = bool(np.asarray(inputs[0]).reshape(()))
    return bodies.run("then_branch" if is_then else "else_branch", (), outside)


def _loop(bodies: Bodies, inputs: Sequence[Any], outside: Mapping[str, Any]) -> list[Any]:
    most, first = (inputs[0] if inputs else None), (inputs[1] if len(inputs) > 1 else None)
    goes_on = first is None or bool(np.asarray(first).reshape(()))
    carried, count = list(inputs[2:]), 0
    body = bodies.graph("body")
    collected: list[list[Array]] = [[] for _ in body.output[1 + len(carried) :]]
    while goes_on and (most is None or count < int(np.asarray(most).reshape(()))):
        given = (np.asarray(count, np.int64), np.asarray(goes_on, np.bool_), *carried)
        condition, *outputs = bodies.run("body", given, outside)
        goes_on, count = bool(np.asarray(condition).reshape(())), count + 1
        carried, scanned = outputs[: len(carried)], outputs[len(carried) :]
        for rows, row in zip(collected, scanned, strict=True):
            rows.append(row)
    declared = body.output[1 + len(carried) :]
    return [*carried, *(_stacked(rows, value, 0) for rows, value in zip(collected, declared, strict=True))]


def _scan(bodies: Bodies, inputs: Sequence[Any], outside: Mapping[str, Any]) -> list[Any]:
    """Scan of opset 9 and newer.

    Raises:
        UnsupportedModelError: for an older one, which scans each sequence of a batch by itself; imports refuse it, too.
    """
    if bodies.version < _ONE_SEQUENCE:
        raise UnsupportedModelError(f"{describe_node(bodies.node)} of opset 8 is not known to the reference")
    count = int(bodies.setting("num_scan_inputs", 0))
    state, scanned = list(inputs[: len(inputs) - count]), list(inputs[len(inputs) - count :])
    axes = bodies.setting("scan_input_axes", [0] * count)
    backwards = bodies.setting("scan_input_directions", [0] * count)
    rows = [np.moveaxis(value, axis, 0) for value, axis in zip(scanned, axes, strict=True)]
    rows = [value[::-1] if back else value for value, back in zip(rows, backwards, strict=True)]
    declared = bodies.graph("body").output[len(state) :]
    collected: list[list[Array]] = [[] for _ in declared]
    for index in range(len(rows[0])):
        outputs = bodies.run("body", (*state, *(value[index] for value in rows)), outside)
        state = outputs[: len(state)]
        for arrays, row in zip(collected, outputs[len(state) :], strict=True):
            arrays.append(row)
    turns = bodies.setting("scan_output_directions", [0] * len(declared))
    out_axes = bodies.setting("scan_output_axes", [0] * len(declared))
    ordered = [arrays[::-1] if turn else arrays for arrays, turn in zip(collected, turns, strict=True)]
    stacked = [_stacked(arrays, value, axis) for arrays, value, axis in zip(ordered, declared, out_axes, strict=True)]
    return [*state, *stacked]


def _stacked(rows: Sequence[Array], declared: Any, axis: int) -> Array:
    """What a body computed in its runs, along a new axis; no elements if it never ran."""
    if rows:
        return np.stack(rows, axis)
    tensor = declared.type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
    return np.zeros(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1))


CONTROL_FLOW: Mapping[str, Callable[[Bodies, Sequence[Any], Mapping[str, Any]], list[Any]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
"""What runs a control-flow node: from its bodies, its inputs and the values around it."""
