"""Worker side of comparing layers: runs a probe and ONNX Runtime, and returns the errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, ValueInfoProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.reference.expected_outputs import Disturbed
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array, passed
from sartor.runtime.output_error import output_error
from sartor.runtime.session import Session
from sartor.tuning.networks.net_files import NetFiles

_INTEGERS = "biu"


def probe_errors(
    files: NetFiles,
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    fed: Mapping[str, str],
    expected: Mapping[str, str],
    device: str,
    threads: int | None,
) -> dict[str, float]:
    """Relative error of each output of a probe.

    Args:
        files: the compiled probe, with a manifest.
        prepared: the prepared model.
        feeds: one array per input of the model.
        fed: name of a further input of the probe to the tensor of the prepared model that it takes.
        expected: name of an output to the tensor that it should equal, whose shape may differ.
        device: as for ``Session``.
        threads: as for ``Session``.
    """
    model = prepared_model(prepared)
    right = reference_tensors(model, {*fed.values(), *expected.values()}, feeds)
    scales = _scales(model, right, feeds)
    session = Session(
        files.module,
        device=device,
        threads=threads,
        parameters=files.parameters,
        huge_pages=False,
        keep_states=False,
    )
    with session:
        manifest = session.manifest
        specs = {spec.name: spec for spec in manifest.inputs} if manifest else {}
        given = {
            name: passed(right[tensor], specs[name].numpy_dtype, specs[name].shape) for name, tensor in fed.items()
        }
        values = session.run(list(expected), {**feeds, **given})
    pairs = zip(expected.items(), values, strict=True)
    return {name: tensor_error(value, right[tensor], scales.get(tensor)) for (name, tensor), value in pairs}


def _scales(model: ModelProto, right: Mapping[str, Array], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Scales of the model's outputs of real type, as coarse as for lower precision."""
    names = [output.name for output in model.graph.output if output.name in right]
    if len(names) < len(model.graph.output):
        return {}
    disturbed, values = Disturbed(model, narrow=True, cuts=False), [right[name] for name in names]
    scaled = zip(names, values, disturbed.scales(values, disturbed(feeds)), strict=True)
    return {name: scale for name, value, scale in scaled if value.dtype.kind not in _INTEGERS}


def reference_tensors(
    model: ModelProto, names: Collection[str], feeds: Mapping[str, Array], threads: int | None = None
) -> dict[str, Array]:
    """Compute tensors of a model by ONNX Runtime, without nodes that they do not depend on.

    Args:
        model: changed in place: the tensors become its outputs.
        names: of tensors anywhere in the graph.
        feeds: one array per input.
        threads: as for ``ReferenceModel``.

    Raises:
        UsageError: if the feeds do not fit the model.
        UnsupportedModelError: if ONNX Runtime does not load the model.
    """
    inputs = {value.name for value in model.graph.input}
    wanted = sorted(set(names) - inputs)
    arrays = {name: feeds[name] for name in names if name in inputs}
    if not wanted:
        return arrays
    editor = GraphEditor(model.graph)
    outputs = [ValueInfoProto(name=name, type=editor.type(name)) for name in wanted]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    drop_unused(model)
    values = ReferenceModel(model.SerializeToString(), threads=threads, cuts=False)(feeds)
    return arrays | dict(zip(wanted, values, strict=True))


def tensor_error(value: Array, right: Array, scale: Array | None = None) -> float:
    """Relative error of a value inside a network. Integers are treated like real numbers, which they may represent.

    The shape may differ if the order of the elements is the same. The error is 0 if there are none. ``scale`` is that
    of ``right``, by default computed without noise.
    """
    if right.dtype.kind in _INTEGERS:
        return tensor_error(passed(value, right.dtype, right.shape).astype(np.float64), right.astype(np.float64))
    return output_error(value.reshape(right.shape), right, scale=scale)
