"""On real models what rounding does is not blamed, and every slice that goes missing is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from sartor.reference.disturbed_model import expand_sigmoid
from sartor.reference.expected_outputs import Expectation, Expected
from sartor.reference.random_inputs import sample_inputs
from sartor.runtime.output_error import largest_error, relative_error
from tests.plugin.measured_models import rounded
from tests.plugin.onnx_model.builders import Array, run

MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "espcn_nn_resize_float": {},
    "magika_standard_v3_3": {"bytes": (1, 2048)},
    "mnist_8": {},
    "mobilefacenet": {"input": (1, 3, 112, 112)},
    "silero_vad_openvino_16k": {},
    "st_ssd_mobilenet_v1_025_256": {"input_1": (1, 3, 256, 256)},
    "ultraface_rfb_320": {},
}
_FEW = 16
"""Slices of fewer elements may be small by chance."""


@pytest.mark.parametrize("name", MODELS)
def test_rounding_of_a_real_model_is_not_blamed_and_missing_slices_are(name: str, model_folder: Path) -> None:
    path = model_folder / f"{name}.onnx"
    prepared = prepare(load_model(path), MODELS[name]).model
    feeds, data = sample_inputs(prepared, 0), prepared.SerializeToString()
    exact = ModelProto()
    exact.CopyFrom(prepared)
    expand_sigmoid(exact)
    full, narrow = (Expectation((path,), data, threads=1, narrow=number)(feeds) for number in (False, True))
    assert relative_error(list(run(exact, feeds).values()), full.outputs, scales=full.scales) < 1e-4

    outputs = list(run(rounded(exact, TensorProto.BFLOAT16), feeds).values())
    error = relative_error(outputs, narrow.outputs, scales=narrow.scales)
    plain = max(largest_error(*pair) for pair in zip(outputs, narrow.outputs, strict=True))
    assert error < max(2 * plain, 1e-2)

    assert min(_missing_slices(full), default=1.0) > 0.1
    assert min(_missing_slices(narrow), default=1.0) > 0.05


def _missing_slices(expected: Expected) -> Iterator[float]:
    """The error by which each slice would be seen if it were zero."""
    for right, scale in zip(expected.outputs, expected.scales, strict=True):
        for axis, size in enumerate(right.shape):
            if 1 < size <= right.size // _FEW:
                others = tuple(index for index in range(right.ndim) if index != axis)
                errors: Array = np.max(np.abs(right) / scale, axis=others)
                yield float(errors[np.max(np.abs(right), axis=others) > 0].min(initial=np.inf))
