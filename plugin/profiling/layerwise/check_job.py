"""Worker side of checking layers: reads the user's file, which is untrusted, and runs its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from sartor.errors import SartorError
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.reading.load import load_model
from sartor.reference.layerwise.layer_check import CheckedLayers, Claim, LayerCheck
from sartor.reference.trusted.reference_model import ReferenceModel
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
        check, layers = LayerCheck(load_model(path), claims), CheckedLayers()
        for feeds, given in inferences:
            layers += check({**feeds, **bound_feeds(bound)}, given)
    except SartorError as error:
        return WorkerError(error)
    return layers


def check_rewritten(
    path: Path,
    prepared: Path | bytes,
    claims: Mapping[str, tuple[str, Claim]],
    outputs: Sequence[str],
    samples: Sequence[Mapping[str, Array]],
    bound: Sequence[BoundInput] = (),
) -> CheckedLayers | WorkerError:
    """Compare the tensors of the rewritten model, which the reference computes, with what the user's nodes give.

    Args:
        path: the user's file.
        prepared: the rewritten model.
        claims: by name of the user's tensor, what stands for it in the rewritten model, and how.
        outputs: names of the network's outputs, with those that count the elements of others.
        samples: inputs.
        bound: as for ``check_layers``.
    """
    names = list(dict.fromkeys([*(name for name, _ in claims.values()), *outputs]))
    try:
        run = ReferenceModel(_showing(prepared_model(prepared), names), optimises=False)
        shown = [name for name in outputs if name in run.output_names]
        inferences = [
            (feeds, _claimed(dict(zip(run.output_names, run(feeds), strict=True)), claims, shown)) for feeds in samples
        ]
    except SartorError as error:
        return WorkerError(error)
    claimed = {**{tensor: claim for tensor, (_, claim) in claims.items()}, **{name: Claim("") for name in shown}}
    return check_layers(path, claimed, inferences, bound)


def _claimed(
    values: Mapping[str, Array], claims: Mapping[str, tuple[str, Claim]], outputs: Sequence[str]
) -> dict[str, Array]:
    """Values by the names of the user's tensors."""
    return {
        **{tensor: values[name] for tensor, (name, _) in claims.items()},
        **{name: values[name] for name in outputs},
    }


def _showing(model: ModelProto, names: Sequence[str]) -> bytes:
    """A model with other outputs, serialised."""
    del model.graph.output[:]
    model.graph.output.extend(ValueInfoProto(name=name) for name in names)
    return model.SerializeToString()
