"""Files of ONNX Runtime's quantisers: static, dynamic, and weights in blocks of few bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import nn

_FORMATS = {"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}
_ACTIVATIONS = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}


class _Images(CalibrationDataReader):
    """Four random images."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self._images = iter([{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._images, None)


class _Images8(nn.Module):
    """Convolutions, a residual, poolings and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise, self.last = nn.Conv2d(8, 8, 3, groups=8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = torch.relu(self.first(x))
        value = torch.max_pool2d(value + torch.relu(self.second(value)), 2)
        value = torch.sigmoid(self.depthwise(value))
        return self.last(value.mean(dim=(2, 3)))


class _Steps(nn.Module):
    """An LSTM in both directions and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.last = nn.LSTM(12, 16, bidirectional=True), nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.steps(x)[0])


class _Products(nn.Module):
    """Two products with an activation between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 48, bias=False), nn.Linear(48, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.nn.functional.gelu(self.first(x)))


def _export(module: nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    torch.onnx.export(
        module.eval(),
        (torch.randn(shape),),
        str(path),
        opset_version=17,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
    )
    return path


def write_quantised(work: Path, bert: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Quantise networks; yields the name of each file and the model.

    Args:
        work: folder for files between.
        bert: the file of a BERT in f32 that was not optimised.
    """
    shape = (1, 3, 12, 12)
    images = _export(_Images8(), shape, work / "images.onnx")
    for form, kind in ((form, kind) for form in _FORMATS for kind in _ACTIVATIONS):
        path = work / f"static_{form}_{kind}.onnx"
        quantize_static(
            images,
            path,
            _Images(shape),
            quant_format=_FORMATS[form],
            per_channel=True,
            activation_type=_ACTIVATIONS[kind],
            weight_type=QuantType.QInt8,
        )
        yield path.stem, onnx.load_model(path)
    yield "static_qoperator_u8_extended", _saved(work / "static_qoperator_u8.onnx", "ORT_ENABLE_EXTENDED")
    yield "static_qdq_u8_all", _saved(work / "static_qdq_u8.onnx", "ORT_ENABLE_ALL")
    steps = _export(_Steps(), (5, 1, 12), work / "steps.onnx")
    for source, name in ((images, "images"), (steps, "lstm"), (bert, "bert")):
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            path = work / f"dynamic_{name}_{'s8' if kind == QuantType.QInt8 else 'u8'}.onnx"
            quantize_dynamic(source, path, weight_type=kind)
            yield path.stem, onnx.load_model(path)
    yield "dynamic_bert_u8_extended", _saved(work / "dynamic_bert_u8.onnx", "ORT_ENABLE_EXTENDED")
    yield from _few_bits(_export(_Products(), (3, 64), work / "products.onnx"))


def _saved(path: Path, level: str) -> onnx.ModelProto:
    """A model as ONNX Runtime saves it after its own optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path.with_suffix(f".{level}.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load_model(options.optimized_model_filepath)


def _few_bits(products: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Weights in blocks: rounded to nearest or by half-quadratic quantisation, in f32 and f16."""
    configurations = {
        "rtn": DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=False),
        "rtn_symmetric": DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True),
        "hqq": HQQWeightOnlyQuantConfig(block_size=32, bits=4),
    }
    for name, configuration in configurations.items():
        for is_half in (False, True):
            model = onnx.load_model(products)
            quantiser = MatMulNBitsQuantizer(model, algo_config=configuration)
            quantiser.process()
            quantised = quantiser.model.model
            if is_half:
                quantised = convert_float_to_float16(quantised)
            yield f"nbits_{name}_{'f16' if is_half else 'f32'}", quantised
