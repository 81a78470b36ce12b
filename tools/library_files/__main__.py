"""Writes the files of one library; see the package."""

from __future__ import annotations

import importlib
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

# Tensors up to this many numbers keep their values: they may be scales, masks or shapes.
_KEPT = 128
_DRAWN = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
_VALUES = ("raw_data", "float_data", "int32_data")


def main() -> None:
    """Write the files of the module that the command line names into the folder that it names then."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for stem, model in importlib.import_module(f"tools.library_files.{name}").files(Path(work)):
            _strip(model.graph)
            del model.metadata_props[:]
            onnx.save_model(model, folder / f"{stem}.onnx")


def _strip(graph: onnx.GraphProto) -> None:
    """Leave out the values of large tensors of floats and bytes, and texts about where nodes come from; in place."""
    for tensor in graph.initializer:
        if tensor.data_type in _DRAWN and math.prod(tensor.dims) > _KEPT:
            for field in _VALUES:
                tensor.ClearField(field)
    described: list[Any] = [*graph.value_info, *graph.input, *graph.output, *graph.initializer, *graph.node]
    for part in described:
        part.ClearField("doc_string")
        del part.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _strip(attribute.g)


if __name__ == "__main__":
    main()
