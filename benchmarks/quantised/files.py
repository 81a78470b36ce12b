"""Networks quantised as ONNX Runtime's tools quantise them, or NNCF."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.quantised_peer import has_attention
from benchmarks.zoo import NETWORKS, sample_inputs, write
from sartor.errors import UsageError
from sartor.reference.tie_spread import rounds

_SAMPLES = 4


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds: Iterator[Mapping[str, Any]] = iter([sample_inputs(model, seed) for seed in range(_SAMPLES)])

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self._feeds, None)


def quantised_file(network: str, folder: Path, *, reduced: bool = False, by_nncf: bool = False) -> Path:
    """The file of a quantised network, written unless there is one.

    A network with attention gets ranges that are found at run time, any other those of random samples: pairs around
    operators (QDQ), activations in u8, weights in s8 per channel.

    Args:
        network: of the zoo, or an ONNX file, whose open dimensions become 1; one that is quantised already stays so.
        folder: for the files.
        reduced: whether weights have 7 bits, with which no pair of products saturates.
        by_nncf: whether NNCF quantises, as it does by default.

    Raises:
        UsageError: if NNCF is not installed.
    """
    source = write(network, folder) if network in NETWORKS else Path(network)
    model = onnx.load(source)
    if _close(model):
        source = folder / f"{source.stem}.of_one.onnx"
        onnx.save(model, source)
    if rounds(model):
        return source
    path = folder / f"{source.stem}.{'nncf' if by_nncf else '7bits' if reduced else '8bits'}.onnx"
    if path.exists():
        return path
    prepared, unfinished = folder / f"{source.stem}.prepared.onnx", path.with_suffix(".unfinished")
    quant_pre_process(str(source), str(prepared))
    if by_nncf:
        onnx.save(_by_nncf(onnx.load(prepared)), unfinished)
        unfinished.rename(path)
        return path
    options: dict[str, Any] = {"per_channel": True, "reduce_range": reduced, "weight_type": QuantType.QInt8}
    if has_attention(model.graph):
        quantize_dynamic(prepared, unfinished, **options)
    else:
        form = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8}
        quantize_static(prepared, unfinished, _Samples(model), **form, **options)
    unfinished.rename(path)
    return path


def _by_nncf(model: onnx.ModelProto) -> onnx.ModelProto:
    """A network as NNCF quantises it, with the same samples.

    Raises:
        UsageError: if NNCF is not installed.
    """
    try:
        nncf = importlib.import_module("nncf")
    except ImportError:
        raise UsageError("NNCF is not installed; install it with: pip install 'sartor[peers]'") from None
    samples = [sample_inputs(model, seed) for seed in range(_SAMPLES)]
    kind = nncf.ModelType.TRANSFORMER if has_attention(model.graph) else None
    found: onnx.ModelProto = nncf.quantize(model, nncf.Dataset(samples), subset_size=_SAMPLES, model_type=kind)
    return found


def _close(model: onnx.ModelProto) -> bool:
    """Set the open dimensions of inputs to 1; returns whether there are any."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = [value.type.tensor_type.shape for value in model.graph.input if value.name not in weights]
    found = [size for shape in shapes for size in shape.dim if not size.HasField("dim_value")]
    for size in found:
        size.dim_value = 1
    if found:
        # Shapes of other values name the dimensions, which inference then decides.
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    return bool(found)
