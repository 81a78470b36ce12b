"""Advice for models that choose while they run: which input to bind so that the choice is made at compile time."""

from __future__ import annotations

import math

from onnx import ModelProto, ValueInfoProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, static_shape
from sartor.onnx_model.graphs.walk import describe_node, names_read

# Inputs with more elements are data, not settings, and their values are not known at compile time.
_MOST_ELEMENTS = 16


def with_advice(error: UnsupportedModelError, model: ModelProto) -> UnsupportedModelError:
    """The refusal of a model, with the advice to bind a small input if a conditional depends on it."""
    editor = GraphEditor(model.graph)
    settings = {value.name for value in model.graph.input if _is_small(value) and not editor.is_constant(value.name)}
    for node in editor.nodes:
        found = sorted(_sources(node.input[0], editor) & settings) if node.op_type == "If" and node.input else []
        if found:
            advice = " ".join(f"--bind {name}=VALUE" for name in found)
            names = ", ".join(f"'{name}'" for name in found)
            return UnsupportedModelError(
                f"{error}; {describe_node(node)} selects its branch by input {names}: fix that with {advice}"
            )
    return error


def _is_small(value: ValueInfoProto) -> bool:
    shape = static_shape(value.type)
    return shape is not None and math.prod(shape) <= _MOST_ELEMENTS


def _sources(name: str, editor: GraphEditor) -> set[str]:
    """The values without a producer on which a value depends."""
    pending, seen, found = [name], {name}, set()
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is None:
            found.add(current)
            continue
        fresh = [each for each in names_read(node) if each not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return found
