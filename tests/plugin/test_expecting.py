"""What outputs are measured by does not follow from what is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from sartor.expecting import Expectation
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from tests import tiny_models


def wrong(model: ModelProto) -> ModelProto:
    """The model with its filters turned round, as a rewrite with a fault may leave it."""
    found = ModelProto()
    found.CopyFrom(model)
    for tensor in found.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
    return found


def test_a_prepared_model_that_is_wrong_is_no_noise(tmp_path: Path) -> None:
    model = tiny_models.residual()
    onnx.save(model, tmp_path / "net.onnx")
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 16, 6, 6)).astype(np.float32)}
    prepared = wrong(model)
    outputs = OnnxRuntimeReference(prepared.SerializeToString())(feeds)
    for narrow in (False, True):
        expected = Expectation([tmp_path / "net.onnx"], prepared.SerializeToString(), narrow=narrow)(feeds)
        assert relative_error(outputs, expected.outputs, scales=expected.scales) > 0.5
