"""Writes the files; see the package."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch
from onnx import ModelProto
from onnxruntime.transformers import optimizer

from tools.onnx_runtime_files.networks import NETWORKS
from tools.onnx_runtime_files.quantised import write_quantised

# Tensors up to this many numbers keep their values: they may be scales, masks or shapes.
_KEPT = 128
_WIDTH, _HEADS = 32, 4


def main() -> None:
    """Write all files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in _files():
        onnx.save_model(_without_weights(model), folder / f"{name}.onnx")


def _files() -> Iterator[tuple[str, ModelProto]]:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, build in NETWORKS.items():
            torch.manual_seed(0)
            network = build()
            network.export(work / f"{name}.onnx")
            for is_half in (False, True):
                optimised = optimizer.optimize_model(
                    str(work / f"{name}.onnx"),
                    model_type=network.kind,
                    num_heads=0 if name in ("unet", "vae") else _HEADS,
                    hidden_size=0 if name in ("unet", "vae") else _WIDTH,
                    opt_level=0,
                )
                if is_half:
                    optimised.convert_float_to_float16()
                path = work / f"{name}_{'f16' if is_half else 'f32'}.onnx"
                optimised.save_model_to_file(str(path))
                yield path.stem, onnx.load_model(path)
        torch.manual_seed(0)
        yield from write_quantised(work, work / "bert.onnx")


def _without_weights(model: ModelProto) -> ModelProto:
    """The model without the values of its large tensors of floats and bytes, nor texts about where it comes from."""
    stripped = ModelProto()
    stripped.CopyFrom(model)
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    for tensor in stripped.graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if tensor.data_type in kinds and count > _KEPT:
            for field in ("raw_data", "float_data", "int32_data"):
                tensor.ClearField(field)
    for node in stripped.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    del stripped.metadata_props[:]
    return stripped


if __name__ == "__main__":
    main()
