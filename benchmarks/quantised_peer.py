"""OpenVINO on a model that NNCF quantised, as its makers quantise models of that kind."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import GraphProto

from benchmarks.kept import kept_name
from sartor.errors import UnsupportedModelError, UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OpenVinoReference

_ATTENTION = frozenset({"Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention"})
# Between the probabilities of attention and the product with the values.
_PASSING = frozenset({"Cast", "Dropout", "Identity", "Reshape", "Transpose", "Where"})


def openvino_int8(
    model: Path, directory: Path, samples: Sequence[Mapping[str, Array]], threads: int, precision: str = "f32"
) -> OpenVinoReference:
    """OpenVINO on the model quantised by NNCF with the settings for its kind, calibrated with the same samples.

    A network with attention is quantised as a transformer: NNCF then moves the sizes of channels to the weights
    (SmoothQuant), and leaves the attention's elementwise operations in floats. Without it a single range per tensor
    has to hold the outliers that such networks have.

    What is not quantised computes in ``precision``, as ``OpenVinoReference`` has it.

    Raises:
        UsageError: if OpenVINO or NNCF is not installed.
        UnsupportedModelError: if one of them does not take the model.
    """
    is_transformer = has_attention(onnx.load(model, load_external_data=False).graph)
    kind = f"nncf.{len(samples)}{'.transformer' if is_transformer else ''}"
    path = directory / f"{kept_name(model, kind, ('nncf', 'openvino'))}.xml"
    if not path.exists():
        try:
            nncf = importlib.import_module("nncf")
            openvino = importlib.import_module("openvino")
        except ImportError:
            raise UsageError("NNCF is not installed; install it with: pip install 'sartor[peers]'") from None
        try:
            quantised = nncf.quantize(
                openvino.Core().read_model(str(model)),
                nncf.Dataset(list(samples)),
                subset_size=len(samples),
                model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
            )
        except (RuntimeError, nncf.InternalError, nncf.UnsupportedModelError, nncf.ValidationError) as error:
            raise UnsupportedModelError(f"NNCF cannot quantise '{model}': {error}") from None
        openvino.save_model(quantised, str(path))
    return OpenVinoReference(path, threads=threads, precision=precision)


def has_attention(graph: GraphProto) -> bool:
    """Whether a graph has attention, as one operator or as a Softmax that is multiplied by computed values."""
    weights = {initializer.name for initializer in graph.initializer}
    probabilities = set[str]()
    for node in graph.node:
        if node.op_type in _ATTENTION:
            return True
        if node.op_type == "Softmax" or (node.op_type in _PASSING and probabilities & set(node.input)):
            probabilities.update(node.output)
        if node.op_type == "MatMul" and node.input[0] in probabilities and node.input[1] not in weights:
            return True
    return False
