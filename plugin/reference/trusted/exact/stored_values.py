"""Reads the values of initialisers, also of those in other files."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.mapped_data import mapped_array
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.reading.external_data import external_array, is_external

# A serialised model may have 2 GB, with some room for nodes.
_MOST_BYTES = 1900 << 20


class StoredValues:
    """Values of a model's initialisers, as many from other files as the model itself can hold.

    Args:
        model: with references to other files.
        source: the model's file; None if no data lies beside it.
    """

    def __init__(self, model: ModelProto, source: Path | None) -> None:
        self._source = source
        self._left = _MOST_BYTES - model.ByteSize()

    def __call__(self, tensor: TensorProto) -> Array | None:
        """The values of a tensor; None if they lie in another file and are too many.

        Raises:
            SartorError: if another file cannot be read.
        """
        if not is_external(tensor) or mapped_array(tensor) is not None:
            return to_array(tensor)
        if self._source is None:
            raise UnsupportedModelError(f"the weight '{tensor.name}' lies in another file, and the model in none")
        values = external_array(tensor, self._source, self._left)
        self._left -= 0 if values is None else values.nbytes
        return values
