"""The ONNX front end: from a file to a checked, self-contained model that the importer takes."""

from __future__ import annotations

from sartor.onnx_model.load import load_model
from sartor.onnx_model.prepare import prepare
from sartor.onnx_model.prepared import Change, PreparedModel, TensorInfo
from sartor.onnx_model.sampling import sample_inputs

__all__ = ["Change", "PreparedModel", "TensorInfo", "load_model", "prepare", "sample_inputs"]
