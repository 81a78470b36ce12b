"""Whether a model is the one that a module was compiled from, as far as its inputs tell."""

from __future__ import annotations

from collections.abc import Set

from onnx import ModelProto

from sartor.errors import UsageError
from sartor.onnx_model.graphs.graph import GraphEditor


def check_inputs(model: ModelProto, compiled: Set[str]) -> None:
    """Make sure that a model takes what the module was compiled with.

    Raises:
        UsageError: if one has an input that the other has not.
    """
    editor = GraphEditor(model.graph)
    taken = {value.name for value in model.graph.input}
    asked = {name for name in taken if not editor.is_constant(name)}
    for names, has, lacks in ((asked - compiled, "model", "module"), (compiled - taken, "module", "model")):
        if names:
            raise UsageError(
                f"the {has} has the input '{min(names)}', which the {lacks} has not; "
                "name the model that the module was compiled from"
            )
