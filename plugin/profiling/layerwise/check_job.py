"""Worker side of checking layers: reads the user's file, which is untrusted, and runs its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sartor.errors import SartorError
from sartor.onnx_model.reading.load import load_model
from sartor.reference.layerwise.layer_check import CheckedLayers, Claim, LayerCheck
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.protocol import WorkerError


def tensors_of(path: Path) -> frozenset[str] | WorkerError:
    """Names of what the nodes of a model's main graph compute."""
    try:
        return frozenset(name for node in load_model(path).graph.node for name in node.output if name)
    except SartorError as error:
        return WorkerError(error)


def check_layers(
    path: Path,
    claims: Mapping[str, Claim],
    inferences: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    bound: Sequence[BoundInput] = (),
) -> CheckedLayers | WorkerError:
    """Compare the tensors of inferences with what the nodes of the user's file give.

    Args:
        path: the user's file.
        claims: by name of the tensor.
        inferences: the inputs of each, and the module's values of the tensors, by name.
        bound: inputs with a fixed value, which the file takes and the module does not.
    """
    try:
        check, found = LayerCheck(load_model(path), claims), CheckedLayers()
        for feeds, given in inferences:
            found += check({**feeds, **bound_feeds(bound)}, given)
    except SartorError as error:
        return WorkerError(error)
    return found
